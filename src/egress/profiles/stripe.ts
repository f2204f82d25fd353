import { safeShape } from '../../limits/safe-shape.ts'
import { pauseFor, peerName, retryJob, slowDown } from '../dialects/build-feedback.ts'
import type { HttpDialect } from '../dialects/dialect.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { createProfile, over, STARTING_JITTER_MS } from './profile.ts'

/**
 * Stripe. It reports neither remaining units nor a reset: a refusal by its rate or concurrency limiter lowers the rate.
 * A `lock_timeout` is a 429 too, but only means that another request holds the object. docs.stripe.com/rate-limits,
 * docs.stripe.com/error-codes
 */
const stripeDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  if (answer.status !== 429) return feedbackOfStatus(answer, signals)
  const code = bodyText(answer.body, 'error', 'code') || answer.code
  if (code === 'lock_timeout') return [retryJob({ reason: '429 lock_timeout', source: 'body' }, signals.wait)]
  if (signals.wait) return [pauseFor(429, signals.wait)]
  const limiter = field(answer, 'stripe-rate-limited-reason')
  const because = { reason: `429${peerName(limiter ?? code)}`, source: limiter ? 'x-ratelimit' : 'status' } as const
  return [slowDown(because), retryJob(because)]
}

/**
 * Stripe. The shape is the limit of one endpoint, 25 requests per second, which is also that of a sandbox. A live
 * account has 100 per second over all endpoints.
 */
export const stripe = createProfile({
  name: 'stripe',
  dialect: over('http', stripeDialect),
  rules: [],
  shape: safeShape({ quota: 25, windowMs: 1000, jitterMs: STARTING_JITTER_MS, burst: 1 }),
  read: { on: '2026-11-21', at: 'https://docs.stripe.com/rate-limits' },
})
