import type { Client } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'

/** Jobs that a script of a drain removes, which blocks Redis for less than 5 ms. */
const DRAINED_TOGETHER = 60
/** The same for an obliterate, which is called again while jobs are left. BullMQ's 1000 take 15 ms. */
export const OBLITERATED_TOGETHER = 250

/** Keys of the jobs that have not ended. */
const JOB_LISTS = ['wait', 'paused', 'active'] as const
const JOB_SETS = ['prioritized', 'delayed', 'waiting-children'] as const

/**
 * Removes all jobs that wait now, by an id: BullMQ's script, when resent, would also remove jobs added meanwhile. It
 * would block Redis for seconds in a long queue, and groups that are held, or have delayed jobs, would not learn that
 * those jobs are gone. Interrupted drains are completed too.
 */
export async function drainQueue(store: ShapeStore, delayed: boolean): Promise<void> {
  await store.prepared()
  const begin = [uniqueId(), delayed ? 'begin all' : 'begin', DRAINED_TOGETHER]
  const drains = (await store.run('drain-part', begin)) as readonly string[]
  for (const drain of drains) {
    while ((await store.run('drain-part', [drain, 'go', DRAINED_TOGETHER])) === 1);
  }
}

/**
 * Whether a queue that refuses an obliterate because it is not paused is already gone: so a resent call finds it after
 * a lost reply. A queue that another program resumed has jobs, or may be empty: then nothing is lost with it.
 */
export async function isGone(error: Error, client: Client, toKey: (type: string) => string): Promise<boolean> {
  if (!error.message.includes('non-paused')) return false
  const lists = JOB_LISTS.map((type) => client.llen(toKey(type)))
  const sets = JOB_SETS.map((type) => client.zcard(toKey(type)))
  const [meta, ...lengths] = await Promise.all([client.hgetall(toKey('meta')), ...lists, ...sets])
  return Object.keys(meta).length === 0 && lengths.every((length) => length === 0)
}
