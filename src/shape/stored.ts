import { isSingleton, type QueueLimit, splitQueueLimits } from '../limits/queue-limits.ts'
import { decodeRate, type RateSchedule, type StoredRate } from '../limits/schedule.ts'
import type { ShapeMode } from '../mode.ts'
import { formatRate, type Rate } from '../rate.ts'
import { type Durability, decodeDurability } from './durability.ts'
import { decodeGroups, type GroupDefaults } from './groups.ts'
import { decodeReservedPlaces, type ReservedPlaces } from './reserved-places.ts'
import { decodeField, type Overflow, type RampUp, type ShapeValue, type StoredValue } from './shape.ts'

/** One run-time change of a shape, with its author, time and reason. */
export interface OverrideEntry {
  readonly value: ShapeValue | null
  readonly by: string
  readonly reason: string
  readonly setAt: Date
  readonly until?: Date
}

/** What a process declared for one field. */
export interface DeclaredEntry {
  readonly value: ShapeValue
  readonly by: string
  readonly version?: number
}

/** The current shape, and the origin of its values. */
export interface EffectiveShape {
  /** With a schedule, the fastest of its rates. */
  readonly rate?: string
  readonly schedule?: RateSchedule
  readonly burst: number
  readonly capacity?: number
  readonly capacityHorizonMs?: number
  readonly reservedPlaces?: ReservedPlaces
  /** Undefined means `reject`. */
  readonly overflow?: Overflow
  readonly overflowTo?: string
  readonly maxWaitMs?: number
  /** Undefined means `wait`. */
  readonly onClosed?: 'wait' | 'refuse'
  readonly concurrency?: number
  readonly groups?: GroupDefaults
  readonly priorityAgeingMs?: number
  readonly limits?: readonly QueueLimit[]
  readonly mode: ShapeMode
  readonly maxLatenessMs?: number
  readonly horizonMs?: number
  readonly onStateLoss: 'hold' | 'burst'
  readonly durability?: Required<Durability>
  readonly rampUp?: RampUp
  /** Number of departures kept. */
  readonly audit?: number
  /** How often the shape has changed since it was first stored. */
  readonly revision: number
  readonly pausedUntil?: Date
  readonly pauseReason?: string
  readonly declared: Readonly<Record<string, DeclaredEntry>>
  readonly overrides: Readonly<Record<string, OverrideEntry>>
}

/**
 * The part of the field `feedback` read in TypeScript; `lua/feedback/feedback.lua` owns the rest. Times are ms,
 * intervals µs.
 */
export interface StoredFeedback {
  /** Consecutive pauses without a given duration. */
  readonly pauses?: number
  readonly pace?: { readonly interval: number; readonly quietMs: number }
  readonly slow?: { readonly interval: number; readonly until: number }
  readonly quota?: { readonly interval: number; readonly until: number }
  /** `wall`: set if the limit follows from refusals; it then rises as calls succeed. */
  readonly concurrency?: { readonly limit: number; readonly until: number; readonly wall?: number }
  /** The rate rises after a pause. */
  readonly ramp?: object
  /** Refusals that may concern single jobs only. */
  readonly doubt?: object
  readonly last?: Readonly<Record<string, unknown>>
}

/** Identifies a shape and its revision. */
export interface ShapeIdentity {
  readonly id: string
  readonly revision: string
}

/** Whether the first is an earlier revision of the second. */
export function isOlder(shape: ShapeIdentity, other: ShapeIdentity): boolean {
  return shape.id === other.id && Number(shape.revision) < Number(other.revision)
}

type Writable<T> = { -readonly [Field in keyof T]: T[Field] }

/** Fields returned as stored, if present. */
const NUMBERS = [
  'capacity',
  'capacityHorizonMs',
  'maxWaitMs',
  'concurrency',
  'priorityAgeingMs',
  'maxLatenessMs',
  'horizonMs',
  'audit',
] as const

