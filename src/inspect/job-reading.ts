import type { GroupRowView, StoredClosed } from '../queue/groups.ts'
import type { Batch, BatchClient, Deferred } from './batch.ts'
import type { HolderView } from './group-holders.ts'
import { QUEUE_ASKED, type QueueView } from './queue-reading.ts'
import type { Explanation } from './queue-status.ts'
import { readView } from './view.ts'

/** When a waiting job may start. Times are µs as text. */
export interface JobPlaceView {
  /** Jobs that depart before it; for a delayed job, also those that are due sooner. */
  readonly ahead?: number
  /** When the rate alone lets it start, and when the limits do too; then the limit that does so last. */
  readonly rateStart?: string
  readonly limitStart?: string
  readonly limit?: string
  /** The name of a limit whose places are all taken by running jobs: when one becomes free is unknown. */
  readonly taken?: string
  /** In a queue with groups, for a job that is in line. */
  readonly group?: {
    /** undefined for a job without a group. */
    readonly row?: GroupRowView
    /** Jobs of its group, or without one, that depart before it. */
    readonly before: number
    /** When its group lets it go, absent if unknown; and the limit per group that does so last, if one does. */
    readonly start?: string
    readonly limit?: string
    /** The last slot of its group, if it has a rate. */
    readonly served?: string
  }
  /** In a queue whose limits have keys. */
  readonly lane?: {
    /** Jobs of its lane that depart before it. */
    readonly before: number
    /** Whether the lane waits behind others, or until a limit has room for it. */
    readonly waits?: true
    /**
     * The limit that holds the lane, the values of its keys, and until when at least; if jobs have to end first, the
     * Redis key that has the holders of the places.
     */
    readonly hold?: LaneHoldView & {
      readonly places?: string
      readonly closed?: StoredClosed
      /** Other limits that hold it, for less time. */
      readonly others?: readonly LaneHoldView[]
    }
  }
}

interface LaneHoldView {
  readonly limit: string
  readonly keys: Readonly<Record<string, string>>
  readonly ends?: string
}

/** A stored job in a view. */
export interface StoredJobView {
  readonly fields: Readonly<Partial<Record<string, string>>>
  readonly state: Explanation['state']
  /** For a delayed job. */
  readonly dueMs?: number
  readonly cost: number
  /** In other units. */
  readonly costs?: Readonly<Record<string, number>>
}

/** The result of `lua/views/job.lua` for a job, and its queue. */
export interface JobView extends StoredJobView, JobPlaceView {
  /** Whether it waits in the part of a long list that is not searched, or behind more groups than are counted. */
  readonly isAheadAtLeast: boolean
  readonly queue: QueueView
  /** The jobs that hold the places for which it waits. */
  readonly holders: readonly HolderView[]
}

export type FoundJob = ReturnType<typeof jobOf>

/** @returns undefined where there is no such job */
export function readJobView(redis: BatchClient, base: string, id: string): Promise<JobView | undefined> {
  return readView<JobView>(redis, base, 'job', { id, ...QUEUE_ASKED })
}

export function jobOf({ fields, state, cost, costs, dueMs }: StoredJobView) {
  const { name = '', timestamp, ats = 0, processedOn, opts = '{}', throttledFor, failedReason } = fields
  const { delay = 0, keys } = JSON.parse(opts) as { delay?: number; keys?: Readonly<Record<string, string>> }
  return {
    ...{ name, state, cost, costs, keys },
    addedMs: Number(timestamp),
    /** When it was or is due for the first time, by its options. */
    dueMs: dueMs ?? Number(timestamp) + delay,
    attemptsStarted: Number(ats),
    departedMs: processedOn ? Number(processedOn) : undefined,
    throttledFor: throttledFor || undefined,
    failedReason: failedReason || undefined,
  }
}

/** Whether there is a job with this id. */
export function isJob(base: string, id: string, batch: Batch): Deferred<boolean> {
  const fields = batch.add<(string | null)[]>('hmget', base + id, 'timestamp')
  return () => typeof fieldsOf(fields)[0] === 'string'
}

/** An id may be the name of one of BullMQ's lists or sets: that is not a job. */
function fieldsOf(answer: Deferred<(string | null)[]>): (string | null)[] {
  try {
    return answer()
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('WRONGTYPE')) return []
    throw error
  }
}
