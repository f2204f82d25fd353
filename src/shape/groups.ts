import { didYouMean } from '../call-options.ts'
import { InvalidGroupError, InvalidShapeError } from '../errors.ts'
import { checkField, type FieldCheck, oneOf, wholeFrom } from '../field-check.ts'
import { decodeRate, encodeRate, type RateSchedule, type StoredRate } from '../limits/schedule.ts'
import { isWellFormed } from '../plain-text.ts'
import type { RateInput } from '../rate.ts'

/** Settings of one group of a queue. A field left out sets no limit. */
export interface GroupFields {
  /**
   * The group's own rate, exact across all workers: `'10/s'`, `{ limit, period }` (ms), or `{ schedule, timeZone }`, which
   * follows the clock.
   */
  readonly rate?: RateInput | RateSchedule
  /** Units of cost that may leave the group back to back after idling. Default 1. */
  readonly burst?: number
  /** Jobs of the group that may run at once, across all workers: a number, or a share of the queue's concurrency: `'25%'`. */
  readonly concurrency?: number | `${number}%`
  /** Jobs of the group that may wait, delayed ones included. */
  readonly capacity?: number
  /** The group's share, relative to the other groups that have jobs: 0.001 to 1000. Default 1. */
  readonly weight?: number
  /** `'strict'`: no job of the group starts before the previous one has completed, or failed permanently. */
  readonly order?: 'strict'
  /** In strict order, when a job fails permanently: `'next'` (default) starts the next one; `'hold'` pauses the group. */
  readonly onFailed?: 'next' | 'hold'
}

/** How much of a queue one group may hold: a dynamic threshold (Choudhury and Hahne 1998), as in shared switch buffers. */
export interface GroupShare {
  readonly ofFree: number
}

/** The defaults of all groups of a queue. `{}` is fairness alone: equal parts, and a bound if the queue has one. */
export interface GroupDefaults extends GroupFields {
  /**
   * Limits each group to `ofFree` (0.001 to 1000) × the queue's free places. Default: `{ ofFree: 1 }` in a queue with a
   * `capacity` whose groups have none.
   */
  readonly share?: GroupShare
  /** Places of the queue's `concurrency` kept for groups with no running job. */
  readonly keepFree?: number
  /** `'fair'` (default): jobs without a group form a group of weight 1. `'first'`: they go before all groups, as in BullMQ Pro. */
  readonly ungrouped?: 'fair' | 'first'
}

/** A change of one group at run time; null means "no limit", whatever the defaults are. */
export type GroupOverride = { readonly [F in keyof GroupFields]?: GroupFields[F] | null }

/** Weights beyond this would not be exact. */
const MAX_WEIGHT = 1000
/** More would leave the others nothing. */
const MAX_OF_FREE = 1000

const PERCENTAGE = /^\d{1,3}(\.\d{1,3})?%$/
const isPercentage = (value: unknown) => {
  const share = typeof value === 'string' && PERCENTAGE.test(value) ? Number.parseFloat(value) : 0
  return share > 0 && share <= 100
}

const isWithin = (value: unknown, most: number) => typeof value === 'number' && value >= 1 / most && value <= most

function isShare(value: unknown): value is GroupShare {
  if (typeof value !== 'object' || value === null || Object.keys(value).join() !== 'ofFree') return false
  return isWithin((value as GroupShare).ofFree, MAX_OF_FREE)
}

const FIELD_CHECKS: { readonly [F in Exclude<keyof GroupFields, 'rate'>]: FieldCheck } = {
  burst: wholeFrom(1),
  concurrency: {
    expected: "a whole number >= 1, or a share of the queue's concurrency such as '25%'",
    ok: (value) => wholeFrom(1).ok(value) || isPercentage(value),
  },
  capacity: wholeFrom(1),
  weight: {
    expected: `a number from ${1 / MAX_WEIGHT} to ${MAX_WEIGHT}`,
    ok: (value) => isWithin(value, MAX_WEIGHT),
  },
  order: oneOf('strict'),
  onFailed: oneOf('next', 'hold'),
}

const DEFAULT_CHECKS: Readonly<Record<string, FieldCheck>> = {
  ...FIELD_CHECKS,
  share: { expected: `{ ofFree: a number from ${1 / MAX_OF_FREE} to ${MAX_OF_FREE} }`, ok: isShare },
  keepFree: wholeFrom(1),
  ungrouped: oneOf('fair', 'first'),
}

/** The fields that can be set for one group. */
export const GROUP_FIELDS: readonly string[] = ['rate', ...Object.keys(FIELD_CHECKS)]

/** @throws InvalidShapeError */
export function checkGroupField(field: string): void {
  if (GROUP_FIELDS.includes(field)) return
  throw new InvalidShapeError(`a group has no field '${field}' to be cleared; it has ${GROUP_FIELDS.join(', ')}`)
}

type StoredGroupValue = number | string | GroupShare | StoredRate

