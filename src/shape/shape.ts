import { didYouMean } from '../call-options.ts'
import { InvalidShapeError } from '../errors.ts'
import { checkField, checkFields, type FieldCheck, numberFrom, oneOf, wholeFrom, wholeWithin } from '../field-check.ts'
import {
  decodeQueueLimits,
  encodeQueueLimits,
  groupLimitIn,
  type QueueLimit,
  stickyLimitIn,
} from '../limits/queue-limits.ts'
import { decodeRate, encodeRate, type RateSchedule, type StoredRate } from '../limits/schedule.ts'
import type { ShapeMode } from '../mode.ts'
import type { RateInput } from '../rate.ts'
import { type Durability, decodeDurability, encodeDurability } from './durability.ts'
import { checkPlacesOfGroups, decodeGroups, encodeGroups, type GroupDefaults } from './groups.ts'
import { decodeReservedPlaces, encodeReservedPlaces, type ReservedPlaces, reservedSum } from './reserved-places.ts'

/** The policy of a queue. Every field is optional; a field left out sets no limit. */
export interface Shape {
  /** `'50/s'`, `{ limit, period }` (ms), or `{ schedule, timeZone }`, which follows the clock. Default: jobs are not paced. */
  readonly rate?: RateInput | RateSchedule
  /** Units of cost that may leave back to back after idling. Default 1: even spacing. */
  readonly burst?: number
  /** Jobs that may wait, including delayed jobs and parents. Default: unbounded. */
  readonly capacity?: number
  /** Delayed jobs count towards `capacity` only if they are due within this many ms. */
  readonly capacityHorizonMs?: number
  /** Places reserved for important jobs: `{ 1: 50 }` reserves the last 50 for jobs of priority 1. */
  readonly reservedPlaces?: ReservedPlaces
  /** In a full queue: `reject` (default) refuses a new job; `drop-oldest` and `drop-lowest` drop a waiting one. */
  readonly overflow?: Overflow
  /** The queue that gets a dead letter for each dropped job. */
  readonly overflowTo?: string
  /** A job that would wait longer than this many ms is refused. */
  readonly maxWaitMs?: number
  /** While the scheduled rate of a queue, group or limit is 0: `wait` (default) accepts jobs; `refuse` refuses them until the schedule opens. */
  readonly onClosed?: 'wait' | 'refuse'
  /** Jobs that may run at once across all workers: BullMQ's global concurrency. */
  readonly concurrency?: number
  /** Defaults for each group; groups take turns. */
  readonly groups?: GroupDefaults
  /** A waiting job gains one priority level each time this many ms pass. */
  readonly priorityAgeingMs?: number
  /** Slow start after a pause: `{ from: 0.1, overMs: 60_000 }`. */
  readonly rampUp?: RampUp
  /** Further limits: other windows, other units, by group or key, or shared. */
  readonly limits?: readonly QueueLimit[]
  /** `enforce` (default); `shadow` only counts what it would hold or refuse; `off` does nothing. Pauses always apply. */
  readonly mode?: ShapeMode
  /** A job that could start more than this many ms late goes back and gets a new slot. Default 100. */
  readonly maxLatenessMs?: number
  /** Minimum look-ahead: how many ms before its slot a job may reach a worker. Default 50. */
  readonly horizonMs?: number
  /** After a loss of state: `hold` (default) keeps the rate; `burst` allows a full burst at once. */
  readonly onStateLoss?: 'hold' | 'burst'
  /** An add succeeds only when this many replicas have the job: `{ replicas: 1, timeoutMs: 500 }`. */
  readonly durability?: Durability
  /** How many departures to keep for `sluice audit`, at most 1,000,000; `true` keeps 10,000. */
  readonly audit?: number | true
  /** A declaration with a lower version, or none, never replaces this one. */
  readonly version?: number
}

/** How a rate rises to the full rate. */
export interface RampUp {
  /** Part of the rate at which it begins, 0.001 to 1. */
  readonly from: number
  readonly overMs: number
  /** `linear` (default), or `exponential`: by equal factors, never above the line. */
  readonly shape?: 'linear' | 'exponential'
  /**
   * Also rises from the first departure after this time without departures, of the queue or of a group, in addition to
   * the time in which its burst is regained at the lowest rate of the ramp; from the first departure ever; and from the
   * first one after a loss of state. ms. Default: only after pauses.
   */
  readonly afterIdleMs?: number
}

export type Overflow = 'reject' | 'drop-oldest' | 'drop-lowest'

