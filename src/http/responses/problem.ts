import { STATUS_CODES } from 'node:http'
import type { Answer } from '../door.ts'
import { fieldName, type Policy, resetSeconds, tightest, wholeUnits } from './policy.ts'
import { DEFAULT_FORMS, type HeaderForm, rateLimitFields } from './rate-limit-fields.ts'
import { MAX_DELAY_S, retryAfterSeconds } from './retry-after.ts'

/** The problem types of draft-ietf-httpapi-ratelimit-headers-10, section 5, and the one that says no more than the status. */
export type ProblemKind = 'quota-exceeded' | 'temporary-reduced-capacity' | 'abnormal-usage-detected' | 'about:blank'

/** What an answer says that refuses. */
export interface ProblemTerms {
  readonly status: number
  readonly kind: ProblemKind
  /** The same one for all problems of a kind. Default: the kind's; for 'about:blank' the status's. */
  readonly title?: string | undefined
  /** For people, of this one. It must hold nothing that the caller may not know. */
  readonly detail: string
  /** How long it truly takes, ms. Default: 1000 for 429 and 503, which always say when to come again; else not told. */
  readonly retryAfterMs?: number | undefined
  /** Names of policies. */
  readonly violatedPolicies?: readonly string[] | undefined
  /** Default: of the policy among `policies` that is closest to its end, the violated ones first. */
  readonly limit?: number | undefined
  readonly remaining?: number | undefined
  /** What is told of limits in fields. Give them here and not in `headers`, and `Retry-After` is never earlier than `t`. */
  readonly policies?: readonly Policy[] | undefined
  /** Default: 'draft-10' alone. */
  readonly forms?: readonly HeaderForm[] | undefined
  /** A URI reference of what was asked for. */
  readonly instance?: string | undefined
  /** More fields, by name in lower case. Those of the problem come before them. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** More members of the body. Those of the problem come before them. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined
}

/** Time and chance; tests hold them. */
export interface Given {
  /** ms since 1970. Default: now. */
  readonly nowMs?: number
  /** At least 0, below 1. */
  readonly random?: () => number
}

const TYPE_BASE = 'https://iana.org/assignments/http-problem-types#'
const TITLES: Readonly<Record<Exclude<ProblemKind, 'about:blank'>, string>> = {
  'quota-exceeded': 'Quota exceeded',
  'temporary-reduced-capacity': 'Temporary reduced capacity',
  'abnormal-usage-detected': 'Abnormal usage detected',
}
const DEFAULT_RETRY_MS = 1000

/**
 * An answer of `application/problem+json` (RFC 9457), which nobody may keep. With a time to come again it has
 * `Retry-After` in whole seconds, jittered upwards, the same number as `retry_after` in the body, and the true time as
 * `retryAfterMs`, in whole ms, rounded up, at least 1. `Retry-After` is never earlier than the true time nor than any `t`
 * of `RateLimit`: policies that neither are used up nor stand in the way go without their `t`.
 */
export function problemAnswer(terms: ProblemTerms, { nowMs = Date.now(), random = Math.random }: Given = {}): Answer {
  const { status, forms = DEFAULT_FORMS } = terms
  const policies = toldPolicies(terms)
  const retryAfterMs = terms.retryAfterMs ?? (status === 429 || status === 503 ? DEFAULT_RETRY_MS : undefined)
  const headers = rateLimitFields(policies, forms, nowMs)
  let retryAfterS: number | undefined
  if (retryAfterMs !== undefined) {
    const notBeforeS = Math.max(0, ...policies.map((policy) => resetSeconds(policy, nowMs) ?? 0))
    retryAfterS = retryAfterSeconds(Math.max(retryAfterMs, notBeforeS * 1000), random)
    headers['retry-after'] = String(retryAfterS)
  }
  headers['content-type'] = 'application/problem+json'
  headers['cache-control'] = 'no-store'
  const body = bodyOf(terms, nowMs, retryAfterMs, retryAfterS)
  // In overload most answers are these, and what is spread costs as much as the JSON.
  return {
    status,
    headers: terms.headers ? { ...terms.headers, ...headers } : headers,
    body: JSON.stringify(terms.extra ? { ...terms.extra, ...body } : body),
  }
}

/** What is undefined is not told. */
function bodyOf(terms: ProblemTerms, nowMs: number, retryAfterMs: number | undefined, retryAfterS: number | undefined) {
  const { kind, status, detail, instance, violatedPolicies, policies = [] } = terms
  const violated = policies.filter(({ name }) => violatedPolicies?.includes(name))
  const shown = tightest(violated.length > 0 ? violated : policies, nowMs)
  const limit = terms.limit ?? shown?.quota
  const remaining = terms.remaining ?? shown?.remaining
  return {
    type: kind === 'about:blank' ? kind : `${TYPE_BASE}${kind}`,
    title: terms.title ?? (kind === 'about:blank' ? STATUS_CODES[status] : TITLES[kind]),
    status,
    detail,
    instance,
    'violated-policies': violatedPolicies?.map(fieldName),
    limit: limit === undefined ? undefined : wholeUnits(limit),
    remaining: remaining === undefined ? undefined : wholeUnits(remaining),
    retryAfterMs: retryAfterMs === undefined ? undefined : wholeMs(retryAfterMs),
    retry_after: retryAfterS,
  }
}

/** With the resets of those alone that are why: another one's may be hours away, and is no time to come again. */
function toldPolicies({ policies = [], violatedPolicies = [] }: ProblemTerms): Policy[] {
  return policies.map((policy) => {
    const isWhy = (policy.remaining !== undefined && policy.remaining < 1) || violatedPolicies.includes(policy.name)
    return isWhy ? policy : { ...policy, resetMs: undefined, resetAtMs: undefined }
  })
}

function wholeMs(ms: number): number {
  return Math.min(Math.max(1, Math.ceil(ms) || 1), MAX_DELAY_S * 1000)
}
