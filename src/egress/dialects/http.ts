import type { Feedback } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import { type HttpSignals, readHttpSignals, type VendorFields } from '../signals/http-signals.ts'
import type { Wait } from '../signals/wait.ts'
import { fatal, pauseFor, pauseMs, pauseUnknown, retryJob, slowDown, slowTo } from './build-feedback.ts'
import type { HttpDialect } from './dialect.ts'
import { concurrencyOf, okOfQuotas, policyRate, waitOfQuotas } from './quota-feedback.ts'

/**
 * The shortest pause after `abnormal-usage-detected`, whatever time was given: ten minutes, because people must act.
 */
const ABNORMAL_PAUSE_MS = 600_000

/** Likely to succeed later, and no sign about the rate. */
const TRANSIENT = [408, 425]
/**
 * Missing or wrong credentials, and conflicts with other requests: a retry may succeed, with a new token or after the
 * other request, or never. They are ordinary failures: the job's `attempts` decide.
 */
const UNDECIDED = [401, 403, 407, 409, 423]
/** A time given with these applies to this job: a lock or conflict ends, or the body fits again (RFC 9110 §15.5.14). */
const RETRIED_WHEN_TOLD = [409, 413, 423]
/** Not implemented, or not for this version of HTTP: no retry changes that. */
const NEVER = [501, 505]

/**
 * Any HTTP server that follows standards and conventions: `Retry-After` in all its forms, then `RateLimit`, then
 * `X-RateLimit`; status codes for the rest.
 */
export const httpDialect: HttpDialect = (answer) => feedbackOfStatus(answer, readHttpSignals(answer))

/** As {@link httpDialect}, with fields of one vendor. */
export function httpDialectWith(vendor: VendorFields): HttpDialect {
  return (answer) => feedbackOfStatus(answer, readHttpSignals(answer, vendor))
}

/** The meaning of an answer's status, with the signals that came with it. */
export function feedbackOfStatus(answer: HttpAnswer, signals: HttpSignals): readonly Feedback[] {
  const { status } = answer
  if (status >= 200 && status < 400) {
    return [...okOfQuotas(status, signals.quotas), ...concurrencyOf(status, signals.quotas)]
  }
  if (status === 429) return throttled(answer, signals)
  if (status === 503 || status === 529) return overloaded(answer, signals)
  return failed(status, signals.wait)
}

/** The downstream refuses because of a quota: a pause of the given length. */
export function throttled({ status }: HttpAnswer, signals: HttpSignals): readonly Feedback[] {
  const wait = signals.wait ?? waitOfQuotas(signals)
  const atOnce = concurrencyOf(status, signals.quotas)
  const type = signals.problem?.type
  if (type === 'abnormal-usage-detected') {
    const forMs = Math.max(wait?.ms ?? 0, ABNORMAL_PAUSE_MS)
    return [pauseMs(forMs, { reason: `${status} ${type}`, source: 'body' }), ...atOnce]
  }
  if (wait) return [pauseFor(status, wait), ...atOnce]
  const reason = type ? `${status} ${type}` : String(status)
  return [pauseUnknown({ reason, source: type ? 'body' : 'status' }, type === 'quota-exceeded'), ...atOnce]
}

/** The downstream is overloaded: a pause if it gives a time, otherwise a lower rate. It may send its reduced policy. */
function overloaded({ status }: HttpAnswer, { wait, quotas, problem }: HttpSignals): readonly Feedback[] {
  const isReduced = problem?.type === 'temporary-reduced-capacity'
  const rate = isReduced ? policyRate(quotas.filter(({ unit }) => unit === 'requests')) : undefined
  const because = { reason: String(status), source: 'status' } as const
  const lower = rate && slowTo(rate, { reason: `${status} ${problem?.type}`, source: 'ratelimit' })
  if (wait) return [pauseFor(status, wait), ...(lower ? [lower] : [])]
  return [lower ?? slowDown(because), retryJob(because)]
}

function failed(status: number, wait: Wait | undefined): readonly Feedback[] {
  const because = { reason: String(status), source: 'status' } as const
  if (RETRIED_WHEN_TOLD.includes(status) && wait) return [retryJob(because, wait)]
  if (!(status >= 400 && status < 600) || UNDECIDED.includes(status)) return []
  const isFatal = status < 500 ? !TRANSIENT.includes(status) : NEVER.includes(status)
  return [isFatal ? fatal(because) : retryJob(because, wait)]
}
