import { readFileSync } from 'node:fs'
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Durability, RateSchedule, ShapeOverride } from 'sluice'
import { parseDuration } from './arguments.ts'

/** Used for null, which commander would turn into an empty string. */
const LIFTED = Symbol('none')

const asText = (text: string) => text
const asNumber = (text: string) => (text.trim() === '' ? Number.NaN : Number(text))

/** The options of `shape set`: every field that can be set at run time. The shape checks the values themselves. */
export const FIELD_OPTIONS: {
  /** `read` reads any value but `none`. */
  readonly [F in keyof ShapeOverride]-?: readonly [flags: string, description: string, read: (text: string) => unknown]
} = {
  rate: ['--rate <rate>', "how fast jobs leave: '50/s', '1000/min', or a schedule as JSON or @file", readRate],
  burst: ['--burst <units>', 'units that may leave back to back', asNumber],
  capacity: ['--capacity <jobs>', 'jobs that may wait', asNumber],
  capacityHorizonMs: [
    '--capacity-horizon <duration>',
    'count delayed jobs only if due within this time',
    parseDuration,
  ],
  reservedPlaces: ['--reserved-places <list>', "places kept for jobs up to a priority: '1=50,10=100'", readPlaces],
  overflow: ['--overflow <how>', 'when the queue is full: reject, drop-oldest or drop-lowest', asText],
  overflowTo: ['--overflow-to <queue>', 'queue for dead letters of dropped jobs', asText],
  maxWaitMs: ['--max-wait <duration>', 'refuse jobs that would wait longer', parseDuration],
  onClosed: ['--on-closed <how>', 'while the schedule is at 0: wait or refuse', asText],
  concurrency: ['--concurrency <jobs>', 'jobs that may run at once', asNumber],
  groups: [
    '--groups <json>',
    'defaults of groups: JSON, or @file',
    jsonReader('a JSON object of what applies to groups'),
  ],
  priorityAgeingMs: [
    '--priority-ageing <duration>',
    'how long a job waits to count as one level more important',
    parseDuration,
  ],
  limits: ['--limits <json>', 'more limits: JSON, or @file', jsonReader('a JSON list of limits')],
  durability: [
    '--durability <replicas>',
    "replicas that must confirm a job, and how soon: '1', '2=500ms'",
    readDurability,
  ],
  rampUp: [
    '--ramp-up <json>',
    'how the rate rises after a long pause or idle time: JSON, or @file',
    jsonReader('a JSON object of from, overMs, shape and afterIdleMs'),
  ],
  mode: ['--mode <mode>', 'enforce, shadow or off', asText],
  maxLatenessMs: ['--max-lateness <duration>', 'give jobs that are later than this a new slot', parseDuration],
  audit: ['--audit <departures>', 'departures to keep for sluice audit', asNumber],
}

const readSchedule = jsonReader("a rate such as '50/s', or a JSON object of schedule and timeZone")

/** A rate as a text, or a schedule as JSON or `@` and the name of its file. */
export function readRate(text: string): NonNullable<ShapeOverride['rate']> {
  return /^\s*[{@]/.test(text) ? (readSchedule(text) as RateSchedule) : text
}

/** Adds an option for each field; `none` lifts a limit, whatever is declared. */
export function addFieldOptions(command: Command): Command {
  for (const [flags, description, read] of Object.values(FIELD_OPTIONS)) {
    const parse = (text: string) => (text === 'none' ? LIFTED : read(text))
    command.addOption(new Option(flags, description).argParser(parse))
  }
  return command
}

export function overrideFrom(options: Readonly<Record<string, unknown>>): ShapeOverride {
  const given = Object.entries(FIELD_OPTIONS).flatMap(([field, [flags]]) => {
    const value = options[new Option(flags).attributeName()]
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
