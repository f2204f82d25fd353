import type { Client } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'

/** Jobs per part, which blocks Redis for less than 5 ms. BullMQ's own script drains a queue of up to this many. */
const PART_JOBS = 150

/**
 * Whether BullMQ's own script may drain a queue. It would block Redis for seconds where the queue is long, and groups
 * that are held, or have delayed jobs, would not learn that those jobs are gone.
 */
export async function fitsOneScript(
  client: Client,
  toKey: (type: string) => string,
  withDelayed: boolean,
): Promise<boolean> {
  const [drains, heldGroups, laterJobs, ...waiting] = await Promise.all([
    client.smembers(toKey('meta:draining')),
    client.zcard(toKey('meta:groups:limited')),
    client.zcard(toKey('meta:groups:later')),
    client.llen(toKey('wait')),
    client.llen(toKey('paused')),
    client.zcard(toKey('prioritized')),
    withDelayed ? client.zcard(toKey('delayed')) : 0,
  ])
  const jobs = waiting.reduce((sum, length) => sum + length, 0)
  return jobs <= PART_JOBS && drains.length === 0 && heldGroups === 0 && !(withDelayed && laterJobs > 0)
}

/**
 * Removes all jobs that wait now, and the delayed ones on request; jobs added meanwhile stay. Drains that were
 * interrupted are completed too.
 */
export async function drainInParts(store: ShapeStore, withDelayed: boolean): Promise<void> {
  const begin = [uniqueId(), withDelayed ? 'begin all' : 'begin', PART_JOBS]
  const drains = (await store.run('drain-part', begin)) as readonly string[]
  for (const drain of drains) {
    while ((await store.run('drain-part', [drain, 'go', PART_JOBS])) === 1);
  }
}
