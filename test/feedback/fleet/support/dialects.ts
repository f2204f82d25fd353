import type { Form } from './messages.ts'
import type { BucketLevel } from './token-bucket.ts'

/** An answer of a vendor's server. */
export interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

export interface Refusal extends Answer {
  /** The time that it gives, ms; undefined where it gives none. */
  readonly waitMs?: number
}

/** How a vendor's server speaks, and which library asks it. */
export interface Dialect {
  readonly name: string
  readonly profile: string
  readonly form: Form
  readonly refuse: (level: BucketLevel) => Refusal
  /** Default: 200 with nothing to say. */
  readonly accept?: (level: BucketLevel) => Answer
}

const SECOND = 1000
/** Tokens, or points, of one call. */
const UNITS = 10

const count = (left: number) => String(Math.floor(left))
/** Whole seconds until a call is let in. */
const seconds = ({ freeInMs }: BucketLevel) => Math.ceil(freeInMs / SECOND)
/** The next whole second since 1970, and how far away it is. */
const nextSecond = ({ nowMs }: BucketLevel) => {
  const epochS = Math.floor(nowMs / SECOND) + 1
  return { epochS, waitMs: epochS * SECOND - nowMs }
}

function retryAfter(status: number, body?: unknown): Dialect['refuse'] {
  return (level) => ({
    ...{ status, body, waitMs: seconds(level) * SECOND },
    headers: { 'retry-after': String(seconds(level)) },
  })
}

const githubLimits = (level: BucketLevel, left = level.left) => ({
  ...{ 'x-ratelimit-limit': String(level.burst), 'x-ratelimit-remaining': count(left) },
  ...{ 'x-ratelimit-reset': String(nextSecond(level).epochS), 'x-ratelimit-resource': 'core' },
})

const draft08 = ({ burst, left, freeInMs }: BucketLevel) => ({
  'ratelimit-policy': `"default";q=${burst};w=1`,
  ratelimit: `"default";r=${count(left)};t=${Math.max(1, Math.ceil(freeInMs / SECOND))}`,
})

const discordLimits = ({ nowMs, burst, left, fullInMs }: BucketLevel) => ({
  ...{ 'x-ratelimit-limit': String(burst), 'x-ratelimit-remaining': count(left), 'x-ratelimit-bucket': 'abcd1234' },
  'x-ratelimit-reset': ((nowMs + fullInMs) / SECOND).toFixed(3),
  'x-ratelimit-reset-after': (fullInMs / SECOND).toFixed(3),
})

const openaiLimits = ({ burst, left, fullInMs }: BucketLevel) => ({
  ...{ 'x-ratelimit-limit-requests': '10000', 'x-ratelimit-remaining-requests': '9000' },
  ...{ 'x-ratelimit-reset-requests': '6ms', 'x-ratelimit-limit-tokens': String(burst * UNITS) },
  'x-ratelimit-remaining-tokens': count(left * UNITS),
  'x-ratelimit-reset-tokens': `${Math.ceil(fullInMs)}ms`,
})

const anthropicLimits = ({ nowMs, burst, left, fullInMs }: BucketLevel) => ({
  'anthropic-ratelimit-input-tokens-limit': String(burst * UNITS),
  'anthropic-ratelimit-input-tokens-remaining': count(left * UNITS),
  'anthropic-ratelimit-input-tokens-reset': new Date(nowMs + fullInMs).toISOString(),
})

const shopifyCost = ({ burst, left }: BucketLevel) => ({
  cost: {
    requestedQueryCost: UNITS,
    throttleStatus: { maximumAvailable: burst * UNITS, currentlyAvailable: left * UNITS, restoreRate: 400 },
  },
})

const PLAIN: readonly Dialect[] = [
  { name: 'Retry-After in seconds', profile: 'http', form: 'response', refuse: retryAfter(429) },
  {
    ...{ name: 'Retry-After as a date', profile: 'http', form: 'response' },
    refuse: (level) => {
      const { epochS, waitMs } = nextSecond(level)
      return { status: 429, headers: { 'retry-after': new Date(epochS * SECOND).toUTCString() }, waitMs }
    },
  },
  {
    ...{ name: 'retry-after-ms', profile: 'http', form: 'response' },
    refuse: ({ freeInMs }) => {
      const waitMs = Math.ceil(freeInMs) + 300
      return { status: 429, headers: { 'retry-after-ms': String(waitMs) }, waitMs }
    },
  },
  { name: '429 without a time', profile: 'http', form: 'response', refuse: () => ({ status: 429 }) },
  {
    ...{ name: 'RateLimit of draft 08, as Cloudflare sends it', profile: 'http', form: 'response' },
    refuse: (level) => ({ status: 429, headers: draft08({ ...level, left: 0 }), waitMs: SECOND }),
    accept: (level) => ({ status: 200, headers: draft08(level) }),
  },
]

