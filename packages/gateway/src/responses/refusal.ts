import {
  CannotStartInTimeError,
  CostTooHighError,
  failureKind,
  GroupFullError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidGroupError,
  InvalidJobIdError,
  InvalidKeyError,
  KeyInUseError,
  LimitExceededError,
  LimiterUnavailableError,
  NoGroupsError,
  QueueFullError,
  QueueUnavailableError,
  ScheduleClosedError,
  TooLargeError,
  TooManyKeysError,
  UnsupportedOptionError,
  WaitTimeoutError,
} from 'sluice/internal'
import type { HttpResponse } from '../middleware.ts'
import { type Given, type ProblemTerms, problemResponse } from './problem.ts'
import type { HeaderForm } from './rate-limit-fields.ts'

/** Where an error occurred. */
export interface RefusedAt {
  /** A URI reference of the requested resource. */
  readonly instance?: string | undefined
  /** The name of the policy that admits jobs; it differs from that of the policy by which they leave. */
  readonly policyName: string
  /** Whose quota it is; see {@link Policy.partitionKey}. */
  readonly partitionKey?: string | Uint8Array | undefined
  /** What the queue can hold, if known without asking Redis. */
  readonly capacity?: number | undefined
  /** Now on Redis's clock, ms since 1970. Default: the local one. */
  readonly clockMs?: number | undefined
  /** Default: only 'draft-10'. */
  readonly forms?: readonly HeaderForm[] | undefined
}

type Terms = Omit<ProblemTerms, 'instance' | 'forms'>

/** Roughly when Redis can be expected to answer again. */
const UNAVAILABLE_RETRY_MS = 5000
/** When to ask again for room for a key. */
const KEYS_RETRY_MS = 5000

/** Errors that callers themselves can cause. Other invalid input comes from the configuration. */
const CALLERS_MISTAKES = [
  InvalidGroupError,
  InvalidJobIdError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidKeyError,
  CostTooHighError,
  UnsupportedOptionError,
]

/**
 * The response to an error; undefined for an error of which nothing may be revealed (500).
 *
 * 429 if a caller's limit or a queue is full. 503 if Redis does not answer or cannot serve: never 429, which
 * would blame the caller, and never 2xx. 413 for more jobs than can ever fit, 422 for requests that can never work, and
 * for an Idempotency-Key that was used with other content; 409 for one whose first request is still running
 * (draft-ietf-httpapi-idempotency-key-header-07), and for a job whose keys have one.
 */
export function refusalResponse(error: unknown, at: RefusedAt, given?: Given): HttpResponse | undefined {
  const terms = termsOf(error, at)
  return terms && problemResponse({ ...terms, instance: at.instance, forms: at.forms }, given)
}

function termsOf(error: unknown, at: RefusedAt): Terms | undefined {
  if (!(error instanceof Error)) return undefined
  if (error instanceof GroupFullError) return groupFullTerms(error, at)
  if (error instanceof QueueFullError) return fullTerms(error, at)
  if (error instanceof CannotStartInTimeError) return lateTerms(error, at)
  if (error instanceof WaitTimeoutError) return termsOf(error.cause, at) ?? unavailableTerms(at.policyName, at)
  if (error instanceof LimitExceededError) return limitTerms(error)
  if (error instanceof TooManyKeysError) return keysTerms(error)
  if (error instanceof KeyInUseError) return keyInUseTerms(error)
  if (error instanceof QueueUnavailableError) {
    return { ...unavailableTerms(at.policyName, at), extra: { mayBeStored: error.mayBeStored } }
  }
  if (error instanceof LimiterUnavailableError) return unavailableTerms(error.limitName)
  if (error instanceof TooLargeError) return { ...mistakeTerms(413, error), limit: error.capacity }
  if (error instanceof IdempotencyConflictError) return mistakeTerms(422, error)
  if (error instanceof IdempotencyInFlightError) {
    return { ...mistakeTerms(409, error), retryAfterMs: error.retryAfterMs }
  }
  // Whether a queue has groups is up to its operator.
  if (error instanceof NoGroupsError) return undefined
  if (CALLERS_MISTAKES.some((mistake) => error instanceof mistake)) return mistakeTerms(422, error)
  // Errors of Redis from calls outside the library, such as BullMQ's `getJob`.
  return failureKind(error) ? unavailableTerms(at.policyName, at) : undefined
}

