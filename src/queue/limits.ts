import { checkCosts } from '../admission/job-options.ts'
import { InvalidCostError, InvalidLimitError } from '../errors.ts'
import {
  checkLimitField,
  encodeLimitOverride,
  LIFTED,
  type LimitOverride,
  type LimitValues,
  limitInForce,
} from '../limits/own-values.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'
import { checkGroupId, checkKeyValue } from '../shape/groups.ts'
import type { Attribution, ShapeStore } from '../shape/store.ts'
import { dateOfUs, type GroupState, readEntries, type StoredEntry } from './groups.ts'
import type { ShapeChange } from './options.ts'

/**
 * One value that a limit counts by: an object with the value of each name, `{ group: 'acme', host: 'api.example.com'
 * }`, or, for a limit by one name, that value alone. For a pool, the name of a member.
 */
export type LimitValueKey = string | number | Readonly<Record<string, string | number>>

/**
 * The state of a limit with `by` for one value of its keys, or of one member of a pool (`keys` is then `{ member }`),
 * at one moment of Redis's clock.
 */
export interface LimitState {
  readonly limit: string
  /** The value of each of its keys. */
  readonly keys: Readonly<Record<string, string>>
  readonly at: Date
  /** The current settings of the value: the limit of the shape, and its own. Empty if it has no limit. */
  readonly inForce: LimitValues
  /**
   * Its own settings, with author, time, reason and end. By feedback `limited` (held until then), `slowed` (a bound of
   * its rate) and `paced` (the rate that `adapt` found).
   */
  readonly overrides: GroupState['overrides']
  /** Units left now; undefined if it has no limit. */
  readonly remaining: number | undefined
  /** ms until one unit conforms, 0 if one does now; undefined if that depends on the end of a job. */
  readonly retryAfterMs: number | undefined
  /** When all units are available again; undefined if it has no limit. */
  readonly resetAt: Date | undefined
  /** Whether its schedule lets nothing leave now; then when it opens. */
  readonly closed: boolean
  readonly opensAt: Date | undefined
  /** Of a limit with `warmUp`: the day of the plan that the value has reached, and how many the plan has; else undefined. */
  readonly day: number | undefined
  readonly days: number | undefined
  /** How many lanes wait for it: the jobs of a group with equal values are one. Where limits have no keys, 0. */
  readonly waitingLanes: number
}

/** The result of `lua/views/limit.lua`. */
export interface LimitView {
  readonly at: string
  readonly fields: Readonly<Record<string, StoredEntry>>
  readonly lanes: number
  readonly left?: string
  readonly most?: number
  /** µs */
  readonly wait?: string
  readonly reset?: string
  /** While its schedule lets nothing leave. */
  readonly opens?: string
  readonly day?: number
  readonly days?: number
}

/** The settings of one queue's limits for single values of their keys. */
export class QueueLimitValues {
  readonly #name: string
  readonly #store: ShapeStore

  constructor(name: string, store: ShapeStore) {
    this.#name = name
    this.#store = store
  }

  async set(name: string, key: LimitValueKey, override: LimitOverride, change: ShapeChange): Promise<void> {
    const limit = await this.#limit(name)
    const { by, reason, ttlMs } = change
    if (ttlMs !== undefined && override.day !== undefined) {
      throw new InvalidLimitError(`the day of a plan has no end: leave ttlMs out, or set a rate; got ${ttlMs}`)
    }
    await this.#change(limit, keysOf(limit, key), encodeLimitOverride(limit, override), { by, reason }, ttlMs)
  }

  async clear(name: string, key: LimitValueKey, fields: readonly string[], who: Attribution): Promise<void> {
    for (const field of fields) checkLimitField(field)
    const limit = await this.#limit(name)
    const lifted = fields.length > 0 ? fields : LIFTED
    const cleared = Object.fromEntries(lifted.map((field) => [field, { clear: true }]))
    await this.#change(limit, keysOf(limit, key), cleared, who)
  }