/** The hash `…:meta:shape` as Redis returned it: a process remembers it, and restores it if Redis loses it. */
export class StoredShape implements ShapeIdentity {
  readonly #fields: ReadonlyMap<string, string>
  #limits: readonly QueueLimit[] | undefined
  #feedback: StoredFeedback | undefined
  #schedule: RateSchedule | undefined

  /** `id:revision` */
  readonly identity: string
  /** @param stored alternating names and values, as in replies of scripts, or values by name */
  constructor(stored: readonly string[] | Readonly<Record<string, string>>) {
    const fields = fieldsOf(stored)
    this.#fields = fields
    this.identity = `${fields.get('born')}:${fields.get('rev')}`
  }

  get id(): string {
    return this.#fields.get('born') as string
  }

  get revision(): string {
    return this.#fields.get('rev') as string
  }

  get rate(): Rate | undefined {
    const text = this.#fields.get('rate')
    if (text === undefined) return undefined
    const [limit, periodMs] = JSON.parse(text) as [number, number]
    return { limit, periodMs }
  }

  /** A rate that follows the clock. */
  get schedule(): RateSchedule | undefined {
    const text = this.#fields.get('rate')
    if (!text?.endsWith(']]')) return undefined
    this.#schedule ??= decodeRate(JSON.parse(text) as StoredRate) as RateSchedule
    return this.#schedule
  }

  /** µs per unit of cost; undefined if departures are not paced: no rate, or one that is not enforced. */
  get pacedIntervalUs(): number | undefined {
    return this.mode === 'enforce' ? this.number('interval') : undefined
  }

  /** Whether departures have slots: a rate (its own or the downstream's), limits or groups exist and are enforced. */
  get isPaced(): boolean {
    const holds = this.#fields.has('interval') || this.#fields.has('limits') || this.#fields.has('groups')
    return this.mode === 'enforce' && holds
  }

  /** Whether departures have slots of limits, without a rate that spaces them. */
  get isLimitedOnly(): boolean {
    return this.isPaced && this.#fields.has('limits') && !this.#fields.has('interval')
  }

  get hasGroups(): boolean {
    return this.#fields.has('groups')
  }

  /** Whether waiting jobs may depart in another order than BullMQ's. */
  get ages(): boolean {
    return this.#fields.has('priorityAgeingMs')
  }

  /** The group settings, in their stored form. */
  get storedGroups(): string | undefined {
    return this.#fields.get('groups')
  }

