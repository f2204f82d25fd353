import fc from 'fast-check'
import { type Algorithm, encodeRule, type LimitRule, type LimitWire } from '../../../src/limits/definition.ts'
import type { Operation, Verb } from './replay.ts'

/** At no boundary of any window. */
export const START_US = 1_764_000_000_123_457

/** What happens to a limit, in its own measures: whatever the rate is, much of it is refused. */
export interface Event {
  readonly verb: Verb
  /** How long after the one before, in times that one unit takes to come back. */
  readonly wait: number
  /** Part of what may pass at once. */
  readonly share: number
  /** How far ahead, in times that all units take. */
  readonly ahead: number
}

export interface Story {
  readonly wire: LimitWire
  readonly events: readonly Event[]
}

/** Rules of an algorithm, as users write them. */
export function ruleOf(algorithm: Algorithm, periodsMs: readonly number[], most: number): fc.Arbitrary<LimitRule> {
  const limit = fc.integer({ min: 1, max: most })
  const period = fc.constantFrom(...periodsMs)
  if (algorithm === 'concurrency') {
    return fc.record({ algorithm: fc.constant(algorithm), concurrency: limit, leaseMs: period })
  }
  const rate = fc.record({ limit, period })
  if (algorithm === 'fixed-window') {
    return fc.record({ algorithm: fc.constant(algorithm), rate, align: fc.constantFrom('epoch', 'first') })
  }
  if (algorithm.startsWith('sliding')) return fc.record({ algorithm: fc.constant(algorithm), rate })
  return fc.record({ algorithm: fc.constant(algorithm), rate, burst: fc.integer({ min: 1, max: most }) })
}

/** A rule and what happens to its limit. No cost is above what may pass at once. */
export function storyOf(algorithm: Algorithm, verbs: readonly Verb[], length = 60): fc.Arbitrary<Story> {
  const event = fc.record({
    verb: fc.constantFrom(...verbs),
    wait: fc.oneof(fc.constantFrom(0, 0, 0, 1, 30), fc.double({ min: 0, max: 3, noNaN: true })),
    share: fc.oneof(fc.constantFrom(0, 0.1, 1), fc.double({ min: 0, max: 1, noNaN: true })),
    ahead: fc.constantFrom(0, 0, 0.1, 1, 3),
  })
  return fc.record({
    wire: ruleOf(algorithm, [7, 50, 1000, 60_000], 20).map((rule) => encodeRule(rule)),
    events: fc.array(event, { minLength: 1, maxLength: length }),
  })
}

/** @param decimals parts of a unit that costs come in */
export function operationsOf({ wire, events }: Story, decimals = 10): Operation[] {
  let now = START_US
  return events.map(({ verb, wait, share, ahead }, i) => {
    now += Math.round(wait * unitUs(wire))
    const parts = wire.algorithm === 'concurrency' ? 1 : decimals
    const cost = Math.max(1, Math.round(share * quotaOf(wire) * parts)) / parts
    const signed = verb === 'settle' && i % 2 === 0 ? -cost : cost
    // An extended or returned lease is one of the last.
    const lease = verb === 'extend' || verb === 'release' ? Math.max(0, i - 1 - (i % 3)) : i
    return { verb, now, cost: signed, ahead: Math.round(ahead * fullUs(wire)), lease }
  })
}

export function quotaOf({ burst, limit }: LimitWire): number {
  return (burst ?? limit) as number
}

/** µs in which one unit comes back. */
export function unitUs({ interval, window = 0, limit = 1 }: LimitWire): number {
  return Math.ceil(interval ?? window / limit)
}

/** µs in which all do. */
export function fullUs(wire: LimitWire): number {
  return wire.window ?? unitUs(wire) * quotaOf(wire)
}
