/**
 * The causes that keep a job from starting, in the order of `lua/gate/held.lua`. The last applies if no other is known.
 */
export const HOLD_CAUSES = ['rate', 'limits', 'concurrency', 'pause', 'workers'] as const

/** The cause that keeps a job from starting: the rate, a limit, the concurrency, a pause, or no worker asking. */
export type HoldCause = (typeof HOLD_CAUSES)[number]

/** Computes a value for each cause. */
export function mapCauses<T>(of: (cause: HoldCause, index: number) => T): Record<HoldCause, T> {
  const values: Partial<Record<HoldCause, T>> = {}
  for (const [i, cause] of HOLD_CAUSES.entries()) values[cause] = of(cause, i)
  return values as Record<HoldCause, T>
}

/** When a job started. */
export interface Departure {
  /** The time at which it was allowed to start, its slot, µs on Redis's clock. */
  readonly departureTimeUs: number
  /** When its processor was called, µs on Redis's clock as estimated here. */
  readonly departedAtUs: number
  /** How much later than its slot that was, µs: `departedAtUs - departureTimeUs`. */
  readonly latenessUs: number
  /** How much later it may be on Redis's own clock, µs: the fastest round trip, plus 1 µs per ms since then. */
  readonly clockErrorUs: number
  /**
   * The pool members with which it departs, by the names of limits with `pool`: `{ keys: 'b' }`. Undefined if it takes
   * nothing of any.
   */
  readonly pool?: Readonly<Record<string, string>> | undefined
  /**
   * The cause that held it longest. Set if the worker has `telemetry`, this is the first attempt, and reports go back
   * far enough.
   */
  readonly heldBy?: HoldCause | undefined
}
