import { describe, expect, test } from 'vitest'
import { readHttpSignals } from '../../../src/egress/signals/http-signals.ts'
import type { QuotaSignal } from '../../../src/egress/signals/quota-signal.ts'
import { NOW_DATE, NOW_S, withHeaders } from './http-answer.ts'

type Row = readonly [draft: string, headers: Record<string, string>, signals: readonly Partial<QuotaSignal>[]]

const IETF = { unit: 'requests', source: 'ratelimit' } as const
const X = { unit: 'requests', source: 'x-ratelimit' } as const

const DRAFTS: readonly Row[] = [
  [
    'drafts 00 to 03: policies inside RateLimit-Limit',
    { 'ratelimit-limit': '100, 100;w=60, 1000;w=3600', 'ratelimit-remaining': '50', 'ratelimit-reset': '5' },
    [
      { limit: 100, remaining: 50, resetMs: 5000, windowMs: 60_000, ...IETF },
      { limit: 1000, windowMs: 3_600_000, ...IETF },
    ],
  ],
  [
    'drafts 04 to 06: the triple and its policies, known by their quota',
    {
      'ratelimit-limit': '10',
      'ratelimit-remaining': '3',
      'ratelimit-reset': '1',
      'ratelimit-policy': '10;w=1, 50;w=60;comment="per minute"',
    },
    [
      { limit: 10, remaining: 3, resetMs: 1000, windowMs: 1000, ...IETF },
      { limit: 50, windowMs: 60_000, ...IETF },
    ],
  ],
  ['draft 06: remaining alone', { 'ratelimit-remaining': '3' }, [{ remaining: 3, ...IETF }]],
  [
    'draft 06: decimals are no figures',
    { 'ratelimit-limit': '10.5', 'ratelimit-remaining': '3.5', 'ratelimit-reset': '1' },
    [{ resetMs: 1000, ...IETF }],
  ],
  [
    "draft 06: GitLab's reset is an instant",
    { 'ratelimit-limit': '2000', 'ratelimit-remaining': '0', 'ratelimit-reset': String(NOW_S + 42), date: NOW_DATE },
    [{ limit: 2000, remaining: 0, resetMs: 42_000, ...IETF }],
  ],
  [
    'draft 07: the dictionary',
    { ratelimit: 'limit=100, remaining=50, reset=5', 'ratelimit-policy': '100;w=60' },
    [{ limit: 100, remaining: 50, resetMs: 5000, windowMs: 60_000, ...IETF }],
  ],
  ['draft 07: remaining may be missing', { ratelimit: 'limit=100, reset=5' }, [{ limit: 100, resetMs: 5000, ...IETF }]],
  ['draft 07: limit has to be there', { ratelimit: 'remaining=50, reset=5' }, []],
  ['draft 07: decimals', { ratelimit: 'limit=100, remaining=50.5, reset=5' }, []],
  [
    'drafts 08 to 11: the list',
    { ratelimit: '"default";r=50;t=30', 'ratelimit-policy': '"default";q=100;w=60' },
    [{ name: 'default', limit: 100, remaining: 50, resetMs: 30_000, windowMs: 60_000, ...IETF }],
  ],
  [
    'drafts 08 to 11: several, and a policy of which nothing is told',
    {
      ratelimit: '"burst";r=9;t=1, "day";r=700;t=40000',
      'ratelimit-policy': '"burst";q=10;w=1,"day";q=1000;w=86400, "month";q=20000;w=2592000',
    },
    [
      { name: 'burst', limit: 10, remaining: 9, resetMs: 1000, windowMs: 1000, ...IETF },
      { name: 'day', limit: 1000, remaining: 700, resetMs: 40_000_000, windowMs: 86_400_000, ...IETF },
      { name: 'month', limit: 20_000, windowMs: 2_592_000_000, ...IETF },
    ],
  ],
  [
    'drafts 08 to 11: one name, two partitions',
    { ratelimit: '"a";r=1;t=2;pk=:eA==:', 'ratelimit-policy': '"a";q=5;w=1;pk=:eA==:, "a";q=6;w=1;pk=:eQ==:' },
    [
      { name: 'a', limit: 5, remaining: 1, resetMs: 2000, windowMs: 1000, partition: 'eA==', ...IETF },
      { name: 'a', limit: 6, windowMs: 1000, partition: 'eQ==', ...IETF },
    ],
  ],
  [
    'draft 08 of express-rate-limit: a partition in the policy alone, spaces after ;',
    { ratelimit: '"100-in-1min"; r=99; t=60', 'ratelimit-policy': '"100-in-1min"; q=100; w=60; pk=:NTE=:' },
    [{ name: '100-in-1min', limit: 100, remaining: 99, resetMs: 60_000, windowMs: 60_000, ...IETF }],
  ],
  [
    "draft 10's own examples: a Token, and no r",
    { ratelimit: 'quota;t=1', 'ratelimit-policy': 'quota;q=10' },
    [{ name: 'quota', limit: 10, resetMs: 1000, ...IETF }],
  ],
  ['an Integer for a name', { ratelimit: '60;r=5;t=1' }, [{ name: '60', remaining: 5, resetMs: 1000, ...IETF }]],
  [
    'qu: content-bytes',
    { ratelimit: '"b";r=1000;t=9', 'ratelimit-policy': '"b";q=65536;qu="content-bytes";w=10' },
    [{ name: 'b', limit: 65_536, remaining: 1000, resetMs: 9000, windowMs: 10_000, ...IETF, unit: 'content-bytes' }],
  ],
  [
    'qu: concurrent-requests',
    { 'ratelimit-policy': '"c";q=4;qu="concurrent-requests"' },
    [{ name: 'c', limit: 4, ...IETF, unit: 'concurrent-requests' }],
  ],
  [
    'qu: request, as the registry spells it, and one that nobody knows',
    { 'ratelimit-policy': '"a";q=4;w=1;qu="request", "b";q=4;w=1;qu="goats"' },
    [
      { name: 'a', limit: 4, windowMs: 1000, ...IETF },
      { name: 'b', limit: 4, windowMs: 1000, ...IETF, unit: 'other' },
    ],
  ],
  [
    'an item that breaks the rules is left out, its neighbours are not',
    { ratelimit: '"a";r=50.5;t=1, "b";r=5;t=-1, "c";r=5;t=1, "d", ("e");r=1, ?1;r=1, "f";r="1"' },
    [{ name: 'c', remaining: 5, resetMs: 1000, ...IETF }],
  ],
  [
    'policies that break the rules',
    {
      'ratelimit-policy':
        '"a";q=1.5;w=1, "b";q=-1;w=1, "c";w=1, "d";q=5;w=0, "e";q=5;w=1.5, 1.5;w=1, "g";q=5;w=31622401, "f";q=5;w=1',
    },
    [{ name: 'f', limit: 5, windowMs: 1000, ...IETF }],
  ],
  ['a comma at the end: no List', { ratelimit: '"a";r=5;t=1,' }, []],
  ['text', { ratelimit: 'fifty requests left', 'ratelimit-policy': '100 per minute' }, []],
  ['a cached answer', { age: '3', ratelimit: '"a";r=5;t=1', 'x-ratelimit-remaining': '3' }, []],
  [
    'an answer of Age 0 is none from a cache',
    { age: '0', ratelimit: '"a";r=5' },
    [{ name: 'a', remaining: 5, ...IETF }],
  ],
]