export type ShapeField = Exclude<keyof Shape, 'version'>

/** A change of a shape at run time; null means "no limit", whatever is declared. */
export type ShapeOverride = { readonly [F in Exclude<ShapeField, 'horizonMs' | 'onStateLoss'>]?: Shape[F] | null }

export const DEFAULT_MAX_LATENESS_MS = 100
/** About 100 MB in Redis. */
const AUDIT = wholeWithin(1, 1_000_000)
const DEFAULT_AUDIT = 10_000
export const DEFAULT_HORIZON_MS = 50

/** A value in its readable form. */
export type ShapeValue =
  | number
  | string
  | readonly QueueLimit[]
  | RateSchedule
  | ReservedPlaces
  | GroupDefaults
  | Durability
  | RampUp

/**
 * Stored values: a rate is [limit, period ms] and its schedule, limits and groups are JSON, reserved places and
 * durability texts.
 */
export type StoredValue = number | string | StoredRate

const CHECKS: {
  readonly [F in Exclude<
    ShapeField,
    'rate' | 'limits' | 'reservedPlaces' | 'groups' | 'durability' | 'rampUp'
  >]: FieldCheck
} = {
  burst: wholeFrom(1),
  capacity: wholeFrom(1),
  capacityHorizonMs: wholeFrom(0),
  overflow: oneOf('reject', 'drop-oldest', 'drop-lowest'),
  overflowTo: {
    expected: "the name of a queue, without ':'",
    ok: (value) => typeof value === 'string' && value !== '' && !value.includes(':'),
  },
  maxWaitMs: wholeFrom(0),
  onClosed: oneOf('wait', 'refuse'),
  concurrency: wholeFrom(1),
  priorityAgeingMs: wholeFrom(1),
  mode: oneOf('enforce', 'shadow', 'off'),
  maxLatenessMs: numberFrom(1),
  horizonMs: numberFrom(1),
  onStateLoss: oneOf('hold', 'burst'),
  audit: {
    expected: `${AUDIT.expected}, or true`,
    ok: (value) => value === true || AUDIT.ok(value),
  },
}
const FIELDS: readonly string[] = [
  'rate',
  'limits',
  'reservedPlaces',
  'groups',
  'durability',
  'rampUp',
  ...Object.keys(CHECKS),
]
const FIXED: readonly string[] = ['horizonMs', 'onStateLoss']
/** The fields that can change at run time. */
export const SETTABLE_FIELDS = FIELDS.filter((field) => !FIXED.includes(field)) as readonly ShapeField[]

/**
 * Checks a declared shape and encodes it for storage.
 * @throws InvalidShapeError or InvalidRateError
 */
export function encodeShape(shape: Shape): { fields: Record<string, StoredValue>; version: number | undefined } {
  if (typeof shape !== 'object' || shape === null) throw new InvalidShapeError(`shape must be an object; got ${shape}`)
  const { version, ...rest } = shape
  if (version !== undefined && !Number.isSafeInteger(version)) {
    throw new InvalidShapeError(`shape.version must be a whole number; got ${version}`)
  }
  const fields: Record<string, StoredValue> = {}
  for (const [field, value] of Object.entries(rest)) {
    // An empty list of limits declares nothing.
    const encoded = value === undefined ? null : encodeField(field, value)
    if (encoded !== null) fields[field] = encoded
  }
  checkReserved(fields)
  if (typeof fields.limits === 'string' && fields.groups === undefined) checkUngrouped(fields.limits)
  if (typeof fields.groups === 'string') checkPlacesOfGroups(fields.groups, fields.concurrency)
  return { fields, version }
}

/**
 * Checks a change at run time and encodes it for storage.
 * @throws InvalidShapeError or InvalidRateError
 */
export function encodeOverride(override: ShapeOverride): Record<string, StoredValue | null> {
  if (typeof override !== 'object' || override === null) {
    throw new InvalidShapeError(`setShape needs an object; got ${override}`)
  }
  const fields: Record<string, StoredValue | null> = {}
  for (const [field, value] of Object.entries(override)) {
    if (FIXED.includes(field) || field === 'version') {
      throw new InvalidShapeError(`shape.${field} can only be declared, not set at run time`)
    }
    if (value === undefined) continue
    fields[field] = value === null && FIELDS.includes(field) ? null : encodeField(field, value)
  }
  checkReserved(fields)
  if (typeof fields.limits === 'string' && fields.groups === null) checkUngrouped(fields.limits)
  if (Object.keys(fields).length === 0) {
    throw new InvalidShapeError(`setShape needs at least one of ${SETTABLE_FIELDS.join(', ')}; got none`)
  }
  return fields
}

