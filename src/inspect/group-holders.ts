import { workerOfLock } from '../redis/ids.ts'
import { Batch, type BatchClient } from './batch.ts'

/** A worker that runs jobs reports at least every 12 s. */
const SILENT_MS = 20_000
/** At most so many are looked up. */
const MOST = 20

/**
 * A job that holds a place of its group. A worker that lives renews the lock of its job; that of one that died ends, and
 * the place is free once BullMQ's check for stalled jobs has found that.
 */
export interface GroupHolder {
  readonly jobId: string
  /** In strict order, a job holds its group until it has ended for good, also while it does not run. */
  readonly state: 'running' | 'delayed' | 'waiting-children' | 'waiting'
  /** When it is due, if it is delayed. */
  readonly dueAt: Date | undefined
  /** When its lock ends, if it is not renewed; undefined if it has ended. */
  readonly lockEndsAt: Date | undefined
  /** Its worker, as far as that is known: `name` is BullMQ's option, `id` that of the worker in the list of workers. */
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

/** The jobs that hold the places of a group, those of silent workers first: they hold it until their locks end. */
export async function groupHolders(
  redis: BatchClient,
  base: string,
  group: string,
  nowMs: number,
): Promise<readonly GroupHolder[]> {
  const first = new Batch(redis)
  const members = first.add<string[]>('smembers', `${base}meta:group:held:${group}`)
  await first.run()
  const ids = members().slice(0, MOST)
  if (ids.length === 0) return []
  const second = new Batch(redis)
  const locks = ids.map((id) => ({
    id,
    token: second.add<string | null>('get', `${base}${id}:lock`),
    lastsMs: second.add<number>('pttl', `${base}${id}:lock`),
    name: second.add<string | null>('hget', base + id, 'pb'),
    delayed: second.add<string | null>('zscore', `${base}delayed`, id),
    isParent: second.add<string | null>('zscore', `${base}waiting-children`, id),
    isWaiting: second.add<string | null>('zscore', `${base}prioritized`, id),
  }))
  const rows = second.add<Readonly<Record<string, string>>>('hgetall', `${base}meta:workers`)
  await second.run()
  const holders = locks.map(({ id, token, lastsMs, name, delayed, isParent, isWaiting }) => {
    const worker = workerOfLock(token())
    const row = readRow(worker === undefined ? undefined : rows()[worker])
    const seenMs = row?.seen
    const due = delayed()
    return {
      jobId: id,
      state: stateOf({ delayed: due, 'waiting-children': isParent(), waiting: isWaiting() }),
      // BullMQ's score is the time in ms * 4096 and a counter.
      dueAt: due === null ? undefined : new Date(Math.floor(Number(due) / 4096)),
      lockEndsAt: lastsMs() > 0 ? new Date(nowMs + lastsMs()) : undefined,
      worker: {
        id: worker,
        name: row?.name ?? name() ?? undefined,
        host: row?.host,
        pid: row?.pid,
        seenAt: seenMs === undefined ? undefined : new Date(seenMs),
      },
      isSilent: seenMs !== undefined && nowMs - seenMs > SILENT_MS,
    }
  })
  return holders.sort((one, other) => Number(other.isSilent) - Number(one.isSilent))
}

function stateOf(
  scores: Readonly<Record<Exclude<GroupHolder['state'], 'running'>, string | null>>,
): GroupHolder['state'] {
  const states = ['delayed', 'waiting-children', 'waiting'] as const
  return states.find((state) => scores[state] !== null) ?? 'running'
}

interface Row {
  readonly seen?: number
  readonly name?: string
  readonly host?: string
  readonly pid?: number
}

/** An unreadable row is as good as none: another version may have written it. */
function readRow(json: string | undefined): Row | undefined {
  try {
    return json === undefined ? undefined : (JSON.parse(json) as Row)
  } catch {
    return undefined
  }
}
