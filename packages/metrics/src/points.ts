/** One line of a metric. */
export interface Point {
  /** The suffix of a histogram line's name: `_bucket`, `_sum` or `_count`. */
  readonly suffix?: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** How the numbers of several queues that share a label are merged; `none`: they are left out. */
export type Merge = 'sum' | 'max' | 'none'

interface Merged {
  readonly point: Point
  value: number
  count: number
}

/**
 * Merges the points of queues that share a label, one queue after the other: one point for each set of labels. The
 * queues themselves are not kept.
 */
export class MergedPoints {
  readonly #merge: Merge
  readonly #merged: Merged[] = []

  constructor(merge: Merge) {
    this.#merge = merge
  }

  /** @param points of one queue, all with the same label names */
  add(points: readonly Point[]): void {
    points.forEach((point, i) => {
      // Most families give the same points for each queue, in the same order.
      const likely = this.#merged[i]
      const known = likely && isSame(likely.point, point) ? likely : this.#find(point)
      if (known) {
        known.count += 1
        known.value = this.#merge === 'max' ? Math.max(known.value, point.value) : known.value + point.value
      } else this.#merged.push({ point, value: point.value, count: 1 })
    })
  }

  points(): Point[] {
    const found = this.#merged.filter(({ count }) => count === 1 || this.#merge !== 'none')
    return found.map(({ point, value }) => ({ ...point, value }))
  }

  #find(point: Point): Merged | undefined {
    return this.#merged.find((merged) => isSame(merged.point, point))
  }
}

function isSame(one: Point, other: Point): boolean {
  if (one.suffix !== other.suffix) return false
  for (const name in one.labels) if (one.labels[name] !== other.labels[name]) return false
  return true
}

/**
 * The lines of a histogram whose observations were counted elsewhere.
 * @param buckets upper bounds, Infinity last, and the number of observations that are at most that, but above the bound
 * before it
 */
export function histogramPoints(buckets: readonly (readonly [le: number, count: number])[], sum: number): Point[] {
  let count = 0
  const lines = buckets.map(([le, more]) => {
    count += more
    return { suffix: '_bucket', labels: { le: le === Number.POSITIVE_INFINITY ? '+Inf' : String(le) }, value: count }
  })
  return [...lines, { suffix: '_sum', labels: {}, value: sum }, { suffix: '_count', labels: {}, value: count }]
}
