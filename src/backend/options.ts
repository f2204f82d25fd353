import type { Declaration } from '../shape/store.ts'

/** What Sluice's own classes ask of their backend, beyond what any BullMQ class does. */
export interface ShapedBackendOptions {
  /** What this process declares before it admits or fetches anything. */
  readonly declaration?: Declaration
  /** BullMQ's `rateLimit` becomes a pause of the meter also where no shape is stored yet. */
  readonly alwaysShaped?: boolean
  /** The queue that keeps what fails for good. */
  readonly deadLetter?: string | undefined
}
