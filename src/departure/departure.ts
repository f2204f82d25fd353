/** The causes by which a job does not start, in the order of `lua/lib/held.lua`. The last is what is left where no other is known. */
export const HOLD_CAUSES = ['rate', 'limits', 'concurrency', 'pause', 'workers'] as const

/** What keeps a job from starting: the rate, one of the limits, the running jobs, a pause, or that no worker asked. */
export type HoldCause = (typeof HOLD_CAUSES)[number]

/** When a job started. */
export interface Departure {
  /** Its slot, µs on Redis's clock. */
  readonly departureTimeUs: number
  /** When its processor was called, µs on Redis's clock as seen from here. */
  readonly departedAtUs: number
  /** The difference. */
  readonly latenessUs: number
  /** By how much it may be later on Redis's own clock, µs: the fastest round trip, and 1 µs for each ms since it. */
  readonly clockErrorUs: number
  /** What held it the longest; told where the worker has `telemetry`, the attempt is the first, and reports reach so far. */
  readonly heldBy?: HoldCause | undefined
}
