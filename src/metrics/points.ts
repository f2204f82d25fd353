/** One line of a metric. */
export interface Point {
  /** What a line of a histogram has behind the name of its metric: `_bucket`, `_sum` or `_count`. */
  readonly suffix?: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** What becomes of the numbers of several queues that share a label; `none`: they are left out. */
export type Merge = 'sum' | 'max' | 'none'

/** One point for each set of labels. */
export function mergePoints(points: readonly Point[], merge: Merge): Point[] {
  const together = new Map<string, Point[]>()
  for (const point of points) {
    const key = JSON.stringify([point.suffix, Object.entries(point.labels).toSorted()])
    together.set(key, [...(together.get(key) ?? []), point])
  }
  return [...together.values()].flatMap((same) => (same.length > 1 && merge === 'none' ? [] : [merged(same, merge)]))
}

function merged(same: readonly Point[], merge: Merge): Point {
  const values = same.map(({ value }) => value)
  const value = merge === 'max' ? Math.max(...values) : values.reduce((total, one) => total + one, 0)
  return { ...(same[0] as Point), value }
}

/**
 * The lines of a histogram whose observations were counted elsewhere.
 * @param buckets upper bounds, Infinity last, and how many observations each holds that no smaller one does
 */
export function histogramPoints(buckets: readonly (readonly [le: number, count: number])[], sum: number): Point[] {
  let count = 0
  const lines = buckets.map(([le, more]) => {
    count += more
    return { suffix: '_bucket', labels: { le: le === Number.POSITIVE_INFINITY ? '+Inf' : String(le) }, value: count }
  })
  return [...lines, { suffix: '_sum', labels: {}, value: sum }, { suffix: '_count', labels: {}, value: count }]
}