function encodeFields(
  where: string,
  given: unknown,
  checks: Readonly<Record<string, FieldCheck>>,
): Record<string, StoredGroupValue | null> {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new InvalidShapeError(`${where} must be an object; got ${JSON.stringify(given) ?? String(given)}`)
  }
  const stored: Record<string, StoredGroupValue | null> = {}
  for (const [field, value] of Object.entries(given)) {
    if (value === undefined) continue
    const check = Object.hasOwn(checks, field) && checks[field]
    if (field !== 'rate' && !check) {
      const known = ['rate', ...Object.keys(checks)]
      throw new InvalidShapeError(
        `${where} has no field '${field}'; it has ${known.join(', ')}${didYouMean(field, known)}`,
      )
    }
    if (value === null) stored[field] = null
    else if (!check) stored[field] = encodeRate(value)
    else {
      checkField(`${where}.${field}`, value, check, InvalidShapeError)
      stored[field] = value as StoredGroupValue
    }
  }
  return stored
}

/**
 * @returns the stored form, read by `lua/groups/queue-groups.lua`: JSON, a rate as [limit, period ms]
 * @throws InvalidShapeError or InvalidRateError
 */
export function encodeGroups(value: unknown): string {
  const fields = encodeFields('shape.groups', value, DEFAULT_CHECKS)
  const unset = Object.keys(fields).find((field) => fields[field] === null)
  if (unset) throw new InvalidShapeError(`shape.groups.${unset} must not be null; leave it out`)
  if (fields.order === 'strict' && fields.concurrency !== undefined && fields.concurrency !== 1) {
    throw new InvalidShapeError(
      `shape.groups.concurrency must be 1, or left out, with order 'strict'; got ${fields.concurrency}`,
    )
  }
  return JSON.stringify(fields)
}

/**
 * Checks the settings that depend on the queue's concurrency.
 * @param concurrency of the shape; undefined if it has none
 * @throws InvalidShapeError
 */
export function checkPlacesOfGroups(stored: string, concurrency: unknown): void {
  const { concurrency: share, keepFree } = JSON.parse(stored) as GroupDefaults
  const field = keepFree !== undefined ? 'keepFree' : typeof share === 'string' ? 'concurrency' : undefined
  if (field === undefined) return
  if (concurrency === undefined) {
    throw new InvalidShapeError(
      `shape.groups.${field} is a part of shape.concurrency, and needs it; got ${field === 'keepFree' ? keepFree : `'${share}'`} alone`,
    )
  }
  if (keepFree === undefined || keepFree < (concurrency as number)) return
  throw new InvalidShapeError(
    `shape.groups.keepFree must be fewer than shape.concurrency, ${concurrency}; got ${keepFree}`,
  )
}

export function decodeGroups(stored: string): GroupDefaults {
  return decodeGroupFields(JSON.parse(stored)) as GroupDefaults
}

/**
 * The settings of one group, in the form that `lua/verbs/set-group.lua` takes.
 * @throws InvalidShapeError or InvalidRateError
 */
export function encodeGroupOverride(value: unknown): Record<string, StoredGroupValue | null> {
  const fields = encodeFields('setGroup', value, FIELD_CHECKS)
  if (Object.keys(fields).length > 0) return fields
  throw new InvalidShapeError(`setGroup needs at least one of ${GROUP_FIELDS.join(', ')}; got none`)
}

/** Values in their readable form: rates as text. */
export function decodeGroupFields(fields: Readonly<Record<string, StoredGroupValue | null>>): GroupOverride {
  return Object.fromEntries(
    Object.entries(fields).map(([field, value]) => [
      field,
      field === 'rate' && value ? decodeRate(value as StoredRate) : value,
    ]),
  )
}

/** As in lua/groups/queue-groups.lua, in bytes. */
const MAX_ID_BYTES = 256

/** @throws InvalidGroupError */
export function checkGroupId(id: unknown): void {
  checkText('the id of a group', 'a string', id)
}

/**
 * Checks the value of one of a job's keys.
 * @returns the value as stored
 * @throws InvalidGroupError
 */
export function checkKeyValue(name: string, value: unknown): string {
  const text = Number.isFinite(value) ? String(value) : value
  checkText(`keys.${name}`, 'a finite number, or a string', text)
  return text as string
}

function checkText(what: string, kind: string, text: unknown): void {
  const isText = typeof text === 'string' && text !== ''
  const form = isText && !isWellFormed(text) ? ', well-formed in Unicode' : ''
  if (isText && form === '' && Buffer.byteLength(text) <= MAX_ID_BYTES) return
  throw new InvalidGroupError(`${what} must be ${kind} of 1 to ${MAX_ID_BYTES} bytes${form}; got ${shownText(text)}`)
}

/** Length of the shown beginning of a long text. */
const SHOWN = 40

function shownText(text: unknown): string {
  if (typeof text === 'bigint' || Number.isFinite(text)) return `the number ${text}: use String(${text})`
  if (typeof text === 'number') return String(text)
  const shown = JSON.stringify(text) ?? String(text)
  if (typeof text !== 'string' || text.length <= SHOWN) return shown
  return `${JSON.stringify(`${text.slice(0, SHOWN)}…`)}, ${Buffer.byteLength(text)} bytes: use a hash of it`
}
