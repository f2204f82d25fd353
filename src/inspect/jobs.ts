import { byReason, commonPart, type ReasonCount, shortReason } from '../reports/recent-ends.ts'
import { type Batch, type BatchClient, type Deferred, inBatch } from './batch.ts'
import { type JobWorkerView, workerText } from './group-holders.ts'
import { listOf, readView } from './view.ts'

/** The states of jobs that can be listed. */
export const JOB_STATES = [
  ...(['waiting', 'prioritized', 'delayed', 'active', 'completed', 'failed', 'waiting-children'] as const),
]

export type JobState = (typeof JOB_STATES)[number]

export interface JobsOptions {
  /** How many to skip. Default 0. */
  readonly start?: number
  /** Maximum number of jobs. Default 50. */
  readonly count?: number
  /** Whether to read the jobs' data. Default false. */
  readonly data?: boolean
}

/** A job in a list. */
export interface JobRow {
  readonly id: string
  readonly name: string
  readonly addedAt: Date
  /** 0: none. */
  readonly priority: number
  /** The id of its group. */
  readonly group?: string
  /** The delay with which it was added or delayed again, ms. */
  readonly delayMs: number
  /** Number of departures. */
  readonly attemptsStarted: number
  readonly failedReason?: string
  readonly startedAt?: Date
  readonly finishedAt?: Date
  /** For an active job: the worker that runs it, by its name, host and process, as far as known. */
  readonly worker?: string
  /** Units of the rate. */
  readonly cost: number
  /** The job's data; only if requested. */
  readonly data?: unknown
}

/** Failed jobs whose reason contains a text. */
export interface FailedMatches {
  readonly jobs: readonly JobRow[]
  /** Number of matches, among the searched jobs. */
  readonly found: number
  /** Whether older ones were not searched. */
  readonly isFoundAtLeast: boolean
}

/** Failed jobs whose reasons differ only in numbers and ids. */
export interface FailedReason {
  /** The first line of the reason of one of them. */
  readonly reason: string
  readonly count: number
  /** A common part of the reasons, by which {@link FailedMatches} finds them. */
  readonly contains: string
}

/** Why jobs of a queue have failed, the most frequent reason first. */
export interface FailedReasons {
  readonly reasons: readonly FailedReason[]
  /** Number of jobs that were read: the last failed ones that are kept. */
  readonly searched: number
}

/**
 * Asks for the ids of a state, starting with the next to depart, the next due, the longest running, or the last ended.
 */
export function askForIds(
  base: string,
  state: JobState,
  batch: Batch,
  { start = 0, count = 50 }: JobsOptions,
): Deferred<string[]> {
  const end = start + count - 1
  // Both lists have their oldest entry at the end.
  const ofList = (list: string): Deferred<string[]> => {
    const answer = batch.add<string[]>('lrange', base + list, -end - 1, -start - 1)
    return () => [...answer()].reverse()
  }
  if (count <= 0) return () => []
  if (state === 'waiting') return ofList('wait')
  if (state === 'active') return ofList('active')
  const ended = state === 'completed' || state === 'failed'
  return batch.add('zrange', base + state, start, end, ...(ended ? ['REV'] : []))
}

/** Failed jobs that are searched for a reason, and how many in one round trip. */
const SEARCHED = 10_000
const SEARCHED_AT_ONCE = 1000

/** Number of failed jobs that are grouped by their reasons. */
const GROUPED = 1000
const MOST_REASONS = 20

/** The reasons of the jobs that failed last, and how many failed for each. */
export async function readReasons(redis: BatchClient, base: string): Promise<FailedReasons> {
  const ids = await inBatch(redis, (batch) => askForIds(base, 'failed', batch, { count: GROUPED }))
  const reasons = await reasonsOf(redis, base, ids)
  return failedReasons(reasons.map((reason) => [shortReason(reason), 1]))
}

