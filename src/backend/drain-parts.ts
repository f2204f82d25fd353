import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'

/** A part blocks Redis for some ms. Up to this many jobs are drained at once, by BullMQ's own script alone. */
export const DRAIN_PART_JOBS = 500

/**
 * Removes all jobs that wait now, and the delayed ones on request; jobs added meanwhile stay. Drains that were
 * interrupted are completed too.
 */
export async function drainInParts(store: ShapeStore, withDelayed: boolean): Promise<void> {
  const begin = [uniqueId(), withDelayed ? 'begin all' : 'begin', DRAIN_PART_JOBS]
  const drains = (await store.run('drain-part', begin)) as readonly string[]
  for (const drain of drains) {
    while ((await store.run('drain-part', [drain, 'go', DRAIN_PART_JOBS])) === 1);
  }
}
