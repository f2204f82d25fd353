/** ms, the limit of setTimeout. */
export const MAX_TIMER_MS = 2 ** 31 - 1