/** The same for all shards of a queue. */
export function allReasons(found: readonly FailedReasons[]): FailedReasons {
  const counts = found.flatMap(({ reasons }) => reasons.map(({ reason, count }) => [reason, count] as const))
  return { ...failedReasons(counts), searched: found.reduce((sum, { searched }) => sum + searched, 0) }
}

function failedReasons(counts: readonly ReasonCount[]): FailedReasons {
  const reasons = byReason(counts).slice(0, MOST_REASONS)
  return {
    reasons: reasons.map(([reason, count]) => ({ reason, count, contains: commonPart(reason) })),
    searched: counts.reduce((sum, [, count]) => sum + count, 0),
  }
}

async function reasonsOf(redis: BatchClient, base: string, ids: readonly string[]): Promise<string[]> {
  return inBatch(redis, (batch) => {
    const answers = ids.map((id) => batch.add<string | null>('hget', base + id, 'failedReason'))
    return () => answers.map((answer) => answer() ?? '')
  })
}

/** The ids of the failed jobs whose reason contains a text, the latest first. */
export async function searchFailed(redis: BatchClient, base: string, text: string) {
  const found: string[] = []
  for (let from = 0; from < SEARCHED; from += SEARCHED_AT_ONCE) {
    const ids = await inBatch(redis, (batch) =>
      batch.add<string[]>('zrange', `${base}failed`, from, from + SEARCHED_AT_ONCE - 1, 'REV'),
    )
    const reasons = await reasonsOf(redis, base, ids)
    for (const [i, id] of ids.entries()) if (reasons[i]?.includes(text)) found.push(id)
    if (ids.length < SEARCHED_AT_ONCE) return { ids: found, isAll: true }
  }
  return { ids: found, isAll: false }
}

/** A row of `lua/views/job.lua`. */
interface RowView {
  readonly id: string
  readonly fields: Readonly<Partial<Record<string, string>>>
  readonly cost: number
  readonly group?: string
  readonly data?: string
  readonly worker?: JobWorkerView
}

/** The id of a job, and the key prefix of its queue or shard. */
export interface JobPlace {
  readonly base: string
  readonly id: string
}

/**
 * Rows of jobs; missing ones are left out.
 * @param reads in addition to their fields: their data, and the workers that run them
 */
export async function readRows(
  redis: BatchClient,
  places: readonly JobPlace[],
  reads: { readonly data?: boolean; readonly worker?: boolean } = {},
): Promise<JobRow[]> {
  const bases = [...new Set(places.map(({ base }) => base))]
  const idsOf = (base: string) => places.filter((place) => place.base === base).map(({ id }) => id)
  const views = await Promise.all(
    bases.map((base) => readView<RowsView>(redis, base, 'rows', { ids: idsOf(base), ...reads })),
  )
  const rows = views.map((view) => new Map(listOf(view?.rows ?? []).map((row) => [row.id, row])))
  return places.flatMap(({ base, id }) => {
    const row = rows[bases.indexOf(base)]?.get(id)
    return row ? [rowOf(row)] : []
  })
}

interface RowsView {
  readonly rows: readonly RowView[]
}

function rowOf({ id, fields, cost, group, data, worker: runner }: RowView): JobRow {
  const worker = runner && workerText(runner)
  const { name = '', timestamp, priority = 0, delay = 0, ats = 0, failedReason, processedOn, finishedOn } = fields
  return {
    ...{ id, name, cost, priority: Number(priority), delayMs: Number(delay), attemptsStarted: Number(ats) },
    addedAt: new Date(Number(timestamp)),
    ...(group === undefined ? {} : { group }),
    ...(failedReason ? { failedReason } : {}),
    ...(processedOn ? { startedAt: new Date(Number(processedOn)) } : {}),
    ...(finishedOn ? { finishedAt: new Date(Number(finishedOn)) } : {}),
    ...(worker === undefined ? {} : { worker }),
    ...(data === undefined ? {} : { data: jsonOf(data) }),
  }
}

/** Text that is not JSON is returned unchanged. */
export function jsonOf(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return json
  }
}