  /** @throws InvalidCostError, InvalidLimitError */
  async charge(name: string, key: LimitValueKey, cost: number): Promise<void> {
    checkCosts({ cost })
    if (cost === undefined) throw new InvalidCostError('chargeLimit needs a cost > 0; got none')
    const limit = await this.#limit(name)
    if (limit.algorithm === 'concurrency') {
      throw new InvalidLimitError(`limit "${name}" counts running jobs: it cannot be charged`)
    }
    if (!(await this.#store.chargeLimit(name, keysOf(limit, key), cost))) throw this.#unknown(name)
  }

  async state(name: string, key: LimitValueKey): Promise<LimitState> {
    const limit = await this.#limit(name)
    const keys = keysOf(limit, key)
    const view = await this.#store.view<LimitView>('limit', { name, keys })
    if (!view) throw this.#unknown(name)
    return limitStateOf(limit, keys, view)
  }

  /** By the shape in Redis: another program may have changed it. */
  async #limit(name: string): Promise<QueueLimit> {
    await this.#store.readMeter()
    const limit = this.#keyed().find((one) => one.name === name)
    if (!limit) throw this.#unknown(name)
    return limit
  }

  #keyed(): readonly QueueLimit[] {
    return this.#store.memory.stored?.limits.filter(({ by, pool }) => by ?? pool) ?? []
  }

  #unknown(name: unknown): InvalidLimitError {
    const names = this.#keyed().map((limit) => limit.name)
    const known = names.length > 0 ? `it has ${names.join(', ')}` : 'it has none'
    return new InvalidLimitError(`queue "${this.#name}" has no limit ${JSON.stringify(name)} with by or pool; ${known}`)
  }

  async #change(
    { name }: QueueLimit,
    keys: Readonly<Record<string, string>>,
    fields: object,
    who: Attribution,
    ttlMs?: number,
  ): Promise<void> {
    if (!(await this.#store.changeLimit(name, keys, fields, who, ttlMs))) throw this.#unknown(name)
  }
}

/** Turns a view into the public state. */
export function limitStateOf(limit: QueueLimit, keys: Readonly<Record<string, string>>, view: LimitView): LimitState {
  const atMs = Number(view.at) / 1000
  const overrides = readEntries(view.fields, atMs)
  const values = Object.fromEntries(Object.entries(overrides).map(([field, { value }]) => [field, value]))
  return {
    ...{ limit: limit.name, keys, at: new Date(atMs), overrides, waitingLanes: view.lanes },
    inForce: limit.warmUp ? ofDay(view, values) : limitInForce(limit, values),
    remaining: view.left === undefined ? undefined : Math.max(0, Math.floor(Number(view.left))),
    retryAfterMs: retryAfterMsOf(view),
    resetAt: dateOfUs(view.reset),
    ...{ closed: view.opens !== undefined, opensAt: dateOfUs(view.opens), day: view.day, days: view.days },
  }
}

/** The quota of the day of a plan, and whether that is held. */
function ofDay({ most }: LimitView, { held }: LimitOverride): LimitValues {
  return { ...(most === undefined ? {} : { rate: `${most}/day` }), ...(held ? { held } : {}) }
}

function retryAfterMsOf({ left, wait }: LimitView): number | undefined {
  if (left === undefined) return 0
  return wait === undefined ? undefined : Math.ceil(Number(wait) / 1000)
}

/**
 * The value of each name that a limit counts by, as stored with jobs.
 * @throws InvalidLimitError, InvalidGroupError
 */
function keysOf({ name, by, pool }: QueueLimit, key: unknown): Readonly<Record<string, string>> {
  if (pool) return { member: memberOf(name, pool, key) }
  const names = [by ?? []].flat()
  const [only = ''] = names
  const isAlone = names.length === 1 && !(typeof key === 'object' && key !== null && Object.hasOwn(key, only))
  const given = isAlone ? { [only]: key } : key
  const isComplete =
    typeof given === 'object' && given !== null && Object.keys(given).toSorted().join() === names.toSorted().join()
  if (!isComplete) {
    const expected = `{ ${names.map((one) => `${one}: …`).join(', ')} }`
    throw new InvalidLimitError(
      `limit "${name}" counts by ${names.join(' and ')}: its key must be ${expected}; got ${JSON.stringify(key) ?? String(key)}`,
    )
  }
  return Object.fromEntries(names.map((one) => [one, keyValue(one, (given as Readonly<Record<string, unknown>>)[one])]))
}

function memberOf(name: string, pool: readonly string[], key: unknown): string {
  const given = (key as { readonly member?: unknown } | null | undefined)?.member ?? key
  const member = pool.find((one) => one === given)
  if (member !== undefined) return member
  const got = JSON.stringify(key) ?? String(key)
  throw new InvalidLimitError(`the pool of limit "${name}" has no member ${got}; it has ${pool.join(', ')}`)
}

function keyValue(name: string, value: unknown): string {
  if (name !== 'group') return checkKeyValue(name, value)
  checkGroupId(value)
  return value as string
}
