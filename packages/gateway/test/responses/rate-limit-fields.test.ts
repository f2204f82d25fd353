import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { parseDictionary } from 'structured-headers'
import { expect, test } from 'vitest'
import { readHttpSignals } from '../../../../src/egress/signals/http-signals.ts'
import { NOW_DATE, NOW_MS, NOW_S, withHeaders } from '../../../../test/egress/signals/http-answer.ts'
import type { Policy } from '../../src/responses/policy.ts'
import { HEADER_FORMS, rateLimitFields } from '../../src/responses/rate-limit-fields.ts'
import { readList } from './fields.ts'

const ORDERS: Policy = { name: 'orders', quota: 100, remaining: 7, windowMs: 60_000, resetMs: 11_001 }
const DAILY: Policy = { name: 'daily', quota: 5000, remaining: 900, windowMs: 86_400_000, resetMs: 36_000_000 }

const policy = (figures: Partial<Policy>): Policy => ({ ...ORDERS, ...figures })

test('without a form there is no field, and none without a policy', () => {
  expect(rateLimitFields([{ ...ORDERS, bucket: 'jobs' }], [])).toEqual({})
  expect(rateLimitFields([], HEADER_FORMS)).toEqual({})
})

test('the lists are what is told where nothing else is asked for', () => {
  expect(rateLimitFields([ORDERS, DAILY])).toEqual({
    'ratelimit-policy': '"orders";q=100;w=60, "daily";q=5000;w=86400',
    ratelimit: '"orders";r=7;t=12, "daily";r=900;t=36000',
  })
})

test('draft-6 tells of the policy with the fewest units left, and of all quotas', () => {
  expect(rateLimitFields([DAILY, ORDERS], ['draft-6'])).toEqual({
    'ratelimit-policy': '100;w=60, 5000;w=86400',
    'ratelimit-limit': '100',
    'ratelimit-remaining': '7',
    'ratelimit-reset': '12',
  })
})

test('draft-6: no two quotas are equal, each has a window, and no count is there without a reset', () => {
  const sameQuota = policy({ name: 'slow', windowMs: 3_600_000, remaining: 1, resetMs: 5000 })
  const [noWindow, noReset] = [policy({ quota: 9, windowMs: undefined }), policy({ quota: 8, resetMs: undefined })]
  expect(rateLimitFields([sameQuota, ORDERS, noWindow], ['draft-6'])).toEqual({
    'ratelimit-policy': '100;w=3600',
    'ratelimit-limit': '100',
    'ratelimit-remaining': '1',
    'ratelimit-reset': '5',
  })
  expect(rateLimitFields([noReset], ['draft-6'])).toEqual({ 'ratelimit-policy': '8;w=60' })
})

test('draft-7 tells the same in one dictionary', () => {
  const six = rateLimitFields([DAILY, ORDERS], ['draft-6'])
  const seven = rateLimitFields([DAILY, ORDERS], ['draft-7'])
  const members = ['limit', 'remaining', 'reset'].map((key) => `${key}=${six[`ratelimit-${key}`]}`)
  expect(seven).toEqual({ 'ratelimit-policy': six['ratelimit-policy'], ratelimit: members.join(', ') })
  expect(Object.fromEntries(parseDictionary(seven.ratelimit as string))).toMatchObject({
    limit: [expect.any(Number), new Map()],
  })
  expect(rateLimitFields([ORDERS], ['draft-7', 'draft-10'])).toEqual(rateLimitFields([ORDERS], ['draft-10']))
})

test('beside the lists draft-6 goes without its policies', () => {
  expect(rateLimitFields([ORDERS], ['draft-6', 'draft-10'])).toEqual({
    ...rateLimitFields([ORDERS], ['draft-10']),
    'ratelimit-limit': '100',
    'ratelimit-remaining': '7',
    'ratelimit-reset': '12',
  })
})

