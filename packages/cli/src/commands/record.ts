import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import type { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { InvalidArgumentError, Option } from 'commander'
import type { Redis } from 'ioredis'
import { countText } from 'sluice/internal'
import { durationOption, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { existingUnsharded } from '../existing-queue.ts'
import { jsonLine } from '../json-line.ts'
import type { RecordedArrival } from '../simulate/arrival.ts'

interface RecordCommandOptions {
  readonly out?: string
  readonly for?: number
  readonly count?: number
  readonly since?: Date
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('record')
    .description('Records the arrivals of a queue for simulate, until ctrl-c. It only reads.')
    .argument('<queue>', 'the queue', parseQueueName)
    .option('--out <file>', 'the file to write (default: stdout)')
    .addOption(durationOption('--for <duration>', 'for how long, from --since (default: until interrupted)'))
    .option('--count <n>', 'stop after this many arrivals', wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .addOption(
      new Option('--since <time>', "when to start, as far back as BullMQ's events reach (default: now)").argParser(
        pastTime,
      ),
    )
    .addHelpText(
      'after',
      `
Examples:
  $ sluice record emails --since 2026-01-31T18:00:00Z --count 1000 > a.ndjson
  $ sluice simulate --arrivals a.ndjson --queue emails --shape rate=8/s
`,
    )
    .action(run(record))
}

async function record(cli: Cli, name: string, options: RecordCommandOptions): Promise<number> {
  await existingUnsharded(cli, name)
  const out = options.out === undefined ? process.stdout : await openFile(options.out)
  const recording = await recordArrivals(
    await cli.client(),
    `${cli.options.prefix}:${name}:`,
    {
      signal: cli.signal,
      ...(options.for === undefined ? {} : { forMs: options.for }),
      ...(options.count === undefined ? {} : { count: options.count }),
      ...(options.since === undefined ? {} : { since: options.since }),
    },
    (arrival) => writeLine(out, arrival),
  )
  if (options.out !== undefined) {
    out.end()
    await finished(out)
  }
  cli.note(cli.options.json ? JSON.stringify(recording) : summaryText(recording))
  return EXIT_CODES.done
}

async function openFile(file: string): Promise<Writable> {
  const stream = createWriteStream(file)
  try {
    await once(stream, 'open')
    return stream
  } catch (error) {
    throw new CommandError(EXIT_CODES.usage, `cannot write ${file}: ${(error as Error).message}`)
  }
}

async function writeLine(out: Writable, arrival: RecordedArrival): Promise<void> {
  if (!out.write(`${jsonLine(arrival)}\n`)) await once(out, 'drain')
}

function summaryText({ arrivals, gone, refused, isIncomplete }: Recording): string {
  const parts = [`recorded ${countText(arrivals, 'arrival')}`]
  if (gone > 0) parts.push(`${gone} gone already: cost taken as 1`)
  if (refused > 0) parts.push(`${refused} of these refused: cost taken as 1, times known to a second`)
  if (isIncomplete) parts.push('some events were trimmed before they were read: the recording is not complete')
  return parts.join('; ')
}

function pastTime(text: string): Date {
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? new Date(text) : new Date(Number.NaN)
  if (Number.isNaN(time.getTime())) throw new InvalidArgumentError("expected a time such as '2026-01-31T18:00:00Z'")
  return time
}

/** The methods of an ioredis client that are used. Reads block it for up to half a second: pass a dedicated client. */
type RecorderRedis = Pick<Redis, 'xread' | 'xrevrange' | 'xinfo' | 'time' | 'pipeline'>

export interface RecordOptions {
  /** Start time, as far back as BullMQ's event stream reaches. Default: now. */
  readonly since?: Date
  /** Duration from there, ms. Default: until it is stopped. */
  readonly forMs?: number
  /** Ends after this many arrivals. */
  readonly count?: number
  readonly signal?: AbortSignal
}

/** The result of a recording. */
interface Recording {
  /** Accepted or refused. */
  readonly arrivals: number
  /** Jobs that no longer existed when they were read: their cost is unknown, and counts as 1. */
  readonly gone: number
  /** Arrivals that the queue refused, according to its events: their cost is unknown, and counts as 1. */
  readonly refused: number
  /** Whether events were trimmed before they were read; undefined where Redis does not report it. */
  readonly isIncomplete: boolean | undefined
}

/** Entries per read. */
const PAGE = 500
const BLOCK_MS = 500
/** Refusals within this time are reported by one event: `lua/admission/refusals.lua`. */
const REPORTED_WITHIN_MS = 1000
/** Before the first id of a stream. */
const BEGINNING = '0-0'

type Entry = readonly [id: string, fields: readonly string[]]

/**
 * Follows the events of a queue by plain reads, and reports every job that arrived, accepted or refused: BullMQ's
 * `added` events hold Redis's time, the job's hash its cost. The times of refused jobs may be up to a second early.
 * @param base the queue's key prefix with its colon
 * @param onArrival called one after the other
 */
export async function recordArrivals(
  redis: RecorderRedis,
  base: string,
  options: RecordOptions,
  onArrival: (arrival: RecordedArrival) => void | Promise<void>,
): Promise<Recording> {
  const key = `${base}events`
  const clock = await redisClock(redis)
  const fromMs = options.since?.getTime() ?? clock()
  const untilMs = fromMs + (options.forMs ?? Number.POSITIVE_INFINITY)
  const most = options.count ?? Number.POSITIVE_INFINITY
  let after = options.since ? `${Math.max(0, fromMs - 1)}-0` : await lastId(redis, key)
  let isIncomplete = options.since ? await isTrimmedAfter(redis, key, after) : false
  const recording = { arrivals: 0, gone: 0, refused: 0 }
  for (let ended = false; !ended && recording.arrivals < most && !options.signal?.aborted; ) {
    const leftMs = untilMs - clock()
    const page = await readPage(redis, key, after, Math.min(BLOCK_MS, leftMs))
    if (page.length === PAGE) isIncomplete = isIncomplete || (await isTrimmedAfter(redis, key, after))
    const within = page.filter(([id]) => timeOf(id) >= fromMs && timeOf(id) < untilMs)
    for (const found of (await allArrivalsIn(redis, base, within, fromMs)).slice(0, most - recording.arrivals)) {
      recording.arrivals += 1
      recording.gone += Number(found.isGone)
      recording.refused += Number(Boolean(found.arrival.refused))
      await onArrival(found.arrival)
    }
    after = page.at(-1)?.[0] ?? after
    ended = (page.length < PAGE && leftMs <= 0) || timeOf(after) >= untilMs
  }
  return { ...recording, isIncomplete }
}

async function readPage(redis: RecorderRedis, key: string, after: string, blockMs: number): Promise<readonly Entry[]> {
  const reply = (await (blockMs < 1
    ? redis.xread('COUNT', PAGE, 'STREAMS', key, after)
    : redis.xread('COUNT', PAGE, 'BLOCK', Math.ceil(blockMs), 'STREAMS', key, after))) as [string, Entry[]][] | null
  return reply?.[0]?.[1] ?? []
}

/** The arrivals of a page, accepted or refused, in order. */
async function allArrivalsIn(redis: RecorderRedis, base: string, page: readonly Entry[], fromMs: number) {
  const added = await arrivalsIn(redis, base, page.filter(isAdded))
  const all = [...added, ...page.filter(isRefused).flatMap((entry) => refusedArrivals(entry, fromMs))]
  return all.sort((one, other) => one.arrival.at - other.arrival.at)
}

/** The costs of jobs are in their hashes: one round trip per page. */
async function arrivalsIn(redis: RecorderRedis, base: string, added: readonly Entry[]) {
  if (added.length === 0) return []
  const pipeline = redis.pipeline()
  const jobs = added.map(([id, fields]) => ({ at: timeOf(id), jobId: fieldOf(fields, 'jobId'), fields }))
  for (const { jobId } of jobs) pipeline.hmget(`${base}${jobId}`, 'name', 'opts')
  const replies = (await pipeline.exec()) ?? []
  return jobs.map(({ at, jobId, fields }, i) => {
    const [error, found] = replies[i] as [Error | null, (string | null)[]]
    if (error) throw error
    const [name, opts] = found as [string | null, string | null]
    return { isGone: name === null, arrival: arrivalOf(at, jobId, name ?? fieldOf(fields, 'name'), opts) }
  })
}

function arrivalOf(at: number, id: string, name: string, opts: string | null): RecordedArrival {
  const { cost = 1, costs, priority, delay, group, keys, tier } = JSON.parse(opts ?? '{}') as Partial<RecordedArrival>
  return {
    at,
    ...{ id, name, cost },
    ...(costs ? { costs } : {}),
    ...(priority ? { priority } : {}),
    ...(delay ? { delay } : {}),
    ...(group ? { group } : {}),
    ...(keys ? { keys } : {}),
    ...(tier ? { tier } : {}),
  }
}

function isAdded([, fields]: Entry): boolean {
  return fieldOf(fields, 'event') === 'added'
}

function isRefused([, fields]: Entry): boolean {
  return fieldOf(fields, 'event') === 'refused'
}

/**
 * The refused arrivals that one event reports (there is at most one event per second): the last at the event's time,
 * the others spread over the second before it.
 */
function refusedArrivals([id, fields]: Entry, fromMs: number): { isGone: boolean; arrival: RecordedArrival }[] {
  const count = Number(fieldOf(fields, 'count'))
  const atMs = timeOf(id)
  return Array.from({ length: count }, (_, i) => {
    const at = Math.max(fromMs, Math.ceil(atMs - (REPORTED_WITHIN_MS * (count - 1 - i)) / count))
    return { isGone: false, arrival: { at, name: '', cost: 1, refused: true } }
  })
}

function fieldOf(fields: readonly string[], name: string): string {
  for (let i = 0; i + 1 < fields.length; i += 2) if (fields[i] === name) return fields[i + 1] as string
  return ''
}

/** ms since 1970 */
function timeOf(id: string): number {
  return Number(id.split('-')[0])
}

async function lastId(redis: RecorderRedis, key: string): Promise<string> {
  const [last] = (await redis.xrevrange(key, '+', '-', 'COUNT', 1)) as Entry[]
  return last?.[0] ?? BEGINNING
}

/** Whether entries after that id may have been trimmed. Redis before 7 does not report how many were ever added. */
async function isTrimmedAfter(redis: RecorderRedis, key: string, id: string): Promise<boolean | undefined> {
  try {
    const info = (await redis.xinfo('STREAM', key)) as unknown[]
    const value = (name: string) => info[info.indexOf(name) + 1]
    if (!info.includes('entries-added')) return undefined
    const first = value('first-entry') as Entry | null
    const trimmed = Number(value('entries-added')) > Number(value('length'))
    return trimmed && (first === null || isLater(first[0], id))
  } catch {
    // There is no stream yet, or the user may only read streams.
    return undefined
  }
}

function isLater(one: string, other: string): boolean {
  const [oneMs, oneNumber] = one.split('-').map(BigInt) as [bigint, bigint]
  const [otherMs, otherNumber] = other.split('-').map(BigInt) as [bigint, bigint]
  return oneMs === otherMs ? oneNumber > otherNumber : oneMs > otherMs
}

/** Redis's time, ms, extrapolated from one reading. */
async function redisClock(redis: RecorderRedis): Promise<() => number> {
  const [seconds, micros] = await redis.time()
  const offsetMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) - performance.now()
  return () => performance.now() + offsetMs
}
