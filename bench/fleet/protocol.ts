/** What the benchmark asks its worker processes for, and what they answer. */

/** Whose worker is measured. */
export type System = 'sluice' | 'bullmq'

export interface RedisAddress {
  readonly host: string
  readonly port: number
}

/** A group of equal workers on one queue, in one process. */
export interface GroupSpec {
  readonly system: System
  readonly queue: string
  readonly redis: RedisAddress
  readonly workers: number
  readonly concurrency: number
  /** How long a job takes. 0: the processor returns at once. */
  readonly jobMs: number
  /** Of Sluice's workers: whether they tell of themselves. Default true. */
  readonly report?: boolean
  /** BullMQ's own limiter, for its workers only. */
  readonly limiter?: { readonly max: number; readonly duration: number }
  /** How many jobs to complete for {@link Methods.drained}. */
  readonly expected?: number
}

/** One start of a job, µs on Redis's clock. */
export interface Start {
  readonly startedUs: number
  /** The slot that the meter gave it; only Sluice's jobs have one. */
  readonly slotUs?: number
}

export interface StartsReport {
  readonly starts: readonly Start[]
  /** Jobs that were too late for their slot and went back. */
  readonly wentBack: number
  /** How exactly this process knows Redis's clock, µs. */
  readonly clockErrorUs: number
}

export interface DrainReport {
  /** From the first call of the processor to the last completion. */
  readonly elapsedMs: number
  /** CPU that this process used meanwhile. */
  readonly cpuMs: number
}

/** What a worker process can be asked to do. Groups are named by their queue. */
export interface Methods {
  /** Resolves when the workers of the group are connected and wait for jobs. */
  open(spec: GroupSpec): Promise<void>
  /** The starts since the last time that it was asked. */
  takeStarts(queue: string): Promise<StartsReport>
  /** Resolves when the expected number of jobs is completed. */
  drained(queue: string): Promise<DrainReport>
  close(queue: string): Promise<void>
}
