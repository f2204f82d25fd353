export function ascending(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b)
}

/**
 * The smallest value that at least a share `q` (0 to 1) of all values does not exceed (nearest rank). NaN for no
 * values.
 */
export function quantile(values: readonly number[], q: number): number {
  const sorted = ascending(values)
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? Number.NaN
}

export function median(values: readonly number[]): number {
  const sorted = ascending(values)
  const middle = sorted.length / 2
  if (sorted.length % 2 === 1) return sorted[Math.floor(middle)] as number
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
