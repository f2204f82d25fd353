import type { ShapedJobsOptions } from '../admission/job-options.ts'
import type { HeldJob } from '../departure/held-job.ts'
import { jobOfGrant } from '../departure/reply.ts'
import type { RedisClock } from '../redis/clock.ts'
import type { BatchOptions } from './batch-options.ts'

/** Jobs of one future batch, whose slots have come. */
interface Gathered {
  /** '' unless a batch has jobs of one group only, or if they have none. */
  readonly group: string
  readonly jobs: HeldJob[]
  /** Whether it waits for no more jobs. */
  isOver: boolean
  stopTimer: (() => void) | undefined
  /** Since when it lacks only a place, µs on Redis's clock. */
  readyUs: number | undefined
}

/** Gathers jobs whose slots have come into batches. */
export class Gathering {
  readonly #options: BatchOptions
  readonly #clock: RedisClock
  readonly #onOver: () => void
  /** In the order of their first jobs. */
  #open: Gathered[] = []
  size = 0

  /** @param onOver called when a batch has waited long enough */
  constructor(options: BatchOptions, clock: RedisClock, onOver: () => void) {
    this.#options = options
    this.#clock = clock
    this.#onOver = onOver
  }

  get jobs(): readonly HeldJob[] {
    return this.#open.flatMap(({ jobs }) => jobs)
  }

  /** How many jobs a worker with room for this many batches may have. */
  places(batches: number): number {
    return Math.max(0, batches) * this.#options.size
  }

  add(job: HeldJob): void {
    const group = this.#options.groupAffinity ? groupOf(job) : ''
    this.size += 1
    const open = this.#open.find((one) => one.group === group && one.jobs.length < this.#options.size)
    if (open) open.jobs.push(job)
    else this.#open.push(this.#begin(group, job))
  }

  /**
   * Takes out the next batch to run, if there is one.
   * @param hasPlace whether it may run now; if not, the wait for a place begins
   * @param mayGrow whether more jobs are about to come, for which a partial batch waits
   */
  next(hasPlace: boolean, mayGrow: boolean): readonly HeldJob[] | undefined {
    const { size, minSize = 1 } = this.#options
    for (const batch of this.#open) {
      const { jobs, isOver } = batch
      if (jobs.length < size && !isOver && (mayGrow || jobs.length < minSize)) continue
      const nowUs = this.#clock.nowUs() ?? 0
      batch.readyUs ??= nowUs
      if (!hasPlace) continue
      this.#remove(batch)
      // Neither the wait for other jobs nor the slots of earlier ones make a job late; the wait for a place does.
      const { readyUs } = batch
      return jobs.map((job) => ({ ...job, gatheredUs: Math.max(job.slotUs, readyUs) }))
    }
    return undefined
  }

  takeAll(): readonly HeldJob[] {
    const { jobs } = this
    for (const batch of this.#open) this.#remove(batch)
    return jobs
  }

  #begin(group: string, job: HeldJob): Gathered {
    const { minSize = 1, timeoutMs } = this.#options
    const batch: Gathered = { group, jobs: [job], isOver: false, stopTimer: undefined, readyUs: undefined }
    if (minSize > 1 && timeoutMs !== undefined) {
      batch.stopTimer = this.#clock.time.after(timeoutMs, () => {
        batch.isOver = true
        this.#onOver()
      })
    }
    return batch
  }

  #remove(batch: Gathered): void {
    batch.stopTimer?.()
    this.#open = this.#open.filter((other) => other !== batch)
    this.size -= batch.jobs.length
  }
}

function groupOf(job: HeldJob): string {
  const { group } = jobOfGrant(job).opts as ShapedJobsOptions
  return group === undefined ? '' : String(group.id)
}
