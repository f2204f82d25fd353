import type { Decision } from './decision.ts'
import type { Lease } from './lease.ts'

/** A limiter's answer to one request. */
export interface LimitAnswer {
  readonly allowed: boolean
  /** Units that may pass at once: the burst of a bucket, the limit of a window. */
  readonly limit: number
  /** Whole units left now. */
  readonly remaining: number
  /** 0 if allowed, otherwise the wait before a retry: whole ms, at least 1. */
  readonly retryAfterMs: number
  /** When to retry, on Redis's clock. Derived from stored state, so that successive refusals agree. Only if refused. */
  readonly retryAt?: Date
  /** When all units are available again if no more are taken. On Redis's clock. */
  readonly resetAt: Date
  /** The name of this answer's limit; of several, the binding one. */
  readonly policy: string
  /** True if only the mode lets the request pass: `enforce` would refuse it. */
  readonly wouldRefuse?: true
  /** True if Redis was unavailable and `onError` decided. */
  readonly undecided?: true
  /** True if the key shares its state with others, because the limit already has `maxKeys` keys. */
  readonly sharesKey?: true
  /** The lease granted by a `concurrency` limit: release it. */
  readonly lease?: Lease
}

/** The answer to a request under several limits: the binding one, with each limit's own. */
export interface CombinedAnswer extends LimitAnswer {
  readonly answers: readonly LimitAnswer[]
}

/** One part of a decision as an answer, in the units of callers. @param part its index in the decision */
export function readAnswer(policy: string, limit: number, decision: Decision, part: number): LimitAnswer {
  const waitUs = decision.waitUs(part)
  // One of several limits may allow the request while another refuses it.
  const allowed = waitUs <= 0 || decision.allowed
  return {
    allowed,
    limit,
    remaining: decision.left(part),
    retryAfterMs: allowed ? 0 : Math.ceil(waitUs / 1000),
    resetAt: new Date(Math.ceil(decision.resetUs(part) / 1000)),
    policy,
    ...(allowed ? {} : { retryAt: new Date(Math.ceil((decision.nowUs + waitUs) / 1000)) }),
    ...(waitUs < 0 ? { wouldRefuse: true } : {}),
    ...(decision.sharesKey ? { sharesKey: true } : {}),
  }
}

/** The answer to a caller at its turn. */
export function passed(policy: string, limit: number, remaining: number, resetUs: number): LimitAnswer {
  return { allowed: true, limit, remaining, retryAfterMs: 0, resetAt: new Date(Math.ceil(resetUs / 1000)), policy }
}

/** The answer of the binding limit: the longest wait or, if all allow, the smallest share left. */
export function bindingOf(answers: readonly LimitAnswer[]): LimitAnswer {
  return answers.reduce((one, other) => (binds(other, one) ? other : one))
}

function binds(one: LimitAnswer, other: LimitAnswer): boolean {
  if (one.allowed !== other.allowed) return !one.allowed
  if (!one.allowed) return one.retryAfterMs > other.retryAfterMs
  return one.remaining / one.limit < other.remaining / other.limit
}
