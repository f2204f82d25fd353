import type { HttpAnswer } from '../answer.ts'
import { bodyList, bodyText } from './body.ts'
import { field, parseCount } from './field.ts'
import { type QuotaFields, type QuotaSignal, readQuotaFields } from './quota-signal.ts'
import { readRateLimit } from './rate-limit.ts'
import { readWait, type Wait } from './wait.ts'

/** Signals in the header fields and the problem document of an answer, whatever server sent it. */
export interface HttpSignals {
  readonly wait?: Wait
  /** The RateLimit fields first, then those of the older families. */
  readonly quotas: readonly QuotaSignal[]
  readonly problem?: Problem
}

/** Fields that only one vendor has. */
export interface VendorFields {
  /** In the form of a reset; read after `Retry-After`. */
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

/** Problem types (RFC 9457) of draft-ietf-httpapi-ratelimit-headers 09 to 11. */
type ProblemType = 'quota-exceeded' | 'temporary-reduced-capacity' | 'abnormal-usage-detected'

interface Problem {
  readonly type: ProblemType
  /** Names of policies. */
  readonly violated: readonly string[]
}

const BASE = 'https://iana.org/assignments/http-problem-types#'
const TYPES: readonly string[] = [
  'quota-exceeded',
  'temporary-reduced-capacity',
  'abnormal-usage-detected',
] satisfies ProblemType[]

/** The problem that the body names, if it is about rate limits. The example of draft 09 has `policy-violations`. */
function readProblem({ body }: HttpAnswer): Problem | undefined {
  const uri = bodyText(body, 'type')
  const type = uri.startsWith(BASE) ? uri.slice(BASE.length) : ''
  if (!TYPES.includes(type)) return undefined
  const names = [...bodyList(body, 'violated-policies'), ...bodyList(body, 'policy-violations')]
  return { type: type as ProblemType, violated: names.filter((name) => typeof name === 'string') }
}
