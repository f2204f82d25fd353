import { HOLD_CAUSES, type HoldCause } from '../departure/departure.ts'

/**
 * How long each cause has held the head of a queue so far, µs, in the order of `lua/gate/held.lua`, and when, by
 * Redis's clock.
 */
export interface HeldClocks {
  readonly atUs: number
  readonly heldUs: readonly number[]
}

/** An hour of reports of a busy worker. */
const KEPT = 1800

/** Index of the cause of time that no clock covers: missing workers. */
const UNCOVERED = HOLD_CAUSES.length - 1

/** For each cause, µs. */
function noTime(): number[] {
  return new Array<number>(HOLD_CAUSES.length).fill(0)
}

function sumOf(heldUs: readonly number[]): number {
  return heldUs.reduce((sum, us) => sum + us, 0)
}

/** The last clocks, used to split the wait of a job among the causes that held the queue meanwhile. */
export class HeldClockMemory {
  readonly #kept: number
  readonly #clocks: HeldClocks[] = []
  readonly #from = noTime()
  readonly #to = noTime()

  constructor(kept = KEPT) {
    this.#kept = kept
  }

  /**
   * Between two clocks, and before the first, a queue may have been idle: it is sampled while it has work and when its
   * work ends, so the clocks advanced at the end of that time, and nothing waited at its start.
   * @param clocks later than the previous ones; earlier ones mean that Redis's clock went back, and the memory begins
   * again
   */
  add(clocks: HeldClocks): void {
    let last = this.#clocks.at(-1)
    if (last && clocks.atUs <= last.atUs) {
      this.#clocks.length = 0
      last = undefined
    }
    const { atUs, heldUs } = last ?? { atUs: Number.NEGATIVE_INFINITY, heldUs: noTime() }
    const idleUntilUs = clocks.atUs - sumOf(clocks.heldUs) + sumOf(heldUs)
    if (idleUntilUs > atUs && idleUntilUs < clocks.atUs) this.#clocks.push({ atUs: idleUntilUs, heldUs })
    this.#clocks.push(clocks)
    while (this.#clocks.length > this.#kept) this.#clocks.shift()
  }

  /**
   * Splits a period, µs, among the causes, and adds each part to `sums`; the parts add up to the period. Time not
   * covered by any clock is attributed to missing workers. Called for each start of a busy worker: it allocates nothing.
   */
  addSplit(sums: number[], fromUs: number, toUs: number): void {
    const whole = Math.max(0, toUs - fromUs)
    const from = this.#at(fromUs, this.#from)
    const to = this.#at(toUs, this.#to)
    let held = 0
    for (let i = 0; i < UNCOVERED; i++) held += Math.max(0, (to[i] as number) - (from[i] as number))
    const share = held > whole ? whole / held : 1
    for (let i = 0; i < UNCOVERED; i++) {
      sums[i] = (sums[i] as number) + Math.max(0, (to[i] as number) - (from[i] as number)) * share
    }
    sums[UNCOVERED] = (sums[UNCOVERED] as number) + Math.max(0, whole - held * share)
  }

  /**
   * The cause that held a job longest, as far as the clocks reach; undefined if they cover less than half of the wait.
   */
  longest(fromUs: number, toUs: number): HoldCause | undefined {
    const reachUs = Math.min(toUs, this.#clocks.at(-1)?.atUs ?? fromUs)
    if (reachUs - fromUs < (toUs - fromUs) / 2 || reachUs <= fromUs) return undefined
    const parts = noTime()
    this.addSplit(parts, fromUs, reachUs)
    return HOLD_CAUSES[parts.indexOf(Math.max(...parts))]
  }

  /** The clocks at a time, interpolated linearly, written into `into`; zeros if none is known. */
  #at(us: number, into: number[]): readonly number[] {
    const clocks = this.#clocks
    let [low, high] = [0, clocks.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((clocks[middle] as HeldClocks).atUs <= us) low = middle + 1
      else high = middle
    }
    const before = clocks[low - 1] ?? clocks[low]
    const after = clocks[low] ?? before
    if (!before || !after) return into.fill(0)
    const share = after === before ? 0 : (us - before.atUs) / (after.atUs - before.atUs)
    for (let i = 0; i < into.length; i++) {
      const held = before.heldUs[i] ?? 0
      into[i] = held + ((after.heldUs[i] ?? 0) - held) * share
    }
    return into
  }
}
