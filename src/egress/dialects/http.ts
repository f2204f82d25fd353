import type { Feedback } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import { type HttpSignals, readHttpSignals, type VendorFields } from '../signals/http-signals.ts'
import type { Wait } from '../signals/wait.ts'
import type { HttpDialect } from './dialect.ts'
import { concurrencyOf, okOfQuotas, policyRate, waitOfQuotas } from './quota-feedback.ts'
import { fatal, pauseFor, pauseMs, pauseUnknown, retryJob, slowDown, slowTo } from './said.ts'

/** `abnormal-usage-detected`: nobody comes back sooner, whatever time was given. Ten minutes: people have to look. */
const ABNORMAL_PAUSE_MS = 600_000

/** May well succeed later, and tells nothing of the rate. */
const TRANSIENT = [408, 425]
/**
 * Missing or wrong credentials, and conflicts with what others do: another try can succeed, after a new token or the
 * other's end, or never. They are failures as any other: the job's `attempts` decide.
 */
const UNDECIDED = [401, 403, 407, 409, 423]
/** A time beside these is for this job alone: a lock or conflict ends, or its body has room (RFC 9110 §15.5.14). */
const RETRIED_WHEN_TOLD = [409, 413, 423]
/** Not implemented, and not for this version of HTTP: no later try changes that. */
const NEVER = [501, 505]

/**
 * Any HTTP server that keeps to the standards and customs: `Retry-After` in all its forms, then `RateLimit`, then
 * `X-RateLimit`; status codes for the rest.
 */
export const httpDialect: HttpDialect = (answer) => feedbackOfStatus(answer, readHttpSignals(answer))

/** As {@link httpDialect}, with fields of one vendor. */
export function httpDialectWith(vendor: VendorFields): HttpDialect {
  return (answer) => feedbackOfStatus(answer, readHttpSignals(answer, vendor))
}

/** What an answer's status means, with the signals that came with it. */
export function feedbackOfStatus(answer: HttpAnswer, signals: HttpSignals): readonly Feedback[] {
  const { status } = answer
  if (status >= 200 && status < 400) {
    return [...okOfQuotas(status, signals.quotas), ...concurrencyOf(status, signals.quotas)]
  }
  if (status === 429) return throttled(answer, signals)
  if (status === 503 || status === 529) return overloaded(answer, signals)
  return failed(status, signals.wait)
}

/** The peer refuses because of a quota: a pause, as long as was given. */
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

/** The peer is overloaded: until the time given, else more slowly. It may send the lower policy that it has for now. */
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
