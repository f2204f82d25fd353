/** ms: setTimeout takes no more. */
export const MAX_TIMER_MS = 2 ** 31 - 1
