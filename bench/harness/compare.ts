import type { Row } from './figure.ts'
import { type Cost, describeCost } from './redis.ts'
import { ascending, median } from './statistics.ts'

const FULL_ROUNDS = 8
const QUICK_ROUNDS = 3
const FEW = 5

/** One measurement of each way, in direct succession. */
export type Round<Way extends string, T> = Readonly<Record<Way, T>>

/**
 * Measures all ways round by round, in reverse order in every other round. The first round is a warm-up.
 * @param full number of rounds, where not quick; many short ones where the speed of the machine varies
 */
export async function rounds<Way extends string, T>(
  quick: boolean,
  ways: readonly Way[],
  measure: (way: Way) => Promise<T>,
  full: number = FULL_ROUNDS,
): Promise<Round<Way, T>[]> {
  const done: Round<Way, T>[] = []
  for (let i = 0; i < (quick ? QUICK_ROUNDS : full); i++) {
    const measured: Partial<Record<Way, T>> = {}
    for (const way of i % 2 === 0 ? ways : ways.toReversed()) measured[way] = await measure(way)
    done.push(measured as Round<Way, T>)
  }
  return done.slice(1)
}

/** A ratio measured in several rounds. */
export interface Ratio {
  readonly median: number
  /** Its spread: all rounds but the lowest and the highest, if there are at least five. */
  readonly low: number
  readonly high: number
}

export function ratioOf(ratios: readonly number[]): Ratio {
  const sorted = ascending(ratios)
  const inner = sorted.length < FEW ? sorted : sorted.slice(1, -1)
  return { median: median(sorted), low: inner[0] ?? Number.NaN, high: inner.at(-1) ?? Number.NaN }
}

/** `0.953 (0.94 to 0.97)` */
export function describeRatio({ median, low, high }: Ratio): string {
  return `${median.toFixed(3)} (${low.toFixed(2)} to ${high.toFixed(2)})`
}

/** What is asked of a ratio: one whose spread includes the bound neither reaches nor misses it. */
export type Asked = (ratio: Ratio) => Pick<Row, 'asked' | 'ok'>

export function atLeast(bound: number): Asked {
  return ({ low, high }) => ({
    asked: `>= ${bound}`,
    ok: low >= bound ? true : high < bound ? false : 'within its spread',
  })
}

export function atMost(bound: number): Asked {
  return ({ low, high }) => ({
    asked: `<= ${bound}`,
    ok: high <= bound ? true : low > bound ? false : 'within its spread',
  })
}

/** Field by field. */
export function medianOf<T extends object>(all: readonly T[], of: (values: number[]) => number = median): T {
  const fields = Object.keys(all[0] as T) as (keyof T)[]
  return Object.fromEntries(fields.map((field) => [field, of(all.map((one) => Number(one[field])))])) as T
}

export interface Comparison<Way extends string, T> {
  readonly ours: Way
  /** The ratio is that to the largest of them. */
  readonly over: readonly Way[]
  /** Shown beside, too. */
  readonly also?: readonly Way[]
  /** Default: what is done per second, of costs. */
  readonly of?: (one: T) => number
  readonly asked?: Asked | undefined
  /** In words, what was measured in the median. Default: for costs. */
  readonly describe?: (median: T) => string
}

const perSecondOf = ({ perSecond }: Cost) => perSecond

/** How one way compares with others: the ratio with its spread, and what each took. */
export function compared<Way extends string, T extends object = Cost>(
  setup: string,
  measured: readonly Round<Way, T>[],
  { ours, over, also = [], of = perSecondOf as never, asked, describe = describeCost as never }: Comparison<Way, T>,
): Row {
  const ratio = ratioOf(measured.map((round) => of(round[ours]) / Math.max(...over.map((peer) => of(round[peer])))))
  const words = (way: Way) => describe(medianOf(measured.map((round) => round[way])))
  return {
    setup,
    ...asked?.(ratio),
    reached: `${describeRatio(ratio)}, ${words(ours)}`,
    beside: [...over, ...also].map((peer) => `${peer} ${words(peer)}`).join('; '),
    values: { ratio, rounds: measured },
  }
}
