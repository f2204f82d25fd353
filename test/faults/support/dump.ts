import type { Redis } from 'ioredis'
import { type MeterFields, PACE_NUMBERS, storedMeter } from '../../support/meter.ts'

/** Everything that a queue is in Redis, with what differs from run to run replaced by its kind. */
export type Dump = Record<string, unknown>

/** Of BullMQ's events the one that tells of a repeated call: it changes nothing. */
const REPEATED = 'duplicated'

/**
 * What wakes processes, what workers tell of themselves and of their times, and the numbers that BullMQ would give to jobs
 * without an id: none of the state of a job.
 */
const OF_THE_MOMENT = /^(id|marker|stalled-check|meta:(ended|sleepers|workers|starts|series:\d+|grants:.*))$/

/** What of a meter does not follow from the calls alone. */
const METER_NOISE = ['foreignAt', 'bypassSeen', 'seen', 'origin', 'horizonAt', 'horizon', 'refusedAt']

/**
 * Reads all keys of a queue.
 * @param base prefix of its keys, with its colon
 */
export async function dumpQueue(client: Redis, base: string): Promise<Dump> {
  const keys = (await client.keys(`${base}*`)).sort()
  const entries: [string, unknown][] = []
  const ends: [string, string][] = []
  for (const key of keys) {
    const name = key.slice(base.length)
    // As one hash: on how many tenths of a second they fall depends on the machine.
    if (name.startsWith('meta:ended:')) ends.push(...masked(await client.hgetall(key)))
    else if (!OF_THE_MOMENT.test(name)) entries.push([mask(name), await read(client, key, name)])
  }
  if (ends.length > 0) entries.push(['meta:ended', byName(ends)])
  return byName(entries)
}

/** Values whose names are masked alike as one list, in an order of their own: that of generated ids says nothing. */
function byName(entries: readonly (readonly [string, unknown])[]): Record<string, unknown> {
  const named = new Map<string, unknown[]>()
  for (const [name, value] of entries) named.set(name, [...(named.get(name) ?? []), value])
  return Object.fromEntries([...named].map(([name, [value, ...others]]) => [name, joined(value, others)]))
}

function joined(value: unknown, others: readonly unknown[]): unknown {
  return others.length === 0 ? value : [value, ...others].map((one) => JSON.stringify(one)).sort()
}

async function read(client: Redis, key: string, name: string): Promise<unknown> {
  switch (await client.type(key)) {
    case 'hash':
      if (name === 'meta:meter') return meterOf(await storedMeter(client, key.slice(0, -name.length)))
      return readHash(await client.hgetall(key), name)
    case 'list':
      return (await client.lrange(key, 0, -1)).map(mask)
    case 'set':
      return (await client.smembers(key)).map(mask).sort()
    case 'zset':
      // Of one millisecond the order is not known; the order of those that wait is that of a list, or of priorities.
      return (await client.zrange(key, '0', '-1')).map(mask).sort()
    case 'stream':
      if (name === 'meta:history') return kindsOf((await client.xrange(key, '-', '+')) as [string, string[]][])
      return eventsOf((await client.xrange(key, '-', '+')) as [string, string[]][])
    case 'string':
      return mask((await client.get(key)) as string)
    default:
      return undefined
  }
}

function meterOf(fields: MeterFields): Record<string, unknown> {
  const owed = String(Number(fields.tat) - Number(fields.last))
  // Without a rate departures are counted a few times a second, some of them later.
  const unpaced = fields.tat === undefined ? ['departedTotal'] : []
  const noise = new Set([...METER_NOISE, ...PACE_NUMBERS, ...unpaced, 'tat', 'last'])
  const lasting = Object.entries(fields).filter(([field]) => !noise.has(field) && !/^(held|holds)/.test(field))
  return { ...Object.fromEntries(lasting), owed, run: 'a run' }
}

function readHash(fields: Record<string, string>, name: string): Record<string, unknown> {
  if (name === 'meta:shape') {
    // A change that is made twice counts twice, and is the same.
    for (const counted of ['rev', 'digest']) delete fields[counted]
    // The order of what Lua encodes depends on what its table has been through.
    for (const field of ['declared', 'overrides']) if (fields[field]) fields[field] = sorted(fields[field])
  }
  // BullMQ takes the start of a scheduler's grid from the clock.
  if (name.startsWith('repeat:')) delete fields.offset
  return byName(masked(fields))
}

function masked(fields: Record<string, string>): [string, string][] {
  const entries = Object.entries(fields).map(([field, value]): [string, string] => [mask(field), mask(value)])
  return entries.sort(([one], [other]) => (one < other ? -1 : 1))
}

function sorted(json: string): string {
  const entries = Object.entries(JSON.parse(json) as object)
  return JSON.stringify(Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1))))
}

function eventsOf(entries: readonly [string, string[]][]): string[] {
  // Jobs run beside each other: only what happened is compared, not in which order.
  const texts = entries.map(([, [, event, , id]]) => `${event} ${mask(id ?? '')}`)
  return texts.filter((text) => !text.startsWith(REPEATED)).sort()
}

/** Times, generated ids and tokens by their kind. */
function mask(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:\d+)*/g, '<uuid>')
    .replace(/\b[0-9A-Z]{14,20}\b/g, '<id>')
    .replace(/\d{13,}(\.\d+)?/g, '<time>')
    .replace(/dropped|plain/g, '<queue>')
    .replace(/vm:\d+|[\w-]+:\d+(?=")/g, '<process>')
}

/** What was changed, by whom and why. */
function kindsOf(history: readonly [string, string[]][]): string[] {
  return history.map(([, fields]) => [fields[1], fields[3], fields[5]].join(' '))
}
