import { Batch, type BatchClient } from './batch.ts'
import { type JobView, jobOf } from './job-reading.ts'
import { JobWorkerReading } from './job-worker.ts'
import { jsonOf } from './jobs.ts'
import type { Explanation } from './queue-status.ts'
import { askForViews } from './view.ts'

export interface JobDetailOptions {
  /** Whether to read the job's data, its result and its options. Default false. */
  readonly data?: boolean
  /** Maximum number of lines of its log, the newest. Default: all. */
  readonly logs?: number
}

/** One job in full. */
export interface JobDetail {
  readonly id: string
  readonly name: string
  readonly state: Explanation['state']
  /** Attempts that ran to an outcome. */
  readonly attemptsMade: number
  readonly addedAt: Date
  /** When its last attempt began. */
  readonly startedAt?: Date
  readonly endedAt?: Date
  /** The worker that runs it, or ran it last, by its name, host and process, as far as known. */
  readonly worker?: string
  readonly failedReason?: string
  /** The last progress of its processor: a number, or any JSON. 0: none. */
  readonly progress: unknown
  /** Oldest first. */
  readonly logs: readonly string[]
  /** One for each failed attempt, oldest first; BullMQ keeps some. */
  readonly stacktrace: readonly string[]
  /** Only if requested, like the next two. */
  readonly data?: unknown
  readonly returnvalue?: unknown
  readonly opts?: Readonly<Record<string, unknown>>
}

const FIELDS = ['atm', 'finishedOn', 'stacktrace', 'progress'] as const
const DATA_FIELDS = ['data', 'returnvalue', 'opts'] as const

/** undefined where there is no such job. */
export async function jobDetail(
  redis: BatchClient,
  base: string,
  id: string,
  { data, logs }: JobDetailOptions,
): Promise<JobDetail | undefined> {
  const batch = new Batch(redis)
  const view = askForViews<JobView>(batch, [base], ['found', { id }])
  const fields = batch.add<(string | null)[]>('hmget', base + id, ...FIELDS)
  const stored = data ? batch.add<(string | null)[]>('hmget', base + id, ...DATA_FIELDS) : undefined
  const worker = new JobWorkerReading(base, id, batch)
  const lines = batch.add<string[]>('lrange', `${base}${id}:logs`, logs === undefined ? 0 : -logs, -1)
  await batch.run()
  const [found] = view()
  if (!found) return undefined
  const more = new Batch(redis)
  worker.more(more)
  await more.run()
  const { name, state, addedMs, departedMs, failedReason } = jobOf(found)
  const [attemptsMade, finishedOn, stacktrace, progress] = fields()
  const runner = worker.worker()
  return {
    ...{ id, name, state },
    attemptsMade: Number(attemptsMade ?? 0),
    addedAt: new Date(addedMs),
    ...(departedMs === undefined ? {} : { startedAt: new Date(departedMs) }),
    ...(finishedOn ? { endedAt: new Date(Number(finishedOn)) } : {}),
    ...(failedReason === undefined ? {} : { failedReason }),
    ...(runner === undefined ? {} : { worker: runner }),
    progress: jsonOf(progress ?? '0'),
    logs: lines(),
    stacktrace: tracesOf(stacktrace),
    ...(stored ? dataOf(stored()) : {}),
  }
}

function tracesOf(json: string | null | undefined): string[] {
  const traces = jsonOf(json ?? '[]')
  return Array.isArray(traces) ? traces.map(String) : []
}

function dataOf([data, returnvalue, opts]: (string | null)[]) {
  return {
    data: jsonOf(data ?? '{}'),
    returnvalue: jsonOf(returnvalue ?? 'null'),
    opts: longNames(jsonOf(opts ?? '{}') as Record<string, unknown>),
  }
}

/** BullMQ stores some options under short names. */
const LONG_NAMES: Readonly<Record<string, string>> = {
  ...{ de: 'deduplication', fpof: 'failParentOnFailure', cpof: 'continueParentOnFailure', kl: 'keepLogs' },
  ...{ idof: 'ignoreDependencyOnFailure', rdof: 'removeDependencyOnFailure' },
}

function longNames(opts: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(opts).map(([name, value]) => [LONG_NAMES[name] ?? name, value]))
}
