import type { BucketAlgorithm, LimitWire } from '../limits/definition.ts'

/** An entry of a log: all charges up to that time. */
interface Charge {
  readonly atUs: number
  readonly sum: number
}

/** The state of a limit in Redis, as its algorithm in `lua/limits/` stores it. */
export interface LimitState {
  /** The numbers packed into its string; empty where it has no string. */
  readonly packed: readonly number[]
  /** Of a log: the oldest charges that still count, `read` of them, and the newest if there are more. */
  readonly log: readonly Charge[]
  readonly read: number
  /** The sum of those before them. */
  readonly before: number
}

/**
 * The coming departures under one limit, by the arithmetic of its algorithm in `lua/limits/`. Offsets are µs from now.
 */
export interface LimitPlan {
  /** When that cost conforms. */
  earliest(cost: number): number
  charge(cost: number, offsetUs: number): void
  /**
   * When the last of `jobs` jobs of that cost conforms, if no other limit decides; the last charge was at `offsetUs`.
   */
  far(cost: number, jobs: number, offsetUs: number): number
}

/** For any algorithm but `concurrency`, where the next free place depends on when jobs end. */
export function limitPlan(wire: LimitWire, state: LimitState, nowUs: number): LimitPlan {
  switch (wire.algorithm) {
    case 'fixed-window':
      return new FixedWindow(wire, state, nowUs)
    case 'sliding-window-log':
      return new WindowLog(wire, state, nowUs)
    case 'sliding-window-counter':
      return new WindowCounter(wire, state, nowUs)
    default:
      // A new algorithm does not compile until it has a case.
      wire.algorithm satisfies BucketAlgorithm | 'concurrency'
      return new LimitBucket(wire, state, nowUs)
  }
}

/** All three buckets, as the time at which nothing is owed. */
class LimitBucket implements LimitPlan {
  readonly #intervalUs: number
  readonly #burst: number
  #tatUs: number

  constructor({ algorithm, interval = 0, burst = 1 }: LimitWire, { packed }: LimitState, nowUs: number) {
    const [seenUs = nowUs, stored, storedIntervalUs = interval, aheadUs = 0] = packed
    const owedUs =
      algorithm === 'gcra'
        ? (stored ?? 0)
        : (algorithm === 'token-bucket' ? burst - (stored ?? burst) : (stored ?? 0)) * storedIntervalUs
    const elapsedUs = Math.max(0, nowUs - seenUs)
    const debtUs = Math.max(0, owedUs - elapsedUs)
    // Converted as if the rate were changed now, where no script has applied the change yet.
    const grantedUs = storedIntervalUs > interval ? Math.min(Math.max(0, aheadUs - elapsedUs), debtUs) : 0
    this.#intervalUs = interval
    this.#burst = burst
    this.#tatUs =
      storedIntervalUs === interval ? debtUs : ((debtUs - grantedUs) * interval) / storedIntervalUs + grantedUs
  }

  earliest(cost: number): number {
    return Math.max(0, this.#tatUs + (Math.min(cost, this.#burst) - this.#burst) * this.#intervalUs)
  }

  charge(cost: number, offsetUs: number): void {
    this.#tatUs = Math.max(this.#tatUs, offsetUs) + cost * this.#intervalUs
  }

  far(cost: number, jobs: number): number {
    return this.earliest(cost) + (jobs - 1) * cost * this.#intervalUs
  }
}

/** Counts whole windows after the one in use. */
function farWindows(wire: LimitWire, used: number, units: number, nextUs: number, offsetUs: number): number {
  const windows = Math.ceil((used + units) / (wire.limit as number)) - 1
  return windows <= 0 ? offsetUs : nextUs + (windows - 1) * (wire.window as number)
}

class FixedWindow implements LimitPlan {
  readonly #wire: LimitWire
  readonly #nowUs: number
  #startUs: number
  #used = 0

