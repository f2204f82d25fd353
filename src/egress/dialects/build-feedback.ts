import {
  type Fatal,
  MAX_PAUSE_MS,
  oneLine,
  type Pause,
  type RetryJob,
  type SaidRate,
  type Scope,
  type Slow,
  type Source,
} from '../../feedback/feedback.ts'
import type { Wait } from '../signals/wait.ts'

/** The longest name, chosen by the downstream, in a reason. */
const MAX_NAME = 60
/** The decrease of AIMD, as in AWS's adaptive retries (beta of CUBIC, RFC 9438 §4.6). */
const SLOW_FACTOR = 0.7

const CUT = ` (cut to ${MAX_PAUSE_MS / 3_600_000} h)`

/** Where feedback applies, and why. The scope defaults to the queue. */
export interface Because {
  readonly reason: string
  readonly source: Source
  readonly scope?: Scope
}

/** A pause whose length the downstream gave: hard, at most {@link MAX_PAUSE_MS}. */
export function pauseFor(status: number, wait: Wait, scope: Scope = 'queue'): Pause {
  return pauseMs(wait.ms, { reason: `${status} ${waitText(wait)}`, source: wait.source, scope })
}

/** A hard pause whose length the downstream or its documentation gives. */
export function pauseMs(forMs: number, because: Because): Pause {
  const cut = forMs > MAX_PAUSE_MS
  return {
    kind: 'pause',
    ...origin(because, cut ? CUT : ''),
    forMs: cut ? MAX_PAUSE_MS : Math.ceil(forMs),
    hard: true,
  }
}

/** A pause of unknown length. */
export function pauseUnknown(because: Because, hard = false): Pause {
  return { kind: 'pause', ...origin(because), forMs: undefined, hard }
}

export function slowDown(because: Because): Slow {
  return { kind: 'slow', ...origin(because), factor: SLOW_FACTOR }
}

export function slowTo(rate: SaidRate, because: Because): Slow {
  return { kind: 'slow', ...origin(because), rate }
}

export function retryJob(because: Because, wait?: Wait): RetryJob {
  const reason = wait ? `${because.reason} ${waitText(wait)}` : because.reason
  const cut = wait !== undefined && wait.ms > MAX_PAUSE_MS
  return {
    kind: 'retryJob',
    ...origin({ ...because, reason }, cut ? CUT : ''),
    ...(wait ? { afterMs: Math.min(wait.ms, MAX_PAUSE_MS) } : {}),
  }
}

export function fatal(because: Because): Fatal {
  return { kind: 'fatal', ...origin(because) }
}

/** A name chosen by the downstream, cut short, with a space before it; '' for none. */
export function peerName(name: string | undefined): string {
  const short = (name ?? '').slice(0, MAX_NAME).trim()
  return short && ` ${short}`
}

function waitText({ name, ms }: Wait): string {
  return `${name} ${ms / 1000} s`
}

function origin({ reason, source, scope = 'queue' }: Because, note = '') {
  return { scope, source, reason: oneLine(reason) + note }
}
