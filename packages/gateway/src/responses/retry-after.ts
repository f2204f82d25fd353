/** 68 years: the longest delta-seconds that HTTP requires to be understood. (RFC 9111, section 1.2.2) */
export const MAX_DELAY_S = 2_147_483_647

/** How much later than necessary, at most, a caller is asked to retry: a share of the wait. */
const JITTER = 0.2

/**
 * `Retry-After` in whole seconds (RFC 9110, section 10.2.3): drawn evenly from the true wait, rounded up, to 20% more,
 * so that callers that were refused together do not retry together. Never earlier than the true wait, at least 1. Up to
 * 833 ms it is always 1: seconds cannot express less.
 * @param ms the true wait; anything that is not a time counts as 0
 * @param random at least 0, below 1
 */
export function retryAfterSeconds(ms: number, random: () => number = Math.random): number {
  const earliest = wholeSeconds(ms)
  const latest = wholeSeconds(ms * (1 + JITTER))
  return earliest + Math.floor(random() * (latest - earliest + 1))
}

function wholeSeconds(ms: number): number {
  return Math.min(Math.max(1, Math.ceil(ms / 1000) || 1), MAX_DELAY_S)
}
