import { checkCosts, checkGroupId, checkKeys, checkTierName, MAX_COST } from 'sluice/internal'
import { type Arrival, type ArrivalGroup, InvalidArrivalsError, type RecordedArrival } from './arrival.ts'

const EXPECTED = 'a time (ms since 1970 or ISO 8601), or JSON such as {"at":1767225600000,"cost":1}'
/** From the year 2255 on, times in µs exceed the safe integers. */
const MAX_MS = Number.MAX_SAFE_INTEGER / 1000

/**
 * Reads arrivals, one per line: the output of `sluice record`, or plain times. Empty lines are skipped. Returns them in
 * the order of their times.
 * @throws InvalidArrivalsError naming the line
 */
export async function readArrivals(lines: AsyncIterable<string> | Iterable<string>): Promise<Arrival[]> {
  const arrivals: Arrival[] = []
  let number = 0
  let sorted = true
  for await (const line of lines) {
    number += 1
    const text = line.trim()
    if (text === '') continue
    const arrival = parseArrival(text, number)
    sorted &&= arrival.atUs >= (arrivals.at(-1)?.atUs ?? 0)
    arrivals.push(arrival)
  }
  if (arrivals.length === 0) throw new InvalidArrivalsError(`expected arrivals, one a line, each ${EXPECTED}; got none`)
  return sorted ? arrivals : arrivals.sort((one, other) => one.atUs - other.atUs)
}

function parseArrival(text: string, line: number): Arrival {
  if (!text.startsWith('{')) return { atUs: parseTime(text, line), cost: 1, priority: 0, delayMs: 0 }
  const recorded = parseJson(text, line)
  const { at, cost = 1, costs, priority = 0, delay = 0, group, keys, tier } = recorded
  try {
    if (tier !== undefined) checkTierName(tier)
    checkCosts(costs === undefined ? { cost } : { cost, costs })
  } catch (error) {
    throw new InvalidArrivalsError(`line ${line}: ${(error as Error).message}`)
  }
  return {
    atUs: parseTime(at, line),
    cost,
    ...(costs && Object.keys(costs).length > 0 ? { costs } : {}),
    priority: whole('priority', priority, line, 2 ** 21 - 1),
    delayMs: whole('delay', delay, line, MAX_COST * 1000),
    ...(group === undefined ? {} : { group: groupOf(group, line) }),
    ...(keys === undefined ? {} : { keys: keysOf(keys, line) }),
    ...(tier === undefined ? {} : { tier }),
  }
}

function groupOf(given: string | ArrivalGroup, line: number): ArrivalGroup {
  const { id, priority } = typeof given === 'object' && given !== null ? given : { id: given }
  try {
    checkGroupId(id)
  } catch (error) {
    throw new InvalidArrivalsError(`line ${line}: ${(error as Error).message}`)
  }
  return priority === undefined ? { id } : { id, priority: whole('group.priority', priority, line, 2 ** 21) }
}

function keysOf(given: unknown, line: number): Readonly<Record<string, string>> {
  try {
    return checkKeys(given)
  } catch (error) {
    throw new InvalidArrivalsError(`line ${line}: ${(error as Error).message}`)
  }
}

function parseJson(text: string, line: number): Partial<RecordedArrival> {
  try {
    return JSON.parse(text) as Partial<RecordedArrival>
  } catch {
    throw new InvalidArrivalsError(`line ${line}: expected ${EXPECTED}; got ${shortened(text)}`)
  }
}

function parseTime(at: unknown, line: number): number {
  const isNumber = typeof at === 'number' || (typeof at === 'string' && /^\d+(\.\d+)?$/.test(at))
  const isDate = typeof at === 'string' && /^\d{4}-\d\d-\d\dT/.test(at)
  const ms = isNumber ? Number(at) : isDate ? Date.parse(at) : Number.NaN
  if (ms >= 0 && ms < MAX_MS) return Math.round(ms * 1000)
  throw new InvalidArrivalsError(
    `line ${line}: expected ${EXPECTED}; got ${shortened(JSON.stringify(at) ?? 'no "at"')}`,
  )
}

function whole(field: string, value: unknown, line: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most) return value as number
  const came = shortened(JSON.stringify(value) ?? String(value))
  throw new InvalidArrivalsError(`line ${line}: ${field} must be a whole number from 0 to ${most}; got ${came}`)
}

function shortened(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}
