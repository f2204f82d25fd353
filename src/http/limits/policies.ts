import type { LimitAnswer } from '../../limits/answer.ts'
import type { Limit } from '../../limits/limit.ts'
import type { LimitKey } from '../../limits/limit-keys.ts'
import type { Limiter } from '../../limits/limiter.ts'
import type { Policy } from '../words/policy.ts'

/** Fields tell windows in whole seconds: a shorter one would look like a much lower rate. */
const LEAST_WINDOW_MS = 1000

/**
 * What fields tell of the limits. Of one in shadow that would have refused they tell nothing, since it does not; neither
 * of one that Redis did not decide about.
 */
export function policiesOf(
  limiters: readonly Limiter[],
  keys: readonly LimitKey[],
  answers: readonly LimitAnswer[],
  bucket: string | undefined,
): readonly Policy[] | Promise<readonly Policy[]> {
  const told = answers.filter((answer) => !answer.wouldRefuse && !answer.undecided)
  const rules = told.map(({ policy }) => {
    const at = limiters.findIndex(({ name }) => name === policy)
    return (limiters[at] as Limiter).ruleOf(keys[at] as LimitKey)
  })
  const policies = (known: readonly Limit[]) => told.map((answer, i) => policyOf(answer, known[i] as Limit, bucket))
  return rules.some((rule) => rule instanceof Promise) ? Promise.all(rules).then(policies) : policies(rules as Limit[])
}

function policyOf(answer: LimitAnswer, limit: Limit, bucket: string | undefined): Policy {
  const { policy, remaining, allowed, retryAfterMs } = answer
  const { windowMs = 0 } = limit
  return {
    name: policy,
    quota: answer.limit,
    remaining,
    windowMs: windowMs >= LEAST_WINDOW_MS ? windowMs : undefined,
    ...(allowed ? { resetAtMs: nextUnitAtMs(answer, limit) } : { resetMs: retryAfterMs }),
    unit: limit.algorithm === 'concurrency' ? 'concurrent-requests' : 'requests',
    bucket,
  }
}

/**
 * When more is left than now, ms since 1970 on Redis's clock; undefined where all is. Units of a bucket come one by one, the
 * last of them when it is full; of windows it is the end, by which all of them have come.
 */
function nextUnitAtMs(answer: LimitAnswer, { algorithm, intervalMs = 0 }: Limit): number | undefined {
  const missing = answer.limit - answer.remaining
  // A place comes when somebody leaves, and nobody knows when.
  if (missing <= 0 || algorithm === 'concurrency') return undefined
  // `resetAt` is rounded up: without that ms an hour is told as 3600 s, and not as 3601.
  return answer.resetAt.getTime() - 1 - (missing - 1) * intervalMs
}
