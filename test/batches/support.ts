import type { Job } from 'bullmq'
import type { ShapedJob } from '../../src/index.ts'
import { Record } from '../worker/support.ts'

/** The jobs of the call that the processor gets. */
export function batchOf(job: Job): ShapedJob[] {
  return (job as ShapedJob).getBatch()
}

export function named(batch: readonly Job[], name: string): ShapedJob {
  return batch.find((job) => job.name === name) as ShapedJob
}

/** A processor that records the names of the jobs of each call. */
export function recording(after: (batch: readonly ShapedJob[]) => unknown = () => {}) {
  const batches = new Record<string[]>()
  const processor = async (job: Job) => {
    const batch = batchOf(job)
    batches.add(batch.map(({ name }) => name))
    return after(batch)
  }
  return { batches, processor }
}