/** @throws InvalidShapeError if a field does not exist or cannot be changed at run time */
export function checkSettable(field: string): void {
  if (SETTABLE_FIELDS.some((one) => one === field)) return
  throw new InvalidShapeError(`no field '${field}' can be set or cleared; ${SETTABLE_FIELDS.join(', ')} can`)
}

/**
 * Other jobs need places too. This cannot be checked if capacity and reserved places are set separately: then all
 * places may be reserved for important jobs.
 */
function checkReserved({ capacity, reservedPlaces }: Readonly<Record<string, StoredValue | null>>): void {
  if (typeof capacity !== 'number' || typeof reservedPlaces !== 'string') return
  const sum = reservedSum(reservedPlaces)
  if (sum < capacity) return
  throw new InvalidShapeError(`shape.reservedPlaces must be fewer than shape.capacity, ${capacity}; got ${sum}`)
}

/** The field that a limit per group needs. It may also be set at run time: then Redis checks it. */
function checkUngrouped(limits: string): void {
  const name = groupLimitIn(limits) ?? stickyLimitIn(limits)
  if (name !== undefined) throw lacksGroups(`limit "${name}"`)
}

export function lacksGroups(what: string): InvalidShapeError {
  return new InvalidShapeError(`${what} is per group, and needs shape.groups ({} is enough); got none`)
}

function encodeField(field: string, value: unknown): StoredValue | null {
  if (field === 'limits') return encodeQueueLimits(value)
  if (field === 'reservedPlaces') return encodeReservedPlaces(value)
  if (field === 'groups') return encodeGroups(value)
  if (field === 'durability') return encodeDurability(value)
  if (field === 'rampUp') return encodeRampUp(value)
  if (field === 'rate') return encodeRate(value)
  const check = Object.hasOwn(CHECKS, field) && (CHECKS as Readonly<Record<string, FieldCheck>>)[field]
  if (!check) {
    const known = [...FIELDS, 'version']
    throw new InvalidShapeError(`shape has no field '${field}'; it has ${known.join(', ')}${didYouMean(field, known)}`)
  }
  checkField(`shape.${field}`, value, check, InvalidShapeError)
  return value === true ? DEFAULT_AUDIT : (value as StoredValue)
}

const OVER_MS = wholeWithin(1, 86_400_000)
const RAMP_UP: FieldCheck = {
  expected: `{ from: a number from 0.001 to 1, overMs: ${OVER_MS.expected} }`,
  ok: (value) => {
    if (typeof value !== 'object' || value === null) return false
    const { from, overMs } = value as RampUp
    return typeof from === 'number' && from >= 0.001 && from <= 1 && OVER_MS.ok(overMs)
  },
}
const RAMP_OPTIONS = { shape: oneOf('linear', 'exponential'), afterIdleMs: wholeFrom(1) }

function encodeRampUp(value: unknown): string {
  checkField('shape.rampUp', value, RAMP_UP, InvalidShapeError)
  const { from, overMs, ...options } = value as RampUp
  const known = ['from', 'overMs', ...Object.keys(RAMP_OPTIONS)]
  const unknown = Object.keys(options).find((field) => !known.includes(field))
  if (unknown !== undefined) {
    throw new InvalidShapeError(
      `shape.rampUp has no field '${unknown}'; it has ${known.join(', ')}${didYouMean(unknown, known)}`,
    )
  }
  checkFields(options, RAMP_OPTIONS, InvalidShapeError, 'shape.rampUp.')
  return JSON.stringify({ from, overMs, ...options })
}

/** A value in its readable form: rates as text. */
export function decodeField(field: string, value: StoredValue): ShapeValue {
  if (field === 'limits') return decodeQueueLimits(value as string)
  if (field === 'reservedPlaces') return decodeReservedPlaces(value as string)
  if (field === 'groups') return decodeGroups(value as string)
  if (field === 'durability') return decodeDurability(value as string)
  if (field === 'rampUp') return JSON.parse(value as string) as RampUp
  return field === 'rate' ? decodeRate(value as StoredRate) : (value as number | string)
}

export function isSameValue(one: ShapeValue | null | undefined, other: ShapeValue | null): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** A value as part of a sentence. */
export function formatValue(value: ShapeValue): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
