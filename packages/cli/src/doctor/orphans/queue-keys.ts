import type { Redis } from 'ioredis'

const PAGE = 1000
const MAX_PAGES = 1000
/** For each kind and queue: enough to show that something is wrong, and a bound on the follow-up commands. */
const MAX_KEPT = 10_000
/** Keys under a queue's base that are not jobs. */
const STRUCTURE = new Set([
  ...['', 'active', 'wait', 'waiting-children', 'paused', 'id', 'delayed', 'prioritized', 'stalled-check', 'completed'],
  ...['failed', 'stalled', 'repeat', 'limiter', 'meta', 'events', 'pc', 'marker', 'de', 'priority'],
])
const JOB_PART = /^(.+):(lock|logs|dependencies|processed|failed|unsuccessful)$/
/** A job of a scheduler; other keys with this prefix are BullMQ's own, not jobs. */
const SCHEDULED = /^repeat:.+:\d+$/
const NO_JOB = /^(repeat|de|dn|metrics|relay):/

/** The keys of one queue, by their kind. */
export interface QueueKeys {
  /** Whether BullMQ knows the queue. */
  exists: boolean
  /** Ids of keys that look like jobs. */
  readonly jobs: string[]
  /** Ids of jobs that have a lock. */
  readonly locks: string[]
  /** Logs and dependencies: the job's id, and the key after the base. */
  readonly parts: (readonly [id: string, suffix: string])[]
  /** Sluice's keys, after the base: `meta:shape`. */
  readonly own: string[]
}

export interface ScannedKeys {
  readonly queues: ReadonlyMap<string, QueueKeys>
  readonly keys: number
  /** False if the bound was reached before the end. */
  readonly complete: boolean
}

/** Scans all keys under a prefix, up to a bound of 1,000 pages of 1,000 keys of the server. */
export async function scanQueueKeys(client: Redis, prefix: string): Promise<ScannedKeys> {
  const queues = new Map<string, QueueKeys>()
  const match = `${prefix.replaceAll(/[*?[\]\\]/g, '\\$&')}:*`
  let keys = 0
  let cursor = '0'
  for (let page = 0; page < MAX_PAGES; page++) {
    const [next, found] = await client.scan(cursor, 'MATCH', match, 'COUNT', PAGE)
    keys += found.length
    for (const key of found) sort(queues, key.slice(prefix.length + 1))
    cursor = next
    if (cursor === '0') return { queues, keys, complete: true }
  }
  return { queues, keys, complete: false }
}

function sort(queues: Map<string, QueueKeys>, rest: string): void {
  const colon = rest.indexOf(':')
  const name = rest.slice(0, colon)
  // Without a colon it is not a queue's key; limits may share the prefix.
  if (colon < 0 || name === 'limit') return
  const keys = queues.get(name) ?? { exists: false, jobs: [], locks: [], parts: [], own: [] }
  queues.set(name, keys)
  place(keys, rest.slice(colon + 1))
}

function place(keys: QueueKeys, suffix: string): void {
  if (STRUCTURE.has(suffix)) {
    keys.exists = true
    return
  }
  if (suffix.startsWith('meta:')) {
    keep(keys.own, suffix)
    return
  }
  const [, id, part] = JOB_PART.exec(suffix) ?? []
  if (part === 'lock') keep(keys.locks, id as string)
  else if (part !== undefined) keep(keys.parts, [id as string, suffix] as const)
  else if (SCHEDULED.test(suffix) || !NO_JOB.test(suffix)) keep(keys.jobs, suffix)
}

function keep<T>(list: T[], item: T): void {
  if (list.length < MAX_KEPT) list.push(item)
}
