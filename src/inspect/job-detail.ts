import type { BatchClient } from './batch.ts'
import { type JobWorkerView, workerText } from './group-holders.ts'
import { jobOf, type StoredJobView } from './job-reading.ts'
import { jsonOf } from './jobs.ts'
import type { Explanation } from './queue-status.ts'
import { listOf, readView } from './view.ts'

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

/** The result of `lua/views/job.lua` for it. */
interface DetailView extends StoredJobView {
  readonly worker: JobWorkerView
  readonly logs: readonly string[]
  readonly data?: { readonly data?: string; readonly returnvalue?: string }
}

/** undefined where there is no such job. */
export async function jobDetail(
  redis: BatchClient,
  base: string,
  id: string,
  options: JobDetailOptions,
): Promise<JobDetail | undefined> {
  const view = await readView<DetailView>(redis, base, 'detail', { id, ...options })
  if (!view) return undefined
  const { name, state, addedMs, departedMs, failedReason } = jobOf(view)
  const { atm = 0, finishedOn, stacktrace, progress = '0', opts = '{}' } = view.fields
  const { data = '{}', returnvalue = 'null' } = view.data ?? {}
  const worker = workerText(view.worker)
  return {
    ...{ id, name, state },
    attemptsMade: Number(atm),
    addedAt: new Date(addedMs),
    ...(departedMs === undefined ? {} : { startedAt: new Date(departedMs) }),
    ...(finishedOn ? { endedAt: new Date(Number(finishedOn)) } : {}),
    ...(failedReason === undefined ? {} : { failedReason }),
    ...(worker === undefined ? {} : { worker }),
    progress: jsonOf(progress),
    logs: listOf(view.logs),
    stacktrace: tracesOf(stacktrace),
    ...(view.data ? { data: jsonOf(data), returnvalue: jsonOf(returnvalue), opts: longNames(opts) } : {}),
  }
}

function tracesOf(json = '[]'): string[] {
  const traces = jsonOf(json)
  return Array.isArray(traces) ? traces.map(String) : []
}

/** BullMQ stores some options under short names. */
const LONG_NAMES: Readonly<Record<string, string>> = {
  ...{ de: 'deduplication', fpof: 'failParentOnFailure', cpof: 'continueParentOnFailure', kl: 'keepLogs' },
  ...{ idof: 'ignoreDependencyOnFailure', rdof: 'removeDependencyOnFailure' },
}

function longNames(opts: string): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(Object(jsonOf(opts))).map(([name, value]) => [LONG_NAMES[name] ?? name, value]),
  )
}
