/**
 * What the other side said, in one normal form, whatever protocol it came in. Times are lengths from the moment the answer
 * came, so that no clock but Redis's decides anything.
 */

/** What is held or slowed: the whole queue, or one of the shape's limits by its name. */
export type Scope = 'queue' | { readonly limit: string }

/** Who says so: a field of the answer, a rule of a profile, a default, or the user's own code. */
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

/** A rate as a shape has it. */
export interface SaidRate {
  /** Units of cost. */
  readonly limit: number
  /** ms */
  readonly period: number
}

interface Said {
  readonly scope: Scope
  readonly source: Source
  /** One line for people and logs; holds nothing that a peer could use to write more than that (see {@link oneLine}). */
  readonly reason: string
}

/** It worked; what the answer tells of the quota it was taken from. */
export interface Ok extends Said {
  readonly kind: 'ok'
  /** Units left. A hint, never a grant. */
  readonly remaining?: number
  /** ms until there is more. */
  readonly resetMs?: number
  /** The quota of the peer's policy: the rate is never above it. */
  readonly policyRate?: SaidRate
  /** What the call has cost. */
  readonly costUsed?: number
}

/** Nothing may leave for a while. */
export interface Pause extends Said {
  readonly kind: 'pause'
  /** ms from now; undefined where the answer names no time: then as long as pauses without a time last, doubling. */
  readonly forMs: number | undefined
  /** The other side said so by name: afterwards one job probes before the others follow. */
  readonly hard: boolean
  /** The destination can not be reached at all, whatever the job: one such failure is evidence enough. */
  readonly about?: 'destination'
  /**
   * The connection broke while the call was under way, which may have had its effect: a job that may be tried only once
   * is not tried again.
   */
  readonly mayBeDone?: true
}

/** The rate is too high: one of factor and rate. */
export interface Slow extends Said {
  readonly kind: 'slow'
  /** Multiplies the rate in force, > 0 and < 1. */
  readonly factor?: number
  readonly rate?: SaidRate
  /** ms that it holds for; without it until it has climbed back. */
  readonly ttlMs?: number
}

/** Too many at once: one of limit and factor. */
export interface Concurrency extends Said {
  readonly kind: 'concurrency'
  /** So many, no more. */
  readonly limit?: number
  /** Multiplies how many may run, > 0 and < 1; it rises again by steps as calls go well. */
  readonly factor?: number
  /** ms */
  readonly ttlMs?: number
}

/** Only this job has to come again; says nothing of others. */
export interface RetryJob extends Said {
  readonly kind: 'retryJob'
  /** ms, not before; undefined: the job's own backoff. */
  readonly afterMs?: number
}

/** This job can never succeed. */
export interface Fatal extends Said {
  readonly kind: 'fatal'
}

export type Feedback = Ok | Pause | Slow | Concurrency | RetryJob | Fatal

/** A peer can lie: no pause is longer, whatever it says (ms). Longer ones are cut to this, and their reason says so. */
export const MAX_PAUSE_MS = 86_400_000

const MAX_REASON = 200

/** What a peer sent, as part of a reason: one line of printable characters, and not too long. */
export function oneLine(text: string): string {
  const line = text.replace(/[^\x20-\x7e\u00a0-\uffff]+/g, ' ').trim()
  return line.length > MAX_REASON ? `${line.slice(0, MAX_REASON - 1)}…` : line
}
