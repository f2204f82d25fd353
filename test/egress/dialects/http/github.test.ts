import { NOW_DATE, NOW_S } from '../../signals/http-answer.ts'
import { describeVendors, FATAL, REFUSED, RETRY, type Row } from './vendor-rows.ts'

const IN_9_S = String(NOW_S + 9)

const github = (remaining: string) => ({
  'x-ratelimit-limit': '5000',
  'x-ratelimit-remaining': remaining,
  'x-ratelimit-used': '5000',
  'x-ratelimit-reset': IN_9_S,
  'x-ratelimit-resource': 'core',
  date: NOW_DATE,
})

const GITHUB: readonly Row[] = [
  [
    'GitHub REST: Retry-After first',
    'github',
    { status: 403, headers: { ...github('0'), 'retry-after': '30' } },
    [{ ...REFUSED, forMs: 30_000, source: 'retry-after' }],
  ],
  [
    'GitHub REST: primary limit, 403',
    'github',
    { status: 403, headers: github('0') },
    [{ ...REFUSED, forMs: 9000, source: 'x-ratelimit', reason: '403 primary limit core reset 9 s' }],
  ],
  ['GitHub REST: primary limit, 429', 'github', { status: 429, headers: github('0') }, [{ ...REFUSED, forMs: 9000 }]],
  [
    'GitHub REST: secondary limit, 403 with its message',
    'github',
    { status: 403, headers: github('4000'), body: { message: 'You have exceeded a secondary rate limit.' } },
    [{ ...REFUSED, forMs: 60_000, source: 'body' }],
  ],
  [
    'GitHub REST: secondary limit, 403 with its page',
    'github',
    { status: 403, body: { documentation_url: 'https://docs.github.com/x#about-secondary-rate-limits' } },
    [{ ...REFUSED, forMs: 60_000 }],
  ],
  [
    'GitHub REST: secondary limit, 403 with its message in the error',
    'github',
    { status: 403, text: 'You have triggered an abuse detection mechanism' },
    [{ ...REFUSED, forMs: 60_000 }],
  ],
  [
    'GitHub REST: secondary limit, 429',
    'github',
    { status: 429, headers: github('40') },
    [{ ...REFUSED, forMs: 60_000 }],
  ],
  [
    'GitHub REST: 403 without a limit is a permission',
    'github',
    { status: 403, headers: github('4000'), body: { message: 'Resource not accessible by integration' } },
    [FATAL],
  ],
  [
    'GitHub GraphQL: 200 and RATE_LIMITED',
    'github',
    { status: 200, headers: github('0'), body: { errors: [{ type: 'RATE_LIMITED' }] } },
    [{ ...REFUSED, forMs: 9000 }],
  ],
  [
    'GitHub REST: a good answer',
    'github',
    { status: 200, headers: github('42') },
    [{ kind: 'ok', scope: 'queue', remaining: 42, resetMs: 9000 }],
  ],
  ['GitHub REST: other statuses as HTTP has them', 'github', { status: 502 }, [RETRY]],
  [
    'X/Twitter: x-rate-limit-*, epoch seconds',
    'http',
    {
      status: 429,
      headers: { 'x-rate-limit-limit': '450', 'x-rate-limit-remaining': '0', 'x-rate-limit-reset': IN_9_S },
    },
    [{ ...REFUSED, forMs: 9000, source: 'x-ratelimit' }],
  ],
]

describeVendors('GitHub and X', GITHUB)