const FAMILIES: readonly Row[] = [
  [
    'X-RateLimit, epoch',
    { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW_S + 9), date: NOW_DATE },
    [{ limit: 60, remaining: 0, resetMs: 9000, ...X }],
  ],
  [
    'X-RateLimit, epoch on a clock that is 10 s ahead',
    { 'x-ratelimit-reset': String(NOW_S + 19), date: 'Sat, 21 Nov 2026 12:00:10 GMT' },
    [{ resetMs: 9000, ...X }],
  ],
  ['X-RateLimit, delta', { 'x-ratelimit-reset': '9' }, [{ resetMs: 9000, ...X }]],
  ['X-RateLimit, epoch ms', { 'x-ratelimit-reset': `${NOW_S + 9}000` }, [{ resetMs: 9000, ...X }]],
  ['X-RateLimit, duration', { 'x-ratelimit-reset': '1m30s' }, [{ resetMs: 90_000, ...X }]],
  ['X-RateLimit, ISO', { 'x-ratelimit-reset': '2026-11-21T12:00:09Z' }, [{ resetMs: 9000, ...X }]],
  ['X-RateLimit, IMF-fixdate', { 'x-ratelimit-reset': 'Sat, 21 Nov 2026 12:00:09 GMT' }, [{ resetMs: 9000, ...X }]],
  [
    'X-RateLimit, Reset-After before Reset',
    { 'x-ratelimit-reset-after': '1.25', 'x-ratelimit-reset': String(NOW_S + 9) },
    [{ resetMs: 1250, ...X }],
  ],
  [
    'X-Rate-Limit',
    { 'x-rate-limit-limit': '450', 'x-rate-limit-remaining': '449', 'x-rate-limit-reset': String(NOW_S + 900) },
    [{ limit: 450, remaining: 449, resetMs: 900_000, ...X }],
  ],
  ['-1 and 0: not known', { 'x-ratelimit-remaining': '-1', 'x-ratelimit-reset': '0' }, []],
  ['-1 and a time', { 'x-ratelimit-remaining': '-1', 'x-ratelimit-reset': '7' }, [{ resetMs: 7000, ...X }]],
  ['nothing that can be read', { 'x-ratelimit-limit': 'many', 'x-ratelimit-reset': '-1' }, []],
]

describe('RateLimit fields, in all their drafts', () => {
  test.each(DRAFTS)('%s', (_, headers, signals) => {
    expect(readHttpSignals(withHeaders(headers)).quotas).toEqual(signals)
  })
})

describe('X-RateLimit fields, in all their forms', () => {
  test.each(FAMILIES)('%s', (_, headers, signals) => {
    expect(readHttpSignals(withHeaders(headers)).quotas).toEqual(signals)
  })
})
