/**
 * Reports of the downstream, in one normal form for all protocols. Times are durations from the arrival of the answer,
 * so that only Redis's clock matters.
 */

/**
 * What is paused or slowed: the whole queue, one of the shape's limits by name, or one group of its jobs: the job's
 * (`'group'`), or another.
 */
export type Scope = 'queue' | 'group' | { readonly limit: string } | { readonly group: string }

/** The values that {@link knownScope} accepts. */
export const SCOPES = "'queue', 'group', { limit: 'a name' } or { group: 'an id' }"

/**
 * The scope as given if it is one, otherwise `undefined`. Feedback for another scope, such as a few jobs, must not hold
 * all of them. No scope means the queue.
 */
export function knownScope(scope: unknown = 'queue'): Scope | undefined {
  if (scope === 'queue' || scope === 'group') return scope
  if (typeof scope !== 'object' || scope === null) return undefined
  const [[kind, name] = [], ...more] = Object.entries(scope)
  const isNamed = typeof name === 'string' && name !== '' && more.length === 0
  return isNamed && (kind === 'limit' || kind === 'group') ? (scope as Scope) : undefined
}

/** Origin of the feedback: a field of the answer, a rule of a profile, a default, or user code. */
export type Source =
  | 'retry-after'
  | 'ratelimit'
  | 'x-ratelimit'
  | 'body'
  | 'status'
  | 'smtp'
  | 'sqlstate'
  | 'error'
  | 'latency'
  | 'rule'
  | 'user'

/** Whether it is a group that is paused or slowed. */
export function isOfGroup(scope: Scope): boolean {
  return scope === 'group' || (typeof scope === 'object' && 'group' in scope)
}

/** A rate as in a shape. */
export interface SaidRate {
  /** Units of cost. */
  readonly limit: number
  /** ms */
  readonly period: number
}

interface Reported {
  readonly scope: Scope
  readonly source: Source
  /** One line for people and logs; text from a downstream cannot break out of it (see {@link oneLine}). */
  readonly reason: string
}

/** The call succeeded. Reports the answer's data about the quota. */
export interface Ok extends Reported {
  readonly kind: 'ok'
  /** Units left. */
  readonly remaining?: number
  /** ms until the quota is refilled. */
  readonly resetMs?: number
  /** The quota of the downstream's policy: the rate never exceeds it. */
  readonly policyRate?: SaidRate
  /** Actual cost of the call. */
  readonly costUsed?: number
}

/** Nothing may depart for a while. */
export interface Pause extends Reported {
  readonly kind: 'pause'
  /** ms from now; undefined if the answer gives no duration: then a default, which doubles with each such pause. */
  readonly forMs: number | undefined
  /** The downstream asked for it explicitly: afterwards one job probes before the others follow. */
  readonly hard: boolean
  /** The destination cannot be reached at all, whatever the job: one such failure is enough evidence. */
  readonly about?: 'destination'
  /** The connection broke during the call, which may have taken effect: a job with a single attempt is not retried. */
  readonly mayBeDone?: true
}

/** The rate is too high: either factor or rate is given. */
export interface Slow extends Reported {
  readonly kind: 'slow'
  /** Multiplies the current rate, > 0 and < 1. */
  readonly factor?: number
  readonly rate?: SaidRate
  /** Duration, ms; without it, until the rate has climbed back. */
  readonly ttlMs?: number
}

/** Too many calls at once: either limit or factor is given. */
export interface Concurrency extends Reported {
  readonly kind: 'concurrency'
  /** Maximum number of running jobs. */
  readonly limit?: number
  /** Multiplies the number of running jobs, > 0 and < 1; it rises again in steps as calls succeed. */
  readonly factor?: number
  /** ms */
  readonly ttlMs?: number
}

/** Only this job must be retried; no statement about others. */
export interface RetryJob extends Reported {
  readonly kind: 'retryJob'
  /** Minimum delay, ms; undefined: the job's own backoff. */
  readonly afterMs?: number
}

/** This job can never succeed. */
export interface Fatal extends Reported {
  readonly kind: 'fatal'
}

export type Feedback = Ok | Pause | Slow | Concurrency | RetryJob | Fatal

/** Longest pause, ms: a downstream can report anything. Longer pauses are cut to this, as their reason mentions. */
export const MAX_PAUSE_MS = 86_400_000

const MAX_REASON = 200

/** Text from a downstream, as part of a reason: one line of printable characters, limited in length. */
export function oneLine(text: string): string {
  const line = text.replace(/[^\x20-\x7e\u00a0-\uffff]+/g, ' ').trim()
  return line.length > MAX_REASON ? `${line.slice(0, MAX_REASON - 1)}…` : line
}
