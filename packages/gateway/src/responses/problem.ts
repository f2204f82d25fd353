import { STATUS_CODES } from 'node:http'
import { checkArgument, SluiceError } from 'sluice/internal'
import type { HttpResponse } from '../middleware.ts'
import { fieldName, type Policy, resetSeconds, tightest, wholeUnits } from './policy.ts'
import { DEFAULT_FORMS, type HeaderForm, rateLimitFields } from './rate-limit-fields.ts'
import { MAX_DELAY_S, retryAfterSeconds } from './retry-after.ts'

/**
 * The problem types of draft-ietf-httpapi-ratelimit-headers-10, section 5, and the one that adds nothing to the status.
 */
export type ProblemKind = 'quota-exceeded' | 'temporary-reduced-capacity' | 'abnormal-usage-detected' | 'about:blank'

/** The content of a response that refuses. */
export interface ProblemTerms {
  readonly status: number
  readonly kind: ProblemKind
  /** The same for all problems of a kind. Default: the kind's; for 'about:blank' the status's. */
  readonly title?: string | undefined
  /** For people, about this problem. It must not reveal anything that the caller must not know. */
  readonly detail: string
  /** The true wait, ms. Default: 1000 for 429 and 503, which always say when to retry; otherwise not reported. */
  readonly retryAfterMs?: number | undefined
  /** Names of policies. */
  readonly violatedPolicies?: readonly string[] | undefined
  /** Default: that of the policy among `policies` that is closest to exhaustion, the violated ones first. */
  readonly limit?: number | undefined
  readonly remaining?: number | undefined
  /**
   * The limits reported in fields. Pass them here, not in `headers`, so that `Retry-After` is never earlier than `t`.
   */
  readonly policies?: readonly Policy[] | undefined
  /** Default: only 'draft-10'. */
  readonly forms?: readonly HeaderForm[] | undefined
  /** A URI reference of the requested resource. */
  readonly instance?: string | undefined
  /** More fields, by name in lower case. Those of the problem take precedence. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** More members of the body. Those of the problem take precedence. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined
}

/** A request that is refused, as its caller is told. */
export class ProblemError extends SluiceError {
  readonly terms: ProblemTerms

  /** @param detail for the caller: nothing confidential */
  constructor(status: number, detail: string, terms: Partial<ProblemTerms> = {}) {
    super(detail)
    this.terms = { kind: 'about:blank', ...terms, status, detail }
  }
}

/** Clock and randomness; tests replace them. */
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
 * A response of `application/problem+json` (RFC 9457) that must not be cached. If there is a time to retry, it has
 * `Retry-After` in whole seconds, jittered upwards, the same number as `retry_after` in the body, and the true wait as
 * `retryAfterMs`, in whole ms, rounded up, at least 1. `Retry-After` is never earlier than the true wait or any `t` of
 * `RateLimit`: policies that are neither used up nor violated are sent without their `t`.
 */
export function problemResponse(
  terms: ProblemTerms,
  { nowMs = Date.now(), random = Math.random }: Given = {},
): HttpResponse {
  checkArgument(typeof terms === 'object' && terms !== null, 'problemResponse: its terms', 'an object', terms)
  const { status, forms = DEFAULT_FORMS } = terms
  const policies = reportedPolicies(terms)
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
  // Under overload most responses are built here, and spreading costs as much as encoding the JSON.
  return {
    status,
    headers: terms.headers ? { ...terms.headers, ...headers } : headers,
    body: JSON.stringify(terms.extra ? { ...terms.extra, ...body } : body),
  }
}

/** `JSON.stringify` leaves out undefined members. */
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

/**
 * Keeps only the resets of violated or used-up policies: another reset may be hours away, and is not the time to retry.
 */
function reportedPolicies({ policies = [], violatedPolicies = [] }: ProblemTerms): Policy[] {
  return policies.map((policy) => {
    const isCause = (policy.remaining !== undefined && policy.remaining < 1) || violatedPolicies.includes(policy.name)
    return isCause ? policy : { ...policy, resetMs: undefined, resetAtMs: undefined }
  })
}

function wholeMs(ms: number): number {
  return Math.min(Math.max(1, Math.ceil(ms) || 1), MAX_DELAY_S * 1000)
}