/** The places of a group are a quota of their own: its callers learn nothing of the others. */
function groupFullTerms(error: GroupFullError, at: RefusedAt): Terms {
  return fullTerms(error, { ...at, policyName: `${at.policyName}-group`, partitionKey: error.groupId }, 'group')
}

function fullTerms(error: QueueFullError, at: RefusedAt, what = 'queue'): Terms {
  const { capacity, depth, needed, paused, retryAfterMs } = error
  const { policyName: name, partitionKey, clockMs } = at
  const remaining = Math.max(0, capacity - depth)
  const several = needed > 1 ? `, ${needed} are needed` : ''
  return {
    status: 429,
    kind: 'quota-exceeded',
    detail: `The ${what} is full${paused ? ' and paused' : ''}: ${depth} of ${capacity} places are taken${several}.`,
    retryAfterMs,
    violatedPolicies: [name],
    policies: [{ name, quota: capacity, remaining, resetMs: retryAfterMs, clockMs, partitionKey }],
  }
}

function lateTerms(late: CannotStartInTimeError, { policyName }: RefusedAt): Terms {
  const { startsAt, mustStartBefore, maxWaitMs, retryAfterMs, capacity, depth } = late
  const bound = mustStartBefore ? `its deadline, ${mustStartBefore.toISOString()}` : `a wait of ${maxWaitMs} ms`
  return {
    status: 429,
    kind: 'quota-exceeded',
    detail:
      late instanceof ScheduleClosedError
        ? `The ${late.groupId !== undefined ? 'group' : late.limitName !== undefined ? 'limit' : 'queue'} is closed until ${startsAt.toISOString()}.`
        : `The job would start at ${startsAt.toISOString()}, later than ${bound}.`,
    retryAfterMs,
    violatedPolicies: [policyName],
    limit: capacity,
    remaining: capacity === undefined ? undefined : Math.max(0, capacity - depth),
    extra: { startsAt: startsAt.toISOString() },
  }
}

function limitTerms({ limitName, retryAfterMs }: LimitExceededError): Terms {
  return {
    status: 429,
    kind: 'quota-exceeded',
    detail: `Limit "${limitName}" would allow this request too late.`,
    retryAfterMs,
    violatedPolicies: [limitName],
  }
}

/** When a key is idle depends on the jobs of others. */
function keysTerms({ limitName }: TooManyKeysError): Terms {
  return {
    status: 503,
    kind: 'temporary-reduced-capacity',
    detail: `Limit "${limitName}" already has its maximum number of keys in use.`,
    retryAfterMs: KEYS_RETRY_MS,
    violatedPolicies: [limitName],
  }
}

/** Which job it is may be no business of the caller. */
function keyInUseTerms({ limitName, jobId }: KeyInUseError): Terms {
  const why = jobId === undefined ? 'the request has several' : 'one has not ended'
  const detail = `Limit "${limitName}" takes one job with the same keys at a time, and ${why}.`
  return { status: 409, kind: 'about:blank', detail, violatedPolicies: [limitName] }
}

/** Hides the messages of Redis and the system, which name hosts. */
function unavailableTerms(policyName: string, { capacity }: Partial<RefusedAt> = {}): Terms {
  return {
    status: 503,
    kind: 'temporary-reduced-capacity',
    detail: 'The store of limits and jobs cannot be reached, or cannot serve now.',
    retryAfterMs: UNAVAILABLE_RETRY_MS,
    violatedPolicies: [policyName],
    limit: capacity,
    remaining: 0,
  }
}

/** These messages are written for callers, and name only what they sent. */
function mistakeTerms(status: number, { message }: Error): Terms {
  return { status, kind: 'about:blank', detail: message }
}
