import { gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { type Feedback, knownScope, MAX_PAUSE_MS, oneLine, type Pause, type SaidRate, SCOPES } from './feedback.ts'
import type { Found } from './source.ts'

/** 100 days: beyond that, the bucket cannot represent fractions of a microsecond. */
const LONGEST_MS = 8_640_000_000
const LEAST_FACTOR = 0.001

/**
 * The valid findings of a source: a faulty one is dropped, and affects neither the job nor the queue. A slowdown or a
 * limit without a number becomes a pause without a duration.
 * @param onWrong receives an error for each invalid finding
 */
export function sanitizeFindings(found: unknown, onWrong: (error: InvalidInputError) => void): readonly Found[] {
  if (!Array.isArray(found)) {
    onWrong(new InvalidInputError(`a feedback source must return a list of findings; got ${oneLine(gotText(found))}`))
    return []
  }
  return found.flatMap((one: Partial<Found> | null | undefined) => {
    if (!knownScope(one?.feedback?.scope)) {
      onWrong(new InvalidInputError(`scope must be ${SCOPES}; got ${oneLine(gotText(one?.feedback?.scope))}`))
      return []
    }
    const feedback = sanitizeFeedback(one?.feedback)
    const target = typeof one?.target === 'string' ? { target: one.target } : {}
    if (feedback) return { feedback, ...(one?.rule && { rule: one.rule }), ...target }
    onWrong(new InvalidInputError(`a finding must be { feedback } with a known kind; got ${oneLine(gotText(one))}`))
    return []
  })
}

/** One finding's feedback, or undefined if its kind is unknown. */
export function sanitizeFeedback(given: Feedback | null | undefined): Feedback | undefined {
  if (typeof given !== 'object' || given === null) return undefined
  const origin = {
    scope: knownScope(given.scope) ?? 'queue',
    source: given.source,
    reason: oneLine(String(given.reason)),
  } as const
  const { about, mayBeDone } = given as Partial<Pause>
  const unknownPause = { kind: 'pause', forMs: undefined, hard: false, ...origin } as const
  switch (given.kind) {
    case 'ok': {
      const { remaining, resetMs, policyRate: rate, costUsed } = given
      const policyRate = isRate(rate) ? rate : undefined
      const numbers = { remaining: finite(remaining), resetMs: length(resetMs), costUsed: finite(costUsed) }
      return { kind: 'ok', ...defined({ ...numbers, policyRate }), ...origin }
    }
    case 'pause':
      return {
        ...{ kind: 'pause', forMs: length(given.forMs, MAX_PAUSE_MS), hard: given.hard === true, ...origin },
        ...(about === 'destination' && { about }),
        ...(mayBeDone === true && { mayBeDone }),
      }
    case 'slow': {
      const ttlMs = defined({ ttlMs: length(given.ttlMs) })
      if (isRate(given.rate)) return { kind: 'slow', rate: given.rate, ...ttlMs, ...origin }
      const { factor = 0 } = given
      if (!(factor > 0 && factor < 1)) return unknownPause
      return { kind: 'slow', factor: Math.max(LEAST_FACTOR, factor), ...ttlMs, ...origin }
    }
    case 'concurrency': {
      const { limit = 0, factor = 0 } = given
      const ttlMs = defined({ ttlMs: length(given.ttlMs) })
      if (limit >= 1 && Number.isFinite(limit)) return { kind: 'concurrency', limit, ...ttlMs, ...origin }
      if (!(factor > 0 && factor < 1)) return unknownPause
      return { kind: 'concurrency', factor: Math.max(LEAST_FACTOR, factor), ...ttlMs, ...origin }
    }
    case 'retryJob':
      return { kind: 'retryJob', ...defined({ afterMs: length(given.afterMs) }), ...origin }
    case 'fatal':
      return { kind: 'fatal', ...origin }
    default:
      return undefined
  }
}

/** A duration, ms, limited to the longest one allowed. */
function length(value: unknown, longest = LONGEST_MS): number | undefined {
  if (typeof value !== 'number' || Number.isNaN(value)) return undefined
  return Math.min(Math.max(0, value), longest)
}

function finite(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}

function isRate(rate: SaidRate | undefined): rate is SaidRate {
  return rate != null && rate.limit > 0 && rate.period > 0 && rate.period / rate.limit <= LONGEST_MS
}

/** Without undefined fields. */
function defined<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never
}
