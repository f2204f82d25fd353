import type { Answer, Batch } from './batch.ts'
import { jobCostOf } from './job-cost.ts'

export type JobState = 'waiting' | 'prioritized' | 'delayed' | 'active' | 'completed' | 'failed' | 'waiting-children'

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
  /** The delay with which it was added or delayed again, ms. */
  readonly delayMs: number
  /** How often it departed. */
  readonly attemptsStarted: number
  readonly failedReason?: string
  readonly startedAt?: Date
  readonly finishedAt?: Date
  /** Units of the rate. */
  readonly cost: number
  /** The job's data; only where requested. */
  readonly data?: unknown
}

const FIELDS = [
  ...['name', 'timestamp', 'priority', 'delay', 'ats', 'failedReason', 'processedOn', 'finishedOn', 'opts'],
] as const

/** Asks for the ids of a state, first the job that leaves next, is due next, has run longest, or ended last. */
export function askForIds(
  base: string,
  state: JobState,
  batch: Batch,
  { start = 0, count = 50 }: JobsOptions,
): Answer<string[]> {
  const end = start + count - 1
  // Both lists have their oldest entry at the end.
  const ofList = (list: string): Answer<string[]> => {
    const answer = batch.add<string[]>('lrange', base + list, -end - 1, -start - 1)
    return () => [...answer()].reverse()
  }
  if (count <= 0) return () => []
  if (state === 'waiting') return ofList('wait')
  if (state === 'active') return ofList('active')
  const ended = state === 'completed' || state === 'failed'
  return batch.add('zrange', base + state, start, end, ...(ended ? ['REV'] : []))
}

/** What a list shows of a job. */
export class JobRowReading {
  readonly #id: string
  readonly #fields: Answer<(string | null)[]>
  readonly #data: Answer<string | null> | undefined

  constructor(base: string, id: string, batch: Batch, withData = false) {
    this.#id = id
    this.#fields = batch.add('hmget', base + id, ...FIELDS)
    this.#data = withData ? batch.add('hget', base + id, 'data') : undefined
  }

  /** undefined for a job that no longer exists. */
  row(): JobRow | undefined {
    const [name, timestamp, priority, delay, ats, failedReason, processedOn, finishedOn, opts] = this.#fields()
    if (typeof timestamp !== 'string') return undefined
    return {
      id: this.#id,
      name: name ?? '',
      addedAt: new Date(Number(timestamp)),
      priority: Number(priority ?? 0),
      delayMs: Number(delay ?? 0),
      attemptsStarted: Number(ats ?? 0),
      ...(failedReason ? { failedReason } : {}),
      ...(processedOn ? { startedAt: new Date(Number(processedOn)) } : {}),
      ...(finishedOn ? { finishedAt: new Date(Number(finishedOn)) } : {}),
      cost: jobCostOf(opts).cost,
      ...(this.#data ? { data: jsonOf(this.#data() ?? 'null') } : {}),
    }
  }
}

/** Text that is not JSON is returned as it is. */
export function jsonOf(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return json
  }
}
