import type { LimitWire } from '../../../src/limits/definition.ts'
import type { StoredRate } from '../../../src/limits/schedule.ts'
import { ServiceCurve } from '../../../src/shape/service-curve.ts'
import { BaseModel, type Model, type View } from './base.ts'
import { START_US } from './stories.ts'
import { nextWindow, windowOf } from './windows.ts'

const TICKS_PER_US = 1024

interface Spent {
  readonly start: number
  readonly used: number
  /** The last slot. */
  readonly last: number
  /** Units that had left by then before it was their turn. */
  readonly early: number
}

/** A window whose units that are left are spread evenly over its open time that is left. */
export class EvenWindowModel extends BaseModel implements Model {
  readonly #open: ServiceCurve
  #spent: Spent | undefined

  constructor(rule: LimitWire) {
    super(rule)
    this.#open = new ServiceCurve([1, 1, rule.schedule] as unknown as StoredRate, 1_000_000, START_US)
  }

  /** That of the window of whoever comes now. */
  #current(): Spent {
    const own = windowOf(this.rule, this.now)
    const known = this.#spent
    if (!known) return fresh(own)
    const back = Math.max(0, this.changedAt - this.now)
    const start = back > 0 ? windowOf(this.rule, this.now + Math.max(0, known.start - this.changedAt)) : known.start
    if (start < own || known.used === 0) return fresh(Math.max(start, own))
    return { ...known, start, last: Math.max(start, known.last - back) }
  }

  earliest(cost: number): number {
    const { now, rule } = this
    const spent = this.#current()
    const finish = nextWindow(rule, spent.start)
    if (spent.used === 0 || spent.used + cost <= (rule.limit as number)) {
      const burst = rule.even as number
      const turn = this.#after(
        spent.last,
        Math.max(0, spent.early + Math.min(cost, burst) - burst) * this.#interval(spent),
      )
      const at = this.#after(Math.max(now, spent.start, turn), 0)
      if (at < finish) return at - now
    }
    return this.#after(Math.max(now, finish), 0) - now
  }

  commit(cost: number, offset: number): void {
    const at = this.now + Math.ceil(offset)
    const spent = this.#current()
    const begins = at >= nextWindow(this.rule, spent.start) || (spent.used === 0 && at > spent.start)
    if (begins || spent.used === 0) {
      const start = begins ? windowOf(this.rule, at) : spent.start
      this.#change({ start, used: cost, last: Math.max(at, start), early: cost })
      return
    }
    const passed = this.#between(spent.last, at)
    const each = this.#interval(spent)
    const early = passed > 0 && each > 0 ? Math.max(0, spent.early - passed / each) : spent.early
    this.#change({ ...spent, used: spent.used + cost, last: at, early: early + cost })
  }

  settle(cost: number): void {
    const spent = this.#current()
    this.#change({ ...spent, used: Math.max(0, spent.used + cost) })
  }

  takeBack(cost: number, slot: number): boolean {
    const spent = this.#current()
    if (slot < spent.start || slot >= nextWindow(this.rule, spent.start) || spent.used === 0) return false
    const early = slot === spent.last ? Math.max(0, spent.early - cost) : spent.early
    this.#change({ ...spent, used: Math.max(0, spent.used - cost), early })
    return true
  }

  credit(cost: number, slot: number): number {
    return slot >= this.#current().start ? cost : 0
  }

  view(): View {
    const { start, used } = this.#current()
    const resetAt = nextWindow(this.rule, start)
    if (start > this.now) return { left: 0, resetAt: used > 0 ? resetAt : start }
    return { left: (this.rule.limit as number) - used, resetAt }
  }

  lose(): void {
    this.#spent = undefined
    this.changedAt = -1
  }

  /** µs of open time for each unit that is left, or left early. */
  #interval({ start, used, last, early }: Spent): number {
    const { limit = 0, slowest = Number.POSITIVE_INFINITY } = this.rule
    const units = Math.max(0, limit - used) + early
    return units > 0 ? Math.min(slowest, this.#between(last, nextWindow(this.rule, start)) / units) : 0
  }

  #between(from: number, to: number): number {
    return to <= from ? 0 : Number(this.#open.at(to) - this.#open.at(from)) / TICKS_PER_US
  }

  /** When so much open time is over, and it is open. */
  #after(from: number, us: number): number {
    return Math.max(from, this.#open.when(this.#open.at(from) + BigInt(Math.ceil(us * TICKS_PER_US))))
  }

  #change(spent: Spent): void {
    this.#spent = spent
    this.changedAt = this.now
  }
}

function fresh(start: number): Spent {
  return { start, used: 0, last: start, early: 0 }
}