test.each([
  ['x-ratelimit', String(NOW_S + 12)],
  ['x-ratelimit-delta', '12'],
] as const)('%s: the reset is %s', (form, reset) => {
  expect(rateLimitFields([DAILY, ORDERS], [form], NOW_MS)).toEqual({
    'x-ratelimit-limit': '100',
    'x-ratelimit-remaining': '7',
    'x-ratelimit-reset': reset,
  })
})

test.each([
  ['draft-10', 'draft-7'],
  ['x-ratelimit', 'x-ratelimit-delta'],
] as const)('%s counts beside %s, which has the same fields', (form, other) => {
  const alone = rateLimitFields([ORDERS], [form], NOW_MS)
  expect(rateLimitFields([ORDERS], [other, form], NOW_MS)).toEqual(alone)
  expect(rateLimitFields([ORDERS], [form, other], NOW_MS)).toEqual(alone)
})

test('of policies with as many units left, the one that takes longest is told alone', () => {
  const used = [ORDERS, DAILY].map((one) => ({ ...one, remaining: 0 }))
  expect(rateLimitFields(used, ['x-ratelimit-delta'])['x-ratelimit-reset']).toBe('36000')
})

test('fields without a unit tell of requests alone', () => {
  const bytes = policy({ remaining: 0, unit: 'content-bytes' })
  const calls = policy({ remaining: 0, unit: 'concurrent-requests' })
  for (const form of ['draft-6', 'x-ratelimit'] as const) {
    expect(rateLimitFields([bytes, calls], [form])).toEqual({})
    expect(rateLimitFields([bytes, calls, ORDERS], [form])).toEqual(rateLimitFields([ORDERS], [form]))
  }
})

test('X-RateLimit without a reset has none, where no policy has one', () => {
  const open = policy({ resetMs: undefined, remaining: 1 })
  expect(rateLimitFields([open], ['x-ratelimit'])).toEqual({ 'x-ratelimit-limit': '100', 'x-ratelimit-remaining': '1' })
  expect(rateLimitFields([open, DAILY], ['x-ratelimit'], NOW_MS)).toEqual(
    rateLimitFields([DAILY], ['x-ratelimit'], NOW_MS),
  )
})

test.each(HEADER_FORMS)('%s: a bucket is named, that of the policy which is closest to its end', (form) => {
  const shared = [policy({ ...DAILY, bucket: 'day' }), policy({ bucket: 'jobs:é' })]
  expect(rateLimitFields(shared, [form])['x-ratelimit-bucket']).toBe('jobs:%c3%a9')
})

test.each([
  ['units are rounded down', { remaining: 2.9, quota: 10.5 }, { q: 10, r: 2 }],
  ['nothing is left below 0', { remaining: -3 }, { r: 0 }],
  ['a reset is rounded up', { resetMs: 1 }, { t: 1 }],
  ['a reset that is over is 0', { resetMs: -1500 }, { t: 0 }],
  ['a window is rounded up', { windowMs: 500 }, { w: 1 }],
  ['a window that was computed is not', { windowMs: 60_000.000_001 }, { w: 60 }],
  ['no window is none', { windowMs: 0 }, { w: undefined }],
  [
    'numbers stay Integers',
    { quota: Number.POSITIVE_INFINITY, remaining: 1e18 },
    { q: 999999999999999, r: 999999999999999 },
  ],
  ['the unit that is meant anyway is not told', { unit: 'requests' }, { qu: undefined }],
  ['other units are', { unit: 'concurrent-requests' }, { qu: 'concurrent-requests' }],
] satisfies [string, Partial<Policy>, Record<string, unknown>][])('%s', (_, figures, told) => {
  const fields = rateLimitFields([policy(figures)])
  const read = { ...readList(fields['ratelimit-policy'])[0], ...readList(fields.ratelimit)[0] }
  expect(read).toMatchObject(Object.fromEntries(Object.entries(told).filter(([, value]) => value !== undefined)))
  for (const [key, value] of Object.entries(told)) if (value === undefined) expect(read).not.toHaveProperty(key)
})