  /** Whether groups have bounds of their own, or turns, that no claim of places covers. */
  get boundsGroups(): boolean {
    if (this.limits.some((limit) => limit.maxKeys !== undefined || isSingleton(limit))) return true
    if (['maxWaitMs', 'onClosed', 'overflow'].some((field) => this.#fields.has(field))) return true
    return this.#fields.get('groups')?.includes('"capacity":') === true
  }

  /** Whether it has limits that apply to the queue as a whole. */
  get isLimited(): boolean {
    return this.storedLimits !== undefined
  }

  get limits(): readonly QueueLimit[] {
    const text = this.#fields.get('limits')
    this.#limits ??= text === undefined ? [] : (decodeField('limits', text) as readonly QueueLimit[])
    return this.#limits
  }

  get durability(): Required<Durability> | undefined {
    const text = this.#fields.get('durability')
    return text === undefined ? undefined : decodeDurability(text)
  }

  get mode(): ShapeMode {
    return (this.#fields.get('mode') ?? 'enforce') as ShapeMode
  }

  /** The end of the meter's pause, µs on Redis's clock; 0 if none was set. */
  get pausedUntilUs(): number {
    return this.number('pausedUntil') ?? 0
  }

  /** Current downstream feedback. */
  get feedback(): StoredFeedback {
    this.#feedback ??= JSON.parse(this.#fields.get('feedback') ?? '{}') as StoredFeedback
    return this.#feedback
  }

  /** Whether feedback was ever received. */
  get isFed(): boolean {
    return this.#fields.has('feedback')
  }

  /** Whether one job probes, or is about to, before others follow. */
  get isProbing(): boolean {
    return this.#fields.has('probe')
  }

  /**
   * The limits of the queue as a whole, in the scripts' format: JSON. Without groups, limits with `by` belong to them
   * too.
   */
  get storedLimits(): string | undefined {
    const text = this.#fields.get('limits')
    return text !== undefined && this.hasGroups ? splitQueueLimits(text).queue : text
  }

  number(field: string): number | undefined {
    const text = this.#fields.get(field)
    return text === undefined ? undefined : Number(text)
  }

  /** Fields and values, flat, for the restore script. */
  flat(): string[] {
    return [...this.#fields].flat()
  }

  declared(): Record<string, DeclaredEntry> {
    const entries = JSON.parse(this.#fields.get('declared') ?? '{}') as Record<
      string,
      { value: StoredValue; by: string; version?: number }
    >
    return mapValues(entries, (entry, field) => ({ ...entry, value: decodeField(field, entry.value) }))
  }

  overrides(): Record<string, OverrideEntry> {
    type Entry = { value: StoredValue | null; by: string; reason: string; at: number; until?: number }
    const entries = JSON.parse(this.#fields.get('overrides') ?? '{}') as Record<string, Entry>
    return mapValues(entries, ({ value, by, reason, at, until }, field) => ({
      value: value === null ? null : decodeField(field, value),
      by,
      reason,
      setAt: new Date(at),
      ...(until === undefined ? {} : { until: new Date(until) }),
    }))
  }

  /** The readable form: with defaults, dates and rates as text. */
  effective(nowUs = Date.now() * 1000): EffectiveShape {
    const text = (field: string) => this.#fields.get(field)
    const [rate, reserved, pauseReason] = [this.rate, text('reservedPlaces'), text('pauseReason')]
    // Field by field: with very many queues, copying objects would be most of the work.
    const shape = {} as Writable<EffectiveShape>
    if (rate) shape.rate = formatRate(rate)
    const { schedule } = this
    if (schedule) shape.schedule = schedule
    shape.burst = this.number('burst') ?? 1
    for (const field of NUMBERS) {
      const value = this.number(field)
      if (value !== undefined) shape[field] = value
    }
    if (reserved) shape.reservedPlaces = decodeReservedPlaces(reserved)
    const [overflow, overflowTo] = [text('overflow'), text('overflowTo')]
    if (overflow) shape.overflow = overflow as Overflow
    if (overflowTo) shape.overflowTo = overflowTo
    const onClosed = text('onClosed')
    if (onClosed) shape.onClosed = onClosed as 'wait' | 'refuse'
    const { durability } = this
    if (durability) shape.durability = durability
    const rampUp = text('rampUp')
    if (rampUp) shape.rampUp = decodeField('rampUp', rampUp) as RampUp
    const groups = text('groups')
    if (groups) shape.groups = decodeGroups(groups)
    if (this.limits.length > 0) shape.limits = this.limits
    shape.mode = this.mode
    shape.onStateLoss = (text('onStateLoss') ?? 'hold') as 'hold' | 'burst'
    shape.revision = Number(this.revision)
    if (this.pausedUntilUs > nowUs) {
      shape.pausedUntil = new Date(this.pausedUntilUs / 1000)
      if (pauseReason) shape.pauseReason = pauseReason
    }
    shape.declared = this.declared()
    shape.overrides = this.overrides()
    return shape
  }
}

function fieldsOf(stored: readonly string[] | Readonly<Record<string, string>>): Map<string, string> {
  const fields = new Map<string, string>()
  if (isFlat(stored)) {
    for (let i = 0; i + 1 < stored.length; i += 2) fields.set(stored[i] as string, stored[i + 1] as string)
  } else {
    for (const field in stored) fields.set(field, stored[field] as string)
  }
  return fields
}

function isFlat(stored: readonly string[] | Readonly<Record<string, string>>): stored is readonly string[] {
  return Array.isArray(stored)
}

function mapValues<A, B>(entries: Record<string, A>, map: (entry: A, field: string) => B): Record<string, B> {
  const mapped: Record<string, B> = {}
  for (const field in entries) mapped[field] = map(entries[field] as A, field)
  return mapped
}
