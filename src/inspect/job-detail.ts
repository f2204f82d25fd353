import { type Answer, Batch, type BatchClient } from './batch.ts'
import { JobReading } from './job-reading.ts'
import { JobWorkerReading } from './job-worker.ts'
import { jsonOf } from './jobs.ts'
import type { Explanation } from './queue-status.ts'

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
  /** What its processor reported last: a number, or any JSON. 0: nothing. */
  readonly progress: unknown
  /** Oldest first. */
  readonly logs: readonly string[]
  /** One for each attempt that failed, oldest first; BullMQ keeps some. */
  readonly stacktrace: readonly string[]
  /** Only where requested, as the next two. */
  readonly data?: unknown
  readonly returnvalue?: unknown
  readonly opts?: Readonly<Record<string, unknown>>
}

const FIELDS = ['atm', 'finishedOn', 'stacktrace', 'progress'] as const
const DATA_FIELDS = ['data', 'returnvalue', 'opts'] as const
/** How often to look up a job that moves from one state to another during the read. */
const ATTEMPTS = 3

/** undefined where there is no such job. */
export async function jobDetail(
  redis: BatchClient,
  base: string,
  id: string,
  options: JobDetailOptions,
): Promise<JobDetail | undefined> {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const batch = new Batch(redis)
    const reading = new DetailReading(base, id, batch, { ...options, isLast: attempt === ATTEMPTS })
    await batch.run()
    const more = new Batch(redis)
    reading.more(more)
    await more.run()
    const detail = reading.detail()
    if (detail) return detail
  }
  return undefined
}

class DetailReading {
  readonly #id: string
  readonly #job: JobReading
  readonly #fields: Answer<(string | null)[]>
  readonly #data: Answer<(string | null)[]> | undefined
  readonly #logs: Answer<string[]>
  readonly #worker: JobWorkerReading

  constructor(
    base: string,
    id: string,
    batch: Batch,
    { data, logs, isLast }: JobDetailOptions & { readonly isLast: boolean },
  ) {
    this.#id = id
    this.#job = new JobReading(base, id, batch, isLast)
    this.#fields = batch.add('hmget', base + id, ...FIELDS)
    this.#data = data ? batch.add('hmget', base + id, ...DATA_FIELDS) : undefined
    this.#worker = new JobWorkerReading(base, id, batch)
    this.#logs = batch.add('lrange', `${base}${id}:logs`, logs === undefined ? 0 : -logs, -1)
  }

  more(batch: Batch): void {
    if (this.#job.job()) this.#worker.more(batch)
  }

  detail(): JobDetail | undefined {
    const job = this.#job.job()
    if (!job) return undefined
    const worker = this.#worker.worker()
    const [attemptsMade, finishedOn, stacktrace, progress] = this.#fields()
    const { name, state, addedMs, departedMs, failedReason } = job
    return {
      ...{ id: this.#id, name, state },
      attemptsMade: Number(attemptsMade ?? 0),
      addedAt: new Date(addedMs),
      ...(departedMs === undefined ? {} : { startedAt: new Date(departedMs) }),
      ...(finishedOn ? { endedAt: new Date(Number(finishedOn)) } : {}),
      ...(failedReason === undefined ? {} : { failedReason }),
      ...(worker === undefined ? {} : { worker }),
      progress: jsonOf(progress ?? '0'),
      logs: this.#logs(),
      stacktrace: tracesOf(stacktrace),
      ...(this.#data ? dataOf(this.#data()) : {}),
    }
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
