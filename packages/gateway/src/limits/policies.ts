import type { Limit } from 'sluice/internal'
import type { LimitAnswer, Limiter, LimitKey } from 'sluice/limits'
import type { Policy } from '../responses/policy.ts'

/** A limiter's times are rounded up to whole ms: with this subtracted, an hour is reported as 3600 s, not 3601. */
const ROUNDED_UP_MS = 1
/** Fields report windows in whole seconds: a shorter one would look like a much lower rate. */
const LEAST_WINDOW_MS = 1000

/**
 * The policies that are reported for the limits. A limit in shadow mode that would have refused is not reported, nor is
 * one that Redis did not decide.
 */
export function policiesOf(
  limiters: readonly Limiter[],
  keys: readonly LimitKey[],
  answers: readonly LimitAnswer[],
  bucket: string | undefined,
): readonly Policy[] | Promise<readonly Policy[]> {
  const reported = answers.filter((answer) => !answer.wouldRefuse && !answer.undecided)
  const rules = reported.map(({ policy }) => {
    const at = limiters.findIndex(({ name }) => name === policy)
    return (limiters[at] as Limiter).ruleOf(keys[at] as LimitKey)
  })
  const clockMs = limiters[0]?.nowMs
  const policies = (known: readonly Limit[]) =>
    reported.map((answer, i) => ({ ...policyOf(answer, known[i] as Limit, bucket), clockMs }))
  return rules.some((rule) => rule instanceof Promise) ? Promise.all(rules).then(policies) : policies(rules as Limit[])
}

function policyOf(answer: LimitAnswer, limit: Limit, bucket: string | undefined): Policy {
  const { policy, remaining } = answer
  const { windowMs = 0 } = limit
  return {
    name: policy,
    quota: answer.limit,
    remaining,
    windowMs: windowMs >= LEAST_WINDOW_MS ? windowMs : undefined,
    ...resetOf(answer, limit),
    unit: limit.algorithm === 'concurrency' ? 'concurrent-requests' : 'requests',
    bucket,
  }
}

/** From the stored instant: computed from now, it would differ in each response. */
function resetOf(answer: LimitAnswer, limit: Limit): Pick<Policy, 'resetAtMs' | 'resetMs'> {
  const { allowed, retryAt, retryAfterMs } = answer
  if (allowed) return { resetAtMs: nextUnitAtMs(answer, limit) }
  return retryAt ? { resetAtMs: retryAt.getTime() - ROUNDED_UP_MS } : { resetMs: retryAfterMs }
}

/**
 * When more units are available than now, ms since 1970 on Redis's clock; undefined if none are used. A bucket refills
 * unit by unit, until it is full; all units of a window are back at its end.
 */
function nextUnitAtMs(answer: LimitAnswer, { algorithm, intervalMs = 0 }: Limit): number | undefined {
  const missing = answer.limit - answer.remaining
  // A place becomes free when a lease is released, at an unknown time.
  if (missing <= 0 || algorithm === 'concurrency') return undefined
  return answer.resetAt.getTime() - ROUNDED_UP_MS - (missing - 1) * intervalMs
}
