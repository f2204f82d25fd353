/**
 * The nearest-rank percentile: the least value that so great a part of all is not above.
 * @param sorted ascending, not empty
 * @param part 0 to 1
 */
export function percentile(sorted: ArrayLike<number>, part: number): number {
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] as number
}
