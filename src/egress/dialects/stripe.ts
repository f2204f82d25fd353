import { bodyText } from '../signals/body.ts'
import { field } from '../signals/field.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import type { HttpDialect } from './dialect.ts'
import { feedbackOfStatus } from './http.ts'
import { pauseFor, peerName, retryJob, slowDown } from './said.ts'

/**
 * Stripe. It reports neither what is left nor when it resets: its rate and concurrency limiters are answered by a lower
 * rate. A `lock_timeout` is a 429 too, but only means that another request holds the object.
 * docs.stripe.com/rate-limits, docs.stripe.com/error-codes
 */
export const stripeDialect: HttpDialect = (answer) => {
  const signals = readHttpSignals(answer)
  if (answer.status !== 429) return feedbackOfStatus(answer, signals)
  const code = bodyText(answer.body, 'error', 'code') || answer.code
  if (code === 'lock_timeout') return [retryJob({ reason: '429 lock_timeout', source: 'body' }, signals.wait)]
  if (signals.wait) return [pauseFor(429, signals.wait)]
  const limiter = field(answer, 'stripe-rate-limited-reason')
  const because = { reason: `429${peerName(limiter ?? code)}`, source: limiter ? 'x-ratelimit' : 'status' } as const
  return [slowDown(because), retryJob(because)]
}
