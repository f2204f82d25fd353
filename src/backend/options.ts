import type { Declaration } from '../shape/store.ts'

/** What Sluice's own classes need of their backend beyond plain BullMQ. */
export interface ShapedBackendOptions {
  /** What this process declares before it admits or fetches anything. */
  readonly declaration?: Declaration
  /** BullMQ's `rateLimit` becomes a pause of the meter even if no shape is stored yet. */
  readonly alwaysShaped?: boolean
  /** The queue that keeps the jobs that failed for good. */
  readonly deadLetter?: string | undefined
}
