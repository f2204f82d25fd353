import { CostTooHighError, InvalidCostError, InvalidLimitError } from '../errors.ts'
import type { LimitRef, Part } from './decision.ts'
import { type Algorithm, describeRule, encodeRule, type LimitRule, type LimitWire, quotaOf } from './definition.ts'
import {
  checkLimitName,
  controlKey,
  DEFAULT_LIMIT_PREFIX,
  encodeKey,
  type LimitKey,
  statePrefix,
} from './limit-keys.ts'
import type { LimiterOptions } from './limiter-options.ts'
import { partControls, partOfKey } from './spread-keys.ts'

/** Where the keys of a limit are stored: all of them, or those of one part of a spread limit. */
interface LimitPlace extends LimitRef {
  /** Prefix of the state keys. */
  readonly states: string
}

/** One tier of a limit, encoded for the scripts. */
export class Limit implements LimitPlace {
  readonly name: string
  /** For a spread limit, this holds the definition; its keys are stored under the control keys of its parts. */
  readonly control: string
  readonly wire: string
  readonly states: string
  /** Units that may pass at once. */
  readonly quota: number
  readonly algorithm: Algorithm
  /** How long a lease lasts, µs. */
  readonly leaseUs: number
  /** Buckets: the time between two units. ms, with fractions of a µs. */
  readonly intervalMs: number | undefined
  /** How long the full quota takes to refill: the window, or the time to refill a bucket. ms; not for `concurrency`. */
  readonly windowMs: number | undefined
  readonly #parts: readonly LimitPlace[] | undefined

  /**
   * @param tier its name, '' for a limit without tiers
   * @param parts the control keys of the parts of a spread limit
   */
  constructor(name: string, control: string, wire: LimitWire, tier: string, parts?: readonly string[]) {
    this.name = name
    this.control = control
    this.wire = JSON.stringify(wire)
    this.quota = quotaOf(wire)
    this.algorithm = wire.algorithm
    this.leaseUs = wire.window ?? 0
    this.intervalMs = wire.interval === undefined ? undefined : wire.interval / 1000
    this.windowMs = this.intervalMs === undefined ? windowMsOf(wire) : this.intervalMs * this.quota
    const states = statePrefix(wire.algorithm, tier)
    this.states = control + states
    this.#parts = parts?.map((part) => ({ name, control: part, wire: this.wire, states: part + states }))
  }

  /** Where a key is stored: the control key it shares with others, and its state key. @throws InvalidKeyError */
  placeOf(key: LimitKey): { readonly limit: LimitRef; readonly state: string } {
    const encoded = encodeKey(key)
    const limit = this.#parts ? (this.#parts[partOfKey(encoded)] as LimitPlace) : this
    return { limit, state: limit.states + encoded }
  }

  /** @throws InvalidCostError, CostTooHighError, InvalidKeyError */
  part(key: LimitKey, cost: number, lease?: string): Part {
    const fits = typeof cost === 'number' && Number.isFinite(cost) && cost > 0
    if (!fits || (this.algorithm === 'concurrency' && !Number.isInteger(cost))) {
      const expected = this.algorithm === 'concurrency' ? 'a whole number of leases' : 'a positive number'
      throw new InvalidCostError(`cost must be ${expected}; got ${cost}`)
    }
    if (cost > this.quota) throw new CostTooHighError(cost, this.quota, this.name)
    const { limit, state } = this.placeOf(key)
    return lease === undefined ? { limit, state, cost } : { limit, state, cost, lease }
  }
}

function windowMsOf({ algorithm, window }: LimitWire): number | undefined {
  return algorithm === 'concurrency' || window === undefined ? undefined : window / 1000
}

/** The rules of one name: its own and those of its tiers. */
export class LimitSet {
  readonly name: string
  readonly control: string
  readonly base: Limit
  /** The common definition of all users of the name, JSON. */
  readonly definition: string
  readonly #tiers: ReadonlyMap<string, Limit>

  /** @throws InvalidLimitError, InvalidRateError */
  constructor(options: LimiterOptions) {
    const { name, prefix = DEFAULT_LIMIT_PREFIX, mode, maxKeys, version, spread, tiers = {}, ...rule } = options
    this.name = checkLimitName(name)
    this.control = controlKey(prefix, name)
    const parts = spread && partControls(prefix, name)
    const limitOf = (ruled: LimitRule, tier: string) =>
      new Limit(name, this.control, { ...encodeRule(ruled, mode), maxKeys, version }, tier, parts)
    this.base = limitOf(rule, '')
    const entries = Object.entries(tiers)
    this.#tiers = new Map(entries.map(([tier, ruled]) => [tier, limitOf({ ...rule, ...ruled }, checkLimitName(tier))]))
    const described = entries.map(([tier, ruled]) => [tier, JSON.parse(describeRule({ ...rule, ...ruled }))])
    const more = { maxKeys, spread, tiers: entries.length === 0 ? undefined : Object.fromEntries(described) }
    this.definition = JSON.stringify({ ...JSON.parse(describeRule(rule)), ...more })
  }

  /** @throws InvalidLimitError for an unknown tier */
  ofTier(tier: string | undefined): Limit {
    if (tier === undefined) return this.base
    const found = this.#tiers.get(tier)
    if (found) return found
    const names = [...this.#tiers.keys()].map((one) => `'${one}'`).join(', ')
    throw new InvalidLimitError(`limit "${this.name}" has the tiers ${names}; got ${JSON.stringify(tier)}`)
  }
}
