import type { HttpAnswer } from '../answer.ts'
import { field, parseCount } from './field.ts'
import { type Problem, readProblem } from './problem.ts'
import { type QuotaFields, type QuotaSignal, readQuotaFields } from './quota-signal.ts'
import { readRateLimit } from './rate-limit.ts'
import { readWait, type Wait } from './wait.ts'

/** What the fields and the problem of an answer say, whichever server sent it. */
export interface HttpSignals {
  readonly wait?: Wait
  /** The RateLimit fields first, then those of the older families. */
  readonly quotas: readonly QuotaSignal[]
  readonly problem?: Problem
}

/** Fields that only one vendor has. */
export interface VendorFields {
  /** Read as resets are, after `Retry-After`. */
  readonly wait?: string
  /** Instead of the `X-RateLimit` and `X-Rate-Limit` families. */
  readonly quotas?: readonly QuotaFields[]
}

const FAMILIES: readonly QuotaFields[] = ['x-ratelimit', 'x-rate-limit'].map((family) => ({
  limit: `${family}-limit`,
  remaining: `${family}-remaining`,
  // A duration needs no clock, so Discord's Reset-After comes before its Reset.
  resets: [`${family}-reset-after`, `${family}-reset`],
}))

/** Reads the fields that many servers share, and those of one vendor. Never throws, whatever they hold. */
export function readHttpSignals(answer: HttpAnswer, vendor: VendorFields = {}): HttpSignals {
  const wait = readWait(answer, vendor.wait)
  const problem = readProblem(answer)
  return { quotas: readQuotas(answer, vendor.quotas), ...(wait ? { wait } : {}), ...(problem ? { problem } : {}) }
}

function readQuotas(answer: HttpAnswer, families = FAMILIES): QuotaSignal[] {
  // A cached answer reports an old quota, perhaps another client's.
  if (parseCount(field(answer, 'age'))) return []
  return [...readRateLimit(answer), ...families.flatMap((names) => readQuotaFields(answer, names) ?? [])]
}
