/** 68 years: the longest that the delta-seconds of HTTP have to be understood for. (RFC 9111, section 1.2.2) */
export const MAX_DELAY_S = 2_147_483_647

/** How much later than it could, at most, a caller is told to come again: a share of the wait. */
const JITTER = 0.2

/**
 * `Retry-After` in whole seconds (RFC 9110, section 10.2.3): any of those from the true time, rounded up, to 20 % later,
 * each as likely as the others, so that those who were refused together do not come back together. Never earlier than the
 * true time, at least 1. Up to 833 ms it is always 1: what is shorter than a second can not be told in seconds.
 * @param ms how long it truly takes; what is no time is taken for 0
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