const APIS: readonly Dialect[] = [
  {
    ...{ name: 'GitHub, the primary limit', profile: 'github', form: 'octokit' },
    refuse: (level) => ({
      ...{ status: 403, headers: githubLimits(level, 0), waitMs: nextSecond(level).waitMs },
      body: { message: 'API rate limit exceeded for user ID 1.' },
    }),
    accept: (level) => ({ status: 200, headers: githubLimits(level), body: {} }),
  },
  {
    ...{ name: 'GitHub, a secondary limit', profile: 'github', form: 'octokit' },
    refuse: retryAfter(403, { message: 'You have exceeded a secondary rate limit.' }),
  },
  {
    ...{ name: 'Discord', profile: 'discord', form: 'data' },
    refuse: (level) => {
      const waitMs = Math.ceil(level.freeInMs) + 300
      const body = { message: 'You are being rate limited.', retry_after: waitMs / SECOND, global: false }
      return { status: 429, headers: { ...discordLimits(level), 'x-ratelimit-scope': 'user' }, body, waitMs }
    },
    accept: (level) => ({ status: 200, headers: discordLimits(level), body: {} }),
  },
  {
    ...{ name: 'Shopify, REST', profile: 'shopify', form: 'data' },
    refuse: (level) => ({
      ...{ status: 429, body: { errors: 'Exceeded 2 calls per second' }, waitMs: seconds(level) * SECOND },
      headers: { 'x-shopify-shop-api-call-limit': '40/40', 'retry-after': seconds(level).toFixed(1) },
    }),
    accept: () => ({ status: 200, headers: { 'x-shopify-shop-api-call-limit': '5/40' }, body: {} }),
  },
  {
    ...{ name: 'Shopify, GraphQL', profile: 'shopify', form: 'data' },
    refuse: (level) => ({
      ...{ status: 200, waitMs: level.freeInMs },
      body: { errors: [{ message: 'Throttled', extensions: { code: 'THROTTLED' } }], extensions: shopifyCost(level) },
    }),
    accept: (level) => ({ status: 200, body: { data: {}, extensions: shopifyCost(level) } }),
  },
  {
    ...{ name: 'Stripe', profile: 'stripe', form: 'stripe' },
    refuse: () => ({
      ...{ status: 429, headers: { 'stripe-rate-limited-reason': 'endpoint-rate' } },
      body: { error: { code: 'rate_limit', type: 'invalid_request_error' } },
    }),
  },
  {
    ...{ name: 'Slack', profile: 'slack', form: 'response' },
    refuse: retryAfter(429, { ok: false, error: 'ratelimited' }),
  },
]

const MODELS_AND_CLOUDS: readonly Dialect[] = [
  {
    ...{ name: 'OpenAI', profile: 'openai', form: 'openai' },
    refuse: (level) => ({
      ...{ status: 429, headers: openaiLimits(level), waitMs: Math.ceil(level.fullInMs) },
      body: { error: { type: 'tokens', code: 'rate_limit_exceeded' } },
    }),
    accept: (level) => ({ status: 200, headers: openaiLimits(level), body: { usage: { total_tokens: UNITS } } }),
  },
  {
    ...{ name: 'Anthropic', profile: 'anthropic', form: 'openai' },
    refuse: (level) => ({
      ...{ status: 429, waitMs: seconds(level) * SECOND, body: { type: 'error', error: { type: 'rate_limit_error' } } },
      headers: { ...anthropicLimits(level), 'retry-after': String(seconds(level)) },
    }),
    accept: (level) => ({ status: 200, headers: anthropicLimits(level), body: {} }),
  },
  {
    ...{ name: 'AWS, a throttling exception', profile: 'aws', form: 'aws' },
    refuse: () => ({ status: 400, body: { __type: 'ThrottlingException', message: 'Rate exceeded' } }),
  },
  {
    ...{ name: 'AWS, 503 SlowDown', profile: 'aws', form: 'aws' },
    refuse: ({ freeInMs }) => {
      const waitMs = Math.ceil(freeInMs) + 300
      return { status: 503, headers: { 'x-amz-retry-after': String(waitMs) }, body: { __type: 'SlowDown' }, waitMs }
    },
  },
]

export const dialects: readonly Dialect[] = [...PLAIN, ...APIS, ...MODELS_AND_CLOUDS]
