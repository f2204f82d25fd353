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
  return worstWindow(timesUs, burst, (timeUs) => timeUs / intervalUs).excess - TOLERANCE_US / intervalUs
}

/** The closed window of departures that is most above its bound. */
export interface WorstWindow {
  readonly excess: number
  /** Of its first and last departure; 0 and 0 if there are no departures. */
  readonly fromUs: number
  readonly untilUs: number
}

/**
 * That window, where the rate may change; without a tolerance.
 * @param drainedBy how much the rate lets through until a time, from any time on
 */
export function worstWindow(
  timesUs: readonly number[],
  burst: number,
  drainedBy: (timeUs: number) => number,
): WorstWindow {
  const sorted = [...timesUs].sort((a, b) => a - b)
  // With f(i) = i - drainedBy(t(i)), the window from i to j is over by f(j) - f(i) + 1 - b.
  let lowest = Number.POSITIVE_INFINITY
  let lowestUs = 0
  let worst = { excess: -burst, fromUs: 0, untilUs: 0 }
  for (const [i, timeUs] of sorted.entries()) {
    const f = i - drainedBy(timeUs)
    if (f < lowest) {
      lowest = f
      lowestUs = timeUs
    }
    const excess = f - lowest + 1 - burst
    if (excess > worst.excess) worst = { excess, fromUs: lowestUs, untilUs: timeUs }
  }
  return worst
}
