import type { Row } from '../figure.ts'
import { ascending, median } from './statistics.ts'

/** A ratio measured in several rounds. */
export interface Ratio {
  readonly median: number
  /** Its spread: all rounds but the lowest and the highest, if there are at least five. */
  readonly low: number
  readonly high: number
}

const FEW = 5

export function ratioOf(ratios: readonly number[]): Ratio {
  const sorted = ascending(ratios)
  const inner = sorted.length < FEW ? sorted : sorted.slice(1, -1)
  return { median: median(sorted), low: inner[0] ?? Number.NaN, high: inner.at(-1) ?? Number.NaN }
}

/** `0.953 (0.94 to 0.97)` */
export function describeRatio({ median, low, high }: Ratio, digits = 2): string {
  return `${median.toFixed(digits)} (${low.toFixed(2)} to ${high.toFixed(2)})`
}

/** Cells of a figure that must be at least this; if its spread includes the bound, it is neither reached nor missed. */
export function atLeast({ low, high }: Ratio, bound: number): Pick<Row, 'asked' | 'ok'> {
  return { asked: `>= ${bound}`, ok: low >= bound ? true : high < bound ? false : 'within its spread' }
}

/** The same for one that must be at most this. */
export function atMost({ low, high }: Ratio, bound: number): Pick<Row, 'asked' | 'ok'> {
  return { asked: `<= ${bound}`, ok: high <= bound ? true : low > bound ? false : 'within its spread' }
}