test('pk is the beginning of the SHA-256 of the key, the same one in both fields, and nothing of the key', () => {
  const fields = rateLimitFields([policy({ partitionKey: 'müller@example.com' })])
  const pk = createHash('sha256').update('müller@example.com').digest('hex').slice(0, 24)
  expect([readList(fields['ratelimit-policy'])[0]?.pk, readList(fields.ratelimit)[0]?.pk]).toEqual([pk, pk])
  expect(JSON.stringify(fields)).not.toContain('example')
})

test('a stored reset is told alike by every answer until it is over: no wobble', () => {
  const resetAtMs = NOW_MS + 9_500
  const stored = policy({ resetAtMs, resetMs: 1 })
  let before = Number.POSITIVE_INFINITY
  for (let nowMs = NOW_MS; nowMs <= resetAtMs; nowMs += 37) {
    const fields = rateLimitFields([stored], ['draft-10', 'x-ratelimit'], nowMs)
    expect(fields['x-ratelimit-reset']).toBe(String(NOW_S + 10))
    const t = readList(fields.ratelimit)[0]?.t as number
    expect(t).toBe(Math.ceil((resetAtMs - nowMs) / 1000))
    expect(t).toBeLessThanOrEqual(before)
    before = t
  }
})

const units = fc.nat(1_000_000)
const policies = fc.uniqueArray(
  fc.record({
    name: fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 20 }),
    quota: units,
    remaining: units,
    windowMs: fc.integer({ min: 1, max: 31_000_000 }).map((seconds) => seconds * 1000),
    resetMs: fc.integer({ min: 0, max: 31_000_000_000 }),
    unit: fc.constantFrom('requests', 'content-bytes', 'concurrent-requests'),
    partitionKey: fc.uint8Array({ minLength: 1, maxLength: 12 }),
  }),
  { minLength: 1, maxLength: 5, selector: ({ name }) => name },
)

test('what reads the fields of others reads ours: every figure comes back', () => {
  fc.assert(
    fc.property(policies, (given) => {
      const { quotas } = readHttpSignals(withHeaders(rateLimitFields(given)))
      expect(quotas).toEqual(
        given.map(({ name, quota, remaining, windowMs, resetMs, unit, partitionKey }) => ({
          ...{ name, remaining, windowMs, unit, limit: quota, source: 'ratelimit' },
          resetMs: Math.ceil(resetMs / 1000) * 1000,
          partition: Buffer.from(partitionKey).toString('base64'),
        })),
      )
    }),
  )
})

test.each([
  ['draft-6', 'ratelimit', 60_000],
  ['x-ratelimit', 'x-ratelimit', undefined],
  ['x-ratelimit-delta', 'x-ratelimit', undefined],
] as const)('%s is read back too', (form, source, windowMs) => {
  const headers = { ...rateLimitFields([ORDERS], [form], NOW_MS), date: NOW_DATE }
  const window = windowMs ? { windowMs } : {}
  const told = { limit: 100, remaining: 7, resetMs: 12_000, unit: 'requests', source, ...window }
  expect(readHttpSignals(withHeaders(headers)).quotas).toEqual([told])
})

test.each([
  ['say "hi"\\', 'say "hi"\\'],
  ['é\n😀', '%c3%a9%0a%f0%9f%98%80'],
  ['\ud800', '%ef%bf%bd'],
])('the name %j is told as %j', (name, told) => {
  expect(readList(rateLimitFields([policy({ name })])['ratelimit-policy'])[0]?.name).toBe(told)
})

test('names of any characters come as valid Strings, those of printable ASCII as they are', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (name) => {
      const [item] = readList(rateLimitFields([policy({ name })]).ratelimit)
      expect(item?.r).toBe(7)
      expect(item?.name).toMatch(/^[\x20-\x7e]*$/)
      if (/^[\x20-\x7e]*$/.test(name)) expect(item?.name).toBe(name)
    }),
  )
})
