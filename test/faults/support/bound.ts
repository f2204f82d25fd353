/** A bucket, as far as its bound on departures goes. */
export interface Bucket {
  readonly intervalUs: number
  readonly burst: number
}

/** Slots are told in whole microseconds: two of them may look that much closer than they are. */
const TOLERANCE_US = 1

/**
 * By how many departures the worst closed window is over `burst + T / interval`; 0 or less when the bound holds.
 * @param timesUs of the departures, in any order
 */
export function worstExcess(timesUs: readonly number[], { intervalUs, burst }: Bucket): number {
  return worstExcessOver(timesUs, burst, (timeUs) => timeUs / intervalUs) - TOLERANCE_US / intervalUs
}

/**
 * The same where the rate changes, without a tolerance.
 * @param drainedBy how much the rate lets through until a time, from any time on
 */
export function worstExcessOver(
  timesUs: readonly number[],
  burst: number,
  drainedBy: (timeUs: number) => number,
): number {
  const sorted = [...timesUs].sort((a, b) => a - b)
  // With f(i) = i - drainedBy(t(i)), the window from i to j is over by f(j) - f(i) + 1 - b.
  let lowest = Number.POSITIVE_INFINITY
  let worst = -burst
  for (const [i, timeUs] of sorted.entries()) {
    const f = i - drainedBy(timeUs)
    lowest = Math.min(lowest, f)
    worst = Math.max(worst, f - lowest + 1 - burst)
  }
  return worst
}
