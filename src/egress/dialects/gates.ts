import type { Feedback } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import type { HttpSignals } from '../signals/http-signals.ts'
import type { QuotaFields } from '../signals/quota-signal.ts'
import { pauseFor } from './build-feedback.ts'
import type { QuotaLimits } from './dialect.ts'
import { feedbackOfStatus, throttled } from './http.ts'
import { longestWait, ok, okPerLimit, waitOfQuotas } from './quota-feedback.ts'

/**
 * A gate: a named quota of a language model's API. The shape's limit for it has the same name, or the one in `quota`.
 */
export function gate(name: string, limit: string, remaining: string, reset: string): QuotaFields {
  return { name, unit: name === 'requests' ? 'requests' : 'tokens', limit, remaining, resets: [reset] }
}

/**
 * Reads several gates at once. A successful answer reports each of them separately, as a limit of the shape. A refused
 * call waits for the exhausted gates, or for all gates if none is: it may need more tokens than are left. With `quota`
 * the limits of these gates wait, and not the queue.
 * @param used the call's consumption, by gate name
 */
export function feedbackOfGates(
  answer: HttpAnswer,
  signals: HttpSignals,
  used: Readonly<Record<string, number | undefined>>,
  quota?: QuotaLimits,
): readonly Feedback[] {
  const { status } = answer
  if (status === 429) {
    const wait = signals.wait ?? waitOfQuotas(signals) ?? longestWait(signals.quotas)
    const refused = wait ? [pauseFor(429, wait)] : throttled(answer, signals)
    if (!quota) return refused
    return limitsOf(signals, quota).flatMap((limit) => refused.map((one) => ({ ...one, scope: { limit } })))
  }
  if (status < 200 || status >= 400) return feedbackOfStatus(answer, signals)
  const perLimit = okPerLimit(status, signals.quotas, used, quota)
  return perLimit.length > 0 ? perLimit : [ok(status)]
}

/** The exhausted gates, or all gates if the answer names none. */
function limitsOf({ quotas }: HttpSignals, quota: QuotaLimits): readonly string[] {
  const usedUp = quotas.flatMap(({ name = '', remaining }) => (remaining === 0 ? (quota[name] ?? []) : []))
  return [...new Set(usedUp.length > 0 ? usedUp : Object.values(quota))]
}
