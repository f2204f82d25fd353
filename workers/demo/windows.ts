/** Arithmetic over sorted lists of instants. Everything is whole microseconds, so nothing is lost to rounding. */

/** A rate for the calculations below: `limit` starts per `periodUs`. */
export interface Pace {
  limit: number
  periodUs: number
  burst: number
}

/**
 * The worst excess over the bucket, in jobs: the largest value of `(j − i + 1) − (⌊(tj − ti + slack) / I⌋ + burst)` over
 * all i <= j, that is over windows of every length. 0 or less: the bound held; 0 for no instants at all.
 *
 * A whole number less a floor is a ceiling, so the maximum is found in one pass: the best partner of j is the i with
 * the smallest `i − ti / I` so far.
 *
 * @param timesUs instants in ascending order, microseconds
 * @param slackUs how much every window is lengthened: the jitter J at a receiver, 0 at the meter
 */
export function worstExcess(timesUs: readonly number[], pace: Pace, slackUs = 0): number {
  const origin = timesUs[0]
  if (origin === undefined) return 0
  const slack = Math.round(slackUs) * pace.limit
  let lowest = Number.POSITIVE_INFINITY
  let worst = Number.NEGATIVE_INFINITY
  for (const [index, time] of timesUs.entries()) {
    const level = index * pace.periodUs - Math.round(time - origin) * pace.limit
    lowest = Math.min(lowest, level)
    worst = Math.max(worst, level - lowest)
  }
  return Math.ceil((worst - slack) / pace.periodUs) + 1 - pace.burst
}

/** The most instants in any closed window of `windowUs`. */
export function mostWithin(timesUs: readonly number[], windowUs: number): number {
  let most = 0
  let first = 0
  for (const [index, time] of timesUs.entries()) {
    while (time - timesUs[first]! > windowUs) first++
    most = Math.max(most, index - first + 1)
  }
  return most
}

/** What the bucket allows in a closed window of `windowUs`, lengthened by `slackUs`. */
export function allowedWithin(windowUs: number, pace: Pace, slackUs = 0): number {
  return Math.floor(((windowUs + slackUs) * pace.limit) / pace.periodUs) + pace.burst
}

/** Starts per second between the first and the last instant; undefined below two instants. */
export function achievedPerSecond(timesUs: readonly number[]): number | undefined {
  const spanUs = (timesUs.at(-1) ?? 0) - (timesUs[0] ?? 0)
  return spanUs > 0 ? ((timesUs.length - 1) * 1e6) / spanUs : undefined
}

/** The distances between consecutive instants. */
export function gaps(timesUs: readonly number[]): number[] {
  return timesUs.slice(1).map((time, index) => time - timesUs[index]!)
}

/** The smallest value that at least `percent` of the values do not exceed (nearest rank); undefined for no values. */
export function percentile(values: readonly number[], percent: number): number | undefined {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)]
}
