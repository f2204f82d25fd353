import { InvalidShapeError } from '../errors.ts'

/**
 * Places of the capacity reserved for jobs up to a priority: places by priority. BullMQ's priorities: 1 is the most
 * important; 0 means jobs without one, which BullMQ serves before all others.
 */
export type ReservedPlaces = Readonly<Record<number, number>>

/** BullMQ's limit. */
const MAX_PRIORITY = 2 ** 21 - 1

const EXPECTED = `an object of priorities (0 to ${MAX_PRIORITY}) and whole numbers of places >= 1, such as { 1: 50 }`

/**
 * @returns the stored form (read by `lua/admission/occupancy.lua`): the sum of all places, then `priority:places` each
 * @throws InvalidShapeError
 */
export function encodeReservedPlaces(value: unknown): string {
  const entries = typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : []
  const isRight = entries.every(([priority, places]) => isPriority(priority) && isCount(places))
  if (entries.length === 0 || !isRight) {
    throw new InvalidShapeError(`shape.reservedPlaces must be ${EXPECTED}; got ${JSON.stringify(value) ?? value}`)
  }
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

function isPriority(text: string): boolean {
  return /^(0|[1-9]\d{0,6})$/.test(text) && Number(text) <= MAX_PRIORITY
}

function isCount(places: unknown): places is number {
  return Number.isSafeInteger(places) && (places as number) >= 1
}
