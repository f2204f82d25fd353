import { HOLD_CAUSES, type HoldCause } from '../departure/departure.ts'

/**
 * How long each cause has held the head of a queue so far, µs, in the order of `lua/lib/held.lua`, and when, by Redis's
 * clock.
 */
export interface HeldClocks {
  readonly atUs: number
  readonly heldUs: readonly number[]
}

/** An hour of reports of a busy worker. */
const KEPT = 1800

/** The clocks of the last hour, used to split the wait of a job among the causes that held the queue meanwhile. */
export class HeldClockMemory {
  readonly #clocks: HeldClocks[] = []

  /** @param clocks later than those before; earlier ones mean that Redis's clock went back, and start anew */
  add(clocks: HeldClocks): void {
    const last = this.#clocks.at(-1)
    if (last && clocks.atUs <= last.atUs) this.#clocks.length = 0
    this.#clocks.push(clocks)
    if (this.#clocks.length > KEPT) this.#clocks.shift()
  }

  /**
   * Splits a period, µs, among the causes; the parts add up to it. Time not covered by any clock is attributed to
   * missing workers.
   */
  split(fromUs: number, toUs: number): number[] {
    const whole = Math.max(0, toUs - fromUs)
    const [from, to] = [this.#at(fromUs), this.#at(toUs)]
    const parts = HOLD_CAUSES.map((_, i) => Math.max(0, (to?.[i] ?? 0) - (from?.[i] ?? 0)))
    parts[parts.length - 1] = 0
    const held = parts.reduce((sum, part) => sum + part, 0)
    const share = held > whole ? whole / held : 1
    const shared = parts.map((part) => part * share)
    shared[shared.length - 1] = whole - held * share
    return shared
  }

  /**
   * The cause that held a job longest, as far as the clocks reach; undefined if they cover less than half of the wait.
   */
  longest(fromUs: number, toUs: number): HoldCause | undefined {
    const reachUs = Math.min(toUs, this.#clocks.at(-1)?.atUs ?? fromUs)
    if (reachUs - fromUs < (toUs - fromUs) / 2 || reachUs <= fromUs) return undefined
    const parts = this.split(fromUs, reachUs)
    return HOLD_CAUSES[parts.indexOf(Math.max(...parts))]
  }

  /** The clocks at a time, interpolated linearly. */
  #at(us: number): readonly number[] | undefined {
    const clocks = this.#clocks
    let [low, high] = [0, clocks.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((clocks[middle] as HeldClocks).atUs <= us) low = middle + 1
      else high = middle
    }
    const [before, after] = [clocks[low - 1], clocks[low]]
    if (!before || !after) return (before ?? after)?.heldUs
    const share = (us - before.atUs) / (after.atUs - before.atUs)
    return before.heldUs.map((held, i) => held + ((after.heldUs[i] as number) - held) * share)
  }
}
