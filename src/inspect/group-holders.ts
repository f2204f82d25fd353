import { dateOfUs } from '../queue/groups.ts'
import { listOf } from './view.ts'

/** A worker that runs jobs reports at least every 12 s. */
const SILENT_MS = 20_000

/**
 * A job that holds a place of its group, or of a limit by keys. A live worker renews the lock of its job. The lock of a
 * dead one expires, and the place is free once BullMQ's check for stalled jobs has found that.
 */
export interface GroupHolder {
  readonly jobId: string
  /** In strict order, a job holds its group until its final attempt has ended, also while it does not run. */
  readonly state: 'running' | 'delayed' | 'waiting-children' | 'waiting'
  /** When it is due, if it is delayed. */
  readonly dueAt: Date | undefined
  /** The key prefix of its queue, as `bull:chats:`, if that is another one that shares the limit. */
  readonly queue?: string
  /** When its lock ends, if it is not renewed; undefined if it has ended. */
  readonly lockEndsAt: Date | undefined
  /** Its worker, as far as known: `name` is BullMQ's option, `id` the worker's in the list of workers. */
  readonly worker: {
    readonly id: string | undefined
    readonly name: string | undefined
    readonly host: string | undefined
    readonly pid: number | undefined
    /** Its last report. */
    readonly seenAt: Date | undefined
  }
  /** Whether the worker has not reported for so long that it has died, is cut off, or computes. */
  readonly isSilent: boolean
}

/** The worker of a job in a view, as far as known. */
export interface JobWorkerView {
  readonly id?: string
  readonly name?: string
  readonly host?: string
  readonly pid?: number
  readonly seen?: number
}

/** A holder in a view. */
export interface HolderView extends Pick<GroupHolder, 'state'> {
  readonly id: string
  readonly base?: string
  readonly dueMs?: number
  /** µs */
  readonly lockEnds?: string
  readonly worker: JobWorkerView
}

/** The holders of a view, jobs of silent workers first: they hold their places until their locks end. */
export function holdersOf(views: readonly HolderView[], nowMs: number): readonly GroupHolder[] {
  const holders = listOf(views).map(({ id: jobId, base, state, dueMs, lockEnds, worker }) => ({
    ...{ jobId, state },
    ...(base === undefined ? {} : { queue: base }),
    dueAt: dueMs === undefined ? undefined : new Date(dueMs),
    lockEndsAt: dateOfUs(lockEnds),
    worker: {
      ...{ id: worker.id, name: worker.name, host: worker.host, pid: worker.pid },
      seenAt: worker.seen === undefined ? undefined : new Date(worker.seen),
    },
    isSilent: worker.seen !== undefined && nowMs - worker.seen > SILENT_MS,
  }))
  return holders.sort((one, other) => Number(other.isSilent) - Number(one.isSilent))
}

/** `mailer · host-a · 4711`, as far as known: the name of a worker, its host and process. */
export function workerText({ name, host, pid }: JobWorkerView): string | undefined {
  return [name, host, pid].filter(Boolean).join(' · ') || undefined
}
