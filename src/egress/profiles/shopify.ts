import type { Feedback } from '../../feedback/feedback.ts'
import { safeShape } from '../../limits/safe-shape.ts'
import type { HttpAnswer } from '../answer.ts'
import { pauseFor, pauseUnknown, slowDown } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { ok } from '../dialects/quota-feedback.ts'
import { bodyAt, bodyList, bodyNumber, bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { clampReset } from '../signals/reset.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/** Buckets leak empty in 20 s on every plan, 40 at 2/s to 400 at 20/s: shopify.dev, REST Admin API rate limits. */
const REST_DRAIN_S = 20
/** Above this share, a bucket fills faster than it leaks. */
const NEARLY_FULL = 0.8

/** Shopify's REST Admin API (the bucket in `X-Shopify-Shop-Api-Call-Limit`) and its GraphQL one (cost in the body). */
const shopifyDialect: HttpDialect = (answer) => graphql(answer) ?? rest(answer)

/** `32/40`: 32 of 40 used, and 2 leak every second. */
function rest(answer: HttpAnswer): readonly Feedback[] {
  const { status } = answer
  const bucket = bucketOf(answer)
  const signals = readHttpSignals(answer)
  if (!bucket) return feedbackOfStatus(answer, signals)
  const { used, capacity, leakPerS } = bucket
  const freeMs = clampReset((Math.max(used - capacity + 1, 1) / leakPerS) * 1000)
  const full = `bucket ${used}/${capacity}`
  if (status === 429) {
    return [pauseFor(429, signals.wait ?? { ms: freeMs, name: `${full}, free in`, source: 'x-ratelimit' })]
  }
  if (status < 200 || status >= 400) return feedbackOfStatus(answer, signals)
  const remaining = Math.max(capacity - used, 0)
  const policyRate = { limit: leakPerS, period: 1000 }
  const report = ok(status, { remaining, resetMs: freeMs, policyRate }, { source: 'x-ratelimit' })
  return used > NEARLY_FULL * capacity
    ? [report, slowDown({ reason: `${status} ${full}`, source: 'x-ratelimit' })]
    : [report]
}

function bucketOf(answer: HttpAnswer) {
  const text = field(answer, 'x-shopify-shop-api-call-limit') ?? ''
  const [, used, capacity] = /^(\d{1,9})\/([1-9]\d{0,8})$/.exec(text) ?? []
  if (used === undefined || capacity === undefined) return undefined
  return { used: Number(used), capacity: Number(capacity), leakPerS: Number(capacity) / REST_DRAIN_S }
}

/**
 * A query costs points, which come back at `restoreRate` per second; a refused one is 200 with an error `THROTTLED`.
 */
function graphql(answer: HttpAnswer): readonly Feedback[] | undefined {
  const { status, body } = answer
  if (status !== 200) return undefined
  const cost = bodyAt(body, 'extensions', 'cost')
  const available = bodyNumber(cost, 'throttleStatus', 'currentlyAvailable')
  const restorePerS = bodyNumber(cost, 'throttleStatus', 'restoreRate') || undefined
  const requested = bodyNumber(cost, 'requestedQueryCost')
  if (bodyList(body, 'errors').some((error) => bodyText(error, 'extensions', 'code') === 'THROTTLED')) {
    if (available === undefined || restorePerS === undefined || requested === undefined) {
      return [pauseUnknown({ reason: '200 THROTTLED', source: 'body' }, true)]
    }
    const ms = clampReset((Math.max(requested - available, 0) / restorePerS) * 1000)
    return [pauseFor(200, { ms, name: `THROTTLED, ${available} of ${requested} points, restored in`, source: 'body' })]
  }
  if (available === undefined || restorePerS === undefined) return undefined
  const figures = {
    remaining: Math.floor(available),
    resetMs: clampReset(1000 / restorePerS),
    policyRate: { limit: restorePerS, period: 1000 },
    costUsed: bodyNumber(cost, 'actualQueryCost') ?? requested,
  }
  return [ok(status, figures, { source: 'body' })]
}

/**
 * Shopify's Admin API, REST and GraphQL. The shape is that of REST for one app in one store on a standard plan: a
 * bucket of 40 that leaks 2 per second (4 on Advanced, 20 on Plus). GraphQL counts points, 100 per second on a standard
 * plan: give its queue `{ rate: '100/s', burst }`, and each job its points as `cost`, at most `burst`.
 */
export const shopify = createProfile({
  name: 'shopify',
  dialect: over('http', shopifyDialect),
  rules: [],
  shape: safeShape({ model: 'token-bucket', rate: '2/s', burst: 40, jitterMs: STARTING_JITTER_MS }),
  read: { on: '2026-11-22', at: 'https://shopify.dev/docs/api/admin-rest/usage/rate-limits' },
})
