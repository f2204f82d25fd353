import { InvalidShapeError } from '../errors.ts'
import { checkField, type FieldCheck, wholeFrom, wholeWithin } from '../field-check.ts'

/**
 * Places of the capacity reserved for jobs up to a priority: places by priority. BullMQ's priorities: 1 is the most
 * important; 0 means jobs without one, which BullMQ serves before all others.
 */
export type ReservedPlaces = Readonly<Record<number, number>>

/** BullMQ's limit. */
const MAX_PRIORITY = 2 ** 21 - 1

const PRIORITY = wholeWithin(0, MAX_PRIORITY)
const PLACES = wholeFrom(1)
const RESERVED_PLACES: FieldCheck = {
  expected: `an object of priorities (0 to ${MAX_PRIORITY}) and whole numbers of places >= 1, such as { 1: 50 }`,
  ok: (value) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
    const entries = Object.entries(value)
    return entries.length > 0 && entries.every(([priority, places]) => isPriority(priority) && PLACES.ok(places))
  },
}

/**
 * @returns the stored form (read by `lua/admission/occupancy.lua`): the sum of all places, then `priority:places` each
 * @throws InvalidShapeError
 */
export function encodeReservedPlaces(value: unknown): string {
  checkField('shape.reservedPlaces', value, RESERVED_PLACES, InvalidShapeError)
  const entries = Object.entries(value as ReservedPlaces)
  const sum = entries.reduce((all, [, places]) => all + places, 0)
  return [sum, ...entries.map(([priority, places]) => `${priority}:${places}`)].join(' ')
}

/** Total number of reserved places. */
export function reservedSum(stored: string): number {
  return Number.parseInt(stored, 10)
}

export function decodeReservedPlaces(stored: string): ReservedPlaces {
  const [, ...entries] = stored.split(' ')
  return Object.fromEntries(entries.map((entry) => entry.split(':').map(Number) as [number, number]))
}

function isPriority(name: string): boolean {
  return String(Number(name)) === name && PRIORITY.ok(Number(name))
}
