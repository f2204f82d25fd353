import { readFileSync } from 'node:fs'
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Durability, RateSchedule, ShapeField, ShapeOverride } from 'sluice'
import { parseDuration } from './arguments.ts'

/** An option of `shape set`. */
interface FieldOption {
  readonly field: ShapeField
  readonly flags: string
  readonly description: string
  /** Reads any value but `none`; the shape checks the value itself. */
  readonly read: (text: string) => unknown
}

/** Used for null, which commander would turn into an empty string. */
const LIFTED = Symbol('none')

const asText = (text: string) => text
const asNumber = (text: string) => (text.trim() === '' ? Number.NaN : Number(text))

/** Every field that can be set at run time. */
export const FIELD_OPTIONS: readonly FieldOption[] = [
  {
    field: 'rate',
    flags: '--rate <rate>',
    description: "how fast jobs leave: '50/s', '1000/min', or a schedule as JSON or @file",
    read: readRate,
  },
  { field: 'burst', flags: '--burst <units>', description: 'units that may leave back to back', read: asNumber },
  { field: 'capacity', flags: '--capacity <jobs>', description: 'jobs that may wait', read: asNumber },
  {
    field: 'capacityHorizonMs',
    flags: '--capacity-horizon <duration>',
    description: 'of delayed jobs, count only those due within it',
    read: parseDuration,
  },
  {
    field: 'reservedPlaces',
    flags: '--reserved-places <list>',
    description: "places kept for jobs up to a priority: '1=50,10=100'",
    read: readPlaces,
  },
  {
    field: 'overflow',
    flags: '--overflow <how>',
    description: 'when the queue is full: reject, drop-oldest or drop-lowest',
    read: asText,
  },
  {
    field: 'overflowTo',
    flags: '--overflow-to <queue>',
    description: 'queue for dead letters of dropped jobs',
    read: asText,
  },
  {
    field: 'maxWaitMs',
    flags: '--max-wait <duration>',
    description: 'refuse jobs that would wait longer',
    read: parseDuration,
  },
  {
    field: 'onClosed',
    flags: '--on-closed <how>',
    description: 'while the schedule is at 0: wait or refuse',
    read: asText,
  },
  { field: 'concurrency', flags: '--concurrency <jobs>', description: 'jobs that may run at once', read: asNumber },
  {
    field: 'groups',
    flags: '--groups <json>',
    description: 'defaults of groups: JSON, or @file',
    read: jsonReader('a JSON object of what applies to groups'),
  },
  {
    field: 'priorityAgeingMs',
    flags: '--priority-ageing <duration>',
    description: 'how long a job waits to count as one level more important',
    read: parseDuration,
  },
  {
    field: 'limits',
    flags: '--limits <json>',
    description: 'more limits: JSON, or @file',
    read: jsonReader('a JSON list of limits'),
  },
  {
    field: 'durability',
    flags: '--durability <replicas>',
    description: "replicas that must confirm a job, and in what time: '1', '2=500ms'",
    read: readDurability,
  },
  {
    field: 'rampUp',
    flags: '--ramp-up <json>',
    description: 'how the rate rises after a long pause or idle time: JSON, or @file',
    read: jsonReader('a JSON object of from, overMs, shape and afterIdleMs'),
  },
  { field: 'mode', flags: '--mode <mode>', description: 'enforce, shadow or off', read: asText },
  {
    field: 'maxLatenessMs',
    flags: '--max-lateness <duration>',
    description: 'give jobs that are later than this a new slot',
    read: parseDuration,
  },
  { field: 'audit', flags: '--audit <departures>', description: 'departures to keep for sluice audit', read: asNumber },
]

const readSchedule = jsonReader("a rate such as '50/s', or a JSON object of schedule and timeZone")

/** A rate as a text, or a schedule as JSON or `@` and the name of its file. */
export function readRate(text: string): NonNullable<ShapeOverride['rate']> {
  return /^\s*[{@]/.test(text) ? (readSchedule(text) as RateSchedule) : text
}

/** Adds an option for each field; `none` lifts a limit, whatever is declared. */
export function addFieldOptions(command: Command): Command {
  for (const { flags, description, read } of FIELD_OPTIONS) {
    const parse = (text: string) => (text === 'none' ? LIFTED : read(text))
    command.addOption(new Option(flags, description).argParser(parse))
  }
  return command
}

export function overrideFrom(options: Readonly<Record<string, unknown>>): ShapeOverride {
  const given = FIELD_OPTIONS.flatMap(({ field, flags, description }) => {
    const value = options[new Option(flags, description).attributeName()]
    return value === undefined ? [] : [[field, value === LIFTED ? null : value] as const]
  })
  return Object.fromEntries(given) as ShapeOverride
}

function readPlaces(text: string): Record<string, number> {
  const entries = text.split(',').map((entry) => /^\s*(\d+)\s*=\s*(\d+)\s*$/.exec(entry))
  if (!entries.every((entry) => entry !== null)) {
    throw new InvalidArgumentError("expected priorities and places such as '1=50,10=100'")
  }
  return Object.fromEntries(entries.map(([, priority, places]) => [priority as string, Number(places)]))
}

function readDurability(text: string): Durability {
  const [, replicas, within] = /^\s*(\d+)\s*(?:=\s*(\S+)\s*)?$/.exec(text) ?? []
  if (replicas === undefined) {
    throw new InvalidArgumentError("expected how many replicas confirm a job, such as '1', or '1=500ms'")
  }
  return { replicas: Number(replicas), ...(within === undefined ? {} : { timeoutMs: parseDuration(within) }) }
}

function jsonReader(expected: string): (text: string) => unknown {
  return (text) => {
    try {
      return JSON.parse(text.startsWith('@') ? readFileSync(text.slice(1), 'utf8') : text)
    } catch (error) {
      throw new InvalidArgumentError(`expected ${expected}, or @ and the name of its file: ${String(error)}`)
    }
  }
}
