/** The calls from the benchmark to its worker processes, and their answers. */

/** The library whose worker is measured. */
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
  /** Where Redis's clock is read, if that is nearer. Default: `redis`. */
  readonly clock?: RedisAddress
  readonly workers: number
  readonly concurrency: number
  /** How long a job takes. 0: the processor returns at once. */
  readonly jobMs: number
  /** For Sluice's workers: whether they report themselves. Default true. */
  readonly report?: boolean
  /** Which completed jobs are kept. Default: all. */
  readonly removeOnComplete?: { readonly count: number }
  /** BullMQ's own limiter, for its workers only. */
  readonly limiter?: { readonly max: number; readonly duration: number }
  /** Number of jobs to complete for {@link Methods.drained}. */
  readonly expected?: number
}

/** One start of a job, µs on Redis's clock. */
export interface Start {
  readonly startedUs: number
  /** The slot that the meter granted; only Sluice's jobs have one. */
  readonly slotUs?: number
}

export interface StartsReport {
  readonly starts: readonly Start[]
  /** Jobs that were too late for their slot and went back. */
  readonly wentBack: number
  /** Error of this process's estimate of Redis's clock, µs. */
  readonly clockErrorUs: number
}

export interface DrainReport {
  /** From the first call of the processor to the last completion. */
  readonly elapsedMs: number
  /** CPU time of this process in that period. */
  readonly cpuMs: number
}

/** The methods of a worker process. Groups are named by their queue. */
export interface Methods {
  /** Resolves when the workers of the group are connected and wait for jobs. */
  open(spec: GroupSpec): Promise<void>
  /** The starts since the last call. */
  takeStarts(queue: string): Promise<StartsReport>
  /** Resolves when the expected number of jobs is completed. */
  drained(queue: string): Promise<DrainReport>
  close(queue: string): Promise<void>
}
