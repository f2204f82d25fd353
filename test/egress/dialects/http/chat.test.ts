import { NOW_S } from '../../signals/http-answer.ts'
import { describeVendors, REFUSED, type Row } from './vendor-rows.ts'

const IN_9_S = String(NOW_S + 9)

const bucket = (remaining: string) => ({
  'x-ratelimit-limit': '5',
  'x-ratelimit-remaining': remaining,
  'x-ratelimit-reset': `${IN_9_S}.470`,
  'x-ratelimit-reset-after': '9.470',
  'x-ratelimit-bucket': 'abcd1234',
})
const CHANNEL = 'https://discord.com/api/v10/channels/4242/messages/77'

const CHAT: readonly Row[] = [
  [
    'Discord: the bucket of a channel, time in the body',
    'discord',
    {
      status: 429,
      headers: { ...bucket('0'), 'retry-after': '65', 'x-ratelimit-scope': 'user' },
      body: { message: 'You are being rate limited.', retry_after: 64.57, global: false },
      url: CHANNEL,
    },
    [
      {
        ...{ kind: 'pause', scope: 'queue', hard: true, forMs: 64_570 },
        ...{ source: 'body', reason: '429 user retry_after 64.57 s' },
      },
    ],
  ],
  [
    'Discord: global, in the body',
    'discord',
    { status: 429, headers: bucket('0'), body: { retry_after: 1.5, global: true }, url: CHANNEL },
    [{ ...REFUSED, forMs: 1500 }],
  ],
  [
    'Discord: global, in the fields',
    'discord',
    { status: 429, headers: { ...bucket('0'), 'x-ratelimit-global': 'true', 'retry-after': '2' }, url: CHANNEL },
    [{ ...REFUSED, forMs: 2000 }],
  ],
  [
    'Discord: shared is named',
    'discord',
    { status: 429, headers: { ...bucket('0'), 'x-ratelimit-scope': 'shared' }, body: { retry_after: 3 }, url: CHANNEL },
    [{ kind: 'pause', scope: 'queue', forMs: 3000, reason: '429 shared retry_after 3 s' }],
  ],
  [
    'Discord: a webhook with its token',
    'discord',
    { status: 429, headers: bucket('0'), url: 'https://discord.com/api/webhooks/12/a-b_C?wait=true' },
    [{ kind: 'pause', scope: 'queue', forMs: 9470 }],
  ],
  [
    'Discord: no resource in the URL',
    'discord',
    { status: 429, headers: bucket('0'), url: 'https://discord.com/api/users/@me' },
    [{ kind: 'pause', scope: 'queue', forMs: 9470 }],
  ],
  [
    'Discord: without a bucket it is Cloudflare',
    'discord',
    { status: 429, body: '<html>', url: CHANNEL },
    [{ kind: 'pause', scope: 'queue', forMs: undefined, hard: false }],
  ],
  [
    'Discord: a good answer',
    'discord',
    { status: 200, headers: bucket('4'), url: CHANNEL },
    [{ kind: 'ok', scope: 'queue', reason: '200, 4 left' }],
  ],
  [
    'Discord: nothing is left of a bucket',
    'discord',
    { status: 200, headers: bucket('0'), url: CHANNEL },
    [{ kind: 'ok', scope: 'queue', remaining: 0, resetMs: 9470 }],
  ],
  [
    'Slack: Retry-After, and the method in the reason',
    'slack',
    { status: 429, headers: { 'retry-after': '30' }, url: 'https://slack.com/api/chat.postMessage' },
    [{ ...REFUSED, forMs: 30_000, reason: '429 chat.postMessage Retry-After 30 s' }],
  ],
  [
    'Slack: 200 and ratelimited',
    'slack',
    { status: 200, body: { ok: false, error: 'ratelimited' } },
    [{ ...REFUSED, forMs: undefined }],
  ],
  ['Slack: a good answer', 'slack', { status: 200, body: { ok: true } }, [{ kind: 'ok', scope: 'queue' }]],
]

describeVendors('Discord and Slack', CHAT)