  constructor(wire: LimitWire, { packed }: LimitState, nowUs: number) {
    const [, keptUs, used = 0] = packed
    this.#wire = wire
    this.#nowUs = nowUs
    this.#startUs = this.#aligned(nowUs)
    if (keptUs === undefined) return
    const counts = wire.align === 'first' ? nowUs < this.#endOf(keptUs) : keptUs >= this.#startUs
    if (counts) [this.#startUs, this.#used] = [keptUs, used]
  }

  earliest(cost: number): number {
    const fits = this.#used === 0 || this.#used + cost <= (this.#wire.limit as number)
    return Math.max(0, (fits ? this.#startUs : this.#endOf(this.#startUs)) - this.#nowUs)
  }

  charge(cost: number, offsetUs: number): void {
    const atUs = this.#nowUs + Math.ceil(offsetUs)
    if (atUs >= this.#endOf(this.#startUs) || (this.#used === 0 && atUs > this.#startUs)) {
      this.#startUs = this.#aligned(atUs)
      this.#used = 0
    }
    this.#used += cost
  }

  far(cost: number, jobs: number, offsetUs: number): number {
    return farWindows(this.#wire, this.#used, cost * jobs, this.#endOf(this.#startUs) - this.#nowUs, offsetUs)
  }

  #aligned(atUs: number): number {
    const { align, window = 1, zone = [0, 0] } = this.#wire
    if (align === 'first') return atUs
    return align === 'day' ? dayStartUs(zone, atUs) : atUs - (atUs % window)
  }

  #endOf(startUs: number): number {
    const { align, window = 1, zone = [0, 0] } = this.#wire
    return align === 'day' ? dayStartUs(zone, startUs + NEXT_DAY_S * 1e6) : startUs + window
  }
}

const DAY_S = 86_400
/** A day's start plus this is in the next day: longer than the longest day, shorter than the two shortest together. */
const NEXT_DAY_S = 91_800

function offsetS(zone: readonly number[], atS: number): number {
  const last = zone.findLastIndex((fromS, i) => i % 2 === 0 && fromS <= atS)
  return zone[Math.max(0, last) + 1] as number
}

/** Midnight in local time of the zone; as in `lua/limits/fixed-window.lua`. */
function dayStartUs(zone: readonly number[], atUs: number): number {
  const atS = Math.floor(atUs / 1e6)
  const midnight = Math.floor((atS + offsetS(zone, atS)) / DAY_S) * DAY_S
  const start = midnight - offsetS(zone, midnight - offsetS(zone, atS))
  return Math.min(start, midnight - offsetS(zone, start - 1)) * 1e6
}

class WindowCounter implements LimitPlan {
  readonly #wire: LimitWire
  readonly #nowUs: number
  #startUs: number
  #used: number
  #before: number

  constructor(wire: LimitWire, { packed }: LimitState, nowUs: number) {
    const [, keptUs, used = 0, before = 0] = packed
    this.#wire = wire
    this.#nowUs = nowUs
    this.#startUs = keptUs ?? this.#aligned(nowUs)
    this.#used = used
    this.#before = before
    this.#roll(this.#aligned(nowUs))
  }

  earliest(cost: number): number {
    const { limit = 1, window = 1 } = this.#wire
    const counted = Math.min(cost, limit)
    const tries = [
      [this.#used, this.#before],
      [0, this.#used],
    ] as const
    for (const [i, [used, before]] of tries.entries()) {
      const part = before === 0 ? 0 : Math.max(0, 1 - (limit - used - counted) / before)
      const startUs = this.#startUs + i * window
      if (used + counted <= limit && part < 1) return Math.max(0, startUs - this.#nowUs + Math.ceil(part * window))
    }
    return this.#startUs + 2 * window - this.#nowUs
  }

  charge(cost: number, offsetUs: number): void {
    this.#roll(this.#aligned(this.#nowUs + Math.ceil(offsetUs)))
    this.#used += cost
  }

  far(cost: number, jobs: number, offsetUs: number): number {
    const nextUs = offsetUs + (this.#wire.window as number)
    return farWindows(this.#wire, this.#used, cost * jobs, nextUs, offsetUs)
  }

  #aligned(atUs: number): number {
    return atUs - (atUs % (this.#wire.window as number))
  }

  #roll(startUs: number): void {
    if (startUs <= this.#startUs) return
    this.#before = startUs === this.#startUs + (this.#wire.window as number) ? this.#used : 0
    this.#used = 0
    this.#startUs = startUs
  }
}

class WindowLog implements LimitPlan {
  readonly #wire: LimitWire
  readonly #nowUs: number
  readonly #charges: Charge[]
  /** Where charges were left out: between this one and the one before. */
  readonly #gapAt: number
  readonly #before: number

  constructor(wire: LimitWire, { log, read, before }: LimitState, nowUs: number) {
    this.#wire = wire
    this.#nowUs = nowUs
    this.#charges = [...log]
    this.#gapAt = log.length > read ? read : -1
    this.#before = before
  }

  earliest(cost: number): number {
    const { limit = 1, window = 1 } = this.#wire
    const order = Math.max(0, this.#lastUs - this.#nowUs)
    if (this.#sum === this.#before || this.#sum - this.#before + cost <= limit) return order
    const wanted = Math.min(this.#sum, this.#sum + cost - limit)
    return Math.max(order, this.#chargedAtUs(wanted) + window - this.#nowUs)
  }

  /** When that sum was reached; between the charges that were read and the newest, as if they had come evenly. */
  #chargedAtUs(wanted: number): number {
    const at = this.#charges.findIndex(({ sum }) => sum >= wanted)
    const { atUs, sum } = this.#charges[at] as Charge
    const left = this.#charges[at - 1]
    if (at !== this.#gapAt || !left) return atUs
    return Math.ceil(left.atUs + ((wanted - left.sum) / (sum - left.sum)) * (atUs - left.atUs))
  }

  charge(cost: number, offsetUs: number): void {
    const atUs = Math.max(this.#lastUs, this.#nowUs + Math.ceil(offsetUs))
    this.#charges.push({ atUs, sum: this.#sum + cost })
  }

  far(cost: number, jobs: number, offsetUs: number): number {
    const { limit = 1, window = 1 } = this.#wire
    const used = Math.min(limit, this.#sum - this.#before)
    return farWindows(this.#wire, used, cost * jobs, offsetUs + window, offsetUs)
  }

  get #sum(): number {
    return this.#charges.at(-1)?.sum ?? this.#before
  }

  get #lastUs(): number {
    return this.#charges.at(-1)?.atUs ?? 0
  }
}
