/**
 * The nearest-rank percentile: the smallest value that at least this share of all values does not exceed.
 * @param sorted ascending, not empty
 * @param part 0 to 1
 */
export function percentile(sorted: ArrayLike<number>, part: number): number {
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] as number
}
