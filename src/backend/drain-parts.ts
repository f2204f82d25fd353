import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'

/** A part holds Redis up for some ms. As many jobs as that are drained in one go, by BullMQ's own script alone. */
export const DRAIN_PART_JOBS = 500

/**
 * Removes all jobs that wait now, and the delayed ones where that is asked for; what is added meanwhile stays. Drains that
 * were broken off are ended too.
 */
export async function drainInParts(store: ShapeStore, withDelayed: boolean): Promise<void> {
  const begin = [uniqueId(), withDelayed ? 'begin all' : 'begin', DRAIN_PART_JOBS]
  const drains = (await store.run('drain-part', begin)) as readonly string[]
  for (const drain of drains) {
    while ((await store.run('drain-part', [drain, 'go', DRAIN_PART_JOBS])) === 1);
  }
}
