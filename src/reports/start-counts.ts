import { HOLD_CAUSES } from '../departure/departure.ts'
import type { HeldClockMemory } from './held-clocks.ts'
import type { EndCounts } from './recent-ends.ts'

/** Upper bounds of the histograms, µs and ms, as in `meta:starts`; values above the last count as `inf`. */
export const LATENESS_BOUNDS_US = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000] as const
export const WAIT_BOUNDS_MS = [10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000] as const

/** Prefix of a dead-letter queue's name in `meta:starts`. Always 0: only the presence of the report matters. */
export const DEAD_FIELD = 'dead:'

/** Starts and ends of one worker since its last report: counts, by the fields of `meta:starts` that they increment. */
export class StartCounts {
  #started = 0
  #early = 0
  #latenessUs = 0
  #latenessMaxUs = 0
  readonly #lateness = new Array<number>(LATENESS_BOUNDS_US.length + 1).fill(0)
  /** When jobs could have started and when they did, µs, alternating. */
  readonly #waits: number[] = []
  readonly #ends = { completed: 0, failed: 0, failedAttempts: 0 }

  get started(): number {
    return this.#started
  }

  get latenessMaxUs(): number {
    return this.#latenessMaxUs
  }

  /** @param readyUs when it could first have started; undefined if unknown, or if an earlier attempt has started */
  add(slotUs: number, latenessUs: number, readyUs: number | undefined): void {
    this.#started += 1
    // The estimate of Redis's clock is exact to a microsecond at best.
    if (latenessUs < -1) this.#early += 1
    const lateUs = Math.max(0, latenessUs)
    this.#latenessUs += lateUs
    this.#latenessMaxUs = Math.max(this.#latenessMaxUs, lateUs)
    const at = placeOf(lateUs, LATENESS_BOUNDS_US)
    this.#lateness[at] = (this.#lateness[at] as number) + 1
    if (readyUs !== undefined) this.#waits.push(readyUs, slotUs)
  }

  ended(...counted: readonly (keyof EndCounts)[]): void {
    for (const field of counted) this.#ends[field] += 1
  }

  fields(): Record<string, number> {
    const fields: Record<string, number> = {
      ...this.#ends,
      count: this.#started,
      early: this.#early,
      latenessUs: this.#latenessUs,
    }
    for (const [i, count] of this.#lateness.entries()) fields[`l:${LATENESS_BOUNDS_US[i] ?? 'inf'}`] = count
    return whole(fields)
  }

  /** @param clocks used to split the waits; they must reach up to the last start */
  waitFields(clocks: HeldClockMemory): Record<string, number> {
    const waits = new Array<number>(WAIT_BOUNDS_MS.length + 1).fill(0)
    const parts = new Array<number>(HOLD_CAUSES.length).fill(0)
    let waitedUs = 0
    for (let i = 0; i < this.#waits.length; i += 2) {
      const [readyUs, startUs] = [this.#waits[i] as number, this.#waits[i + 1] as number]
      const waitUs = Math.max(0, startUs - readyUs)
      waitedUs += waitUs
      const at = placeOf(waitUs / 1000, WAIT_BOUNDS_MS)
      waits[at] = (waits[at] as number) + 1
      clocks.addSplit(parts, readyUs, startUs)
    }
    const fields: Record<string, number> = { waits: this.#waits.length / 2, waitMs: waitedUs / 1000 }
    for (const [i, count] of waits.entries()) fields[`w:${WAIT_BOUNDS_MS[i] ?? 'inf'}`] = count
    for (const [i, us] of parts.entries()) fields[`waited:${HOLD_CAUSES[i]}`] = us / 1000
    return whole(fields)
  }
}

/** Redis counts in whole numbers; zeros are omitted. */
function whole(fields: Record<string, number>): Record<string, number> {
  const rounded = Object.entries(fields).map(([name, value]) => [name, Math.round(value)] as const)
  return Object.fromEntries(rounded.filter(([, value]) => value !== 0))
}

function placeOf(value: number, bounds: readonly number[]): number {
  let at = 0
  while (at < bounds.length && value > (bounds[at] as number)) at += 1
  return at
}
