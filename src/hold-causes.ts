/** The causes by which a job does not start, in the order of `lua/lib/held.lua`. The last is what is left where no other is known. */
export const HOLD_CAUSES = ['rate', 'limits', 'concurrency', 'pause', 'workers'] as const

/** What keeps a job from starting: the rate, one of the limits, the running jobs, a pause, or that no worker asked. */
export type HoldCause = (typeof HOLD_CAUSES)[number]
