import { workerOfLock } from '../redis/ids.ts'
import { Batch, type BatchClient, type Deferred } from './batch.ts'

/** A worker that runs jobs reports at least every 12 s. */
const SILENT_MS = 20_000
/** At most this many are looked up. */
const MOST = 20

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

/** The jobs that hold the places of a group, jobs of silent workers first: they hold it until their locks end. */
export async function groupHolders(
  redis: BatchClient,
  base: string,
  group: string,
  nowMs: number,
): Promise<readonly GroupHolder[]> {
  const batch = new Batch(redis)
  const members = batch.add<string[]>('smembers', `${base}meta:group:held:${group}`)
  await batch.run()
  const jobs = members()
    .slice(0, MOST)
    .map((id) => ({ base, id }))
  return holdersOf(redis, base, jobs, nowMs)
}

/**
 * The same for the places of a limit for one value of its keys.
 * @param key of its state, in which each holder has at least one member: a number and the key of its job
 */
export async function placeHolders(
  redis: BatchClient,
  base: string,
  key: string,
  nowMs: number,
): Promise<readonly GroupHolder[]> {
  const batch = new Batch(redis)
  const members = batch.add<string[]>('zrange', key, 0, 2 * MOST)
  await batch.run()
  const jobs = members().flatMap((member) => {
    // Leases of limiters have no colon.
    const [, itsBase, id] = /^1 (.*:)([^:]*)$/s.exec(member) ?? []
    return itsBase === undefined || id === undefined ? [] : [{ base: itsBase, id }]
  })
  return holdersOf(redis, base, jobs.slice(0, MOST), nowMs)
}

interface HoldingJob {
  readonly base: string
  readonly id: string
}

async function holdersOf(
  redis: BatchClient,
  ownBase: string,
  jobs: readonly HoldingJob[],
  nowMs: number,
): Promise<readonly GroupHolder[]> {
  if (jobs.length === 0) return []
  const batch = new Batch(redis)
  const rows = new Map([...new Set(jobs.map(({ base }) => base))].map((base) => [base, workersOf(batch, base)]))
  const locks = jobs.map(({ base, id }) => ({
    ...{ base, id },
    token: batch.add<string | null>('get', `${base}${id}:lock`),
    lastsMs: batch.add<number>('pttl', `${base}${id}:lock`),
    name: batch.add<string | null>('hget', base + id, 'pb'),
    delayed: batch.add<string | null>('zscore', `${base}delayed`, id),
    isParent: batch.add<string | null>('zscore', `${base}waiting-children`, id),
    isWaiting: batch.add<string | null>('zscore', `${base}prioritized`, id),
  }))
  await batch.run()
  const holders = locks.map(({ base, id, token, lastsMs, name, delayed, isParent, isWaiting }) => {
    const worker = workerOfLock(token())
    const row = readRow(worker === undefined ? undefined : rows.get(base)?.()[worker])
    const seenMs = row?.seen
    const due = delayed()
    return {
      jobId: id,
      ...(base === ownBase ? {} : { queue: base }),
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

function workersOf(batch: Batch, base: string): Deferred<Readonly<Record<string, string>>> {
  return batch.add<Readonly<Record<string, string>>>('hgetall', `${base}meta:workers`)
}

interface Row {
  readonly seen?: number
  readonly name?: string
  readonly host?: string
  readonly pid?: number
}

/** An unreadable row counts as missing: another version may have written it. */
function readRow(json: string | undefined): Row | undefined {
  try {
    return json === undefined ? undefined : (JSON.parse(json) as Row)
  } catch {
    return undefined
  }
}
