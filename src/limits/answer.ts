import type { Decision } from './decision.ts'
import type { Lease } from './lease.ts'

/** What a limiter says of one request. */
export interface LimitAnswer {
  readonly allowed: boolean
  /** Units that may pass at once: the burst of a bucket, the limit of a window. */
  readonly limit: number
  /** Whole units that are left now. */
  readonly remaining: number
  /** 0 where it is allowed; else when to try again, whole ms, at least 1. */
  readonly retryAfterMs: number
  /** The same as a time, on Redis's clock: the stored one, so that answers that follow each other tell the same. Where it is refused. */
  readonly retryAt?: Date
  /** When all units are there again, if nobody takes any. On Redis's clock. */
  readonly resetAt: Date
  /** The name of the limit that this is about: of several, the one that bound. */
  readonly policy: string
  /** True where only the mode lets it pass: enforced, it would have been refused. */
  readonly wouldRefuse?: true
  /** True where Redis did not decide: it was away, and `onError` did. */
  readonly undecided?: true
  /** True where the key shares its state with others, because the limit has as many keys as it may (`maxKeys`). */
  readonly sharesKey?: true
  /** What is held of a limit of `concurrency`: give it back. */
  readonly lease?: Lease
}

/** Of several limits, what each says of the request. */
export interface CombinedAnswer extends LimitAnswer {
  readonly answers: readonly LimitAnswer[]
}

/** An answer in the making. */
type Writable<T> = { -readonly [Field in keyof T]: T[Field] }

/** One answer of a decision, in the units of callers. @param part its number in the decision */
export function readAnswer(policy: string, limit: number, decision: Decision, part: number): LimitAnswer {
  const waitUs = decision.waitUs(part)
  // Of several limits this one may say yes where another one says no.
  const allowed = waitUs <= 0 || decision.allowed
  const answer: Writable<LimitAnswer> = {
    allowed,
    limit,
    remaining: decision.left(part),
    retryAfterMs: allowed ? 0 : Math.ceil(waitUs / 1000),
    resetAt: new Date(Math.ceil(decision.resetUs(part) / 1000)),
    policy,
  }
  if (!allowed) answer.retryAt = new Date(Math.ceil((decision.nowUs + waitUs) / 1000))
  if (waitUs < 0) answer.wouldRefuse = true
  if (decision.sharesKey) answer.sharesKey = true
  return answer
}

/** The answer to somebody whose turn has come. */
export function passed(policy: string, limit: number, remaining: number, resetUs: number): LimitAnswer {
  return { allowed: true, limit, remaining, retryAfterMs: 0, resetAt: new Date(Math.ceil(resetUs / 1000)), policy }
}

/** The answer of the limit that bound: it makes the caller wait longest, or leaves the least. */
export function bindingOf(answers: readonly LimitAnswer[]): LimitAnswer {
  return answers.reduce((one, other) => (binds(other, one) ? other : one))
}

function binds(one: LimitAnswer, other: LimitAnswer): boolean {
  if (one.allowed !== other.allowed) return !one.allowed
  if (!one.allowed) return one.retryAfterMs > other.retryAfterMs
  return one.remaining / one.limit < other.remaining / other.limit
}
