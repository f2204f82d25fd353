import type { LimitWire } from '../../../src/limits/definition.ts'
import { BaseModel, type Model, type View } from './base.ts'

const DAY_S = 86_400

/** Fixed windows at places of their own: how much was charged in which. */
export class AlignedWindowModel extends BaseModel implements Model {
  #counts = new Map<number, number>()
  /** The window that was charged last: none goes before it. */
  #latest = Number.NEGATIVE_INFINITY

  /** The window of whoever comes now. */
  #current(): number {
    const own = windowOf(this.rule, this.now)
    if (this.now >= this.changedAt) return Math.max(own, this.#latest)
    // The clock went back: the window that was current stays current, one that was ahead stays as far ahead.
    return this.#latest > this.changedAt ? windowOf(this.rule, this.now + this.#latest - this.changedAt) : own
  }

  /** What was charged in it. */
  #used(): number {
    const back = this.now < this.changedAt
    return this.#counts.get(back ? this.#latest : this.#current()) ?? 0
  }

  earliest(cost: number): number {
    const used = this.#used()
    const start = this.#current()
    // A cost above a limit that was lowered conforms in an empty window.
    const fits = used === 0 || used + cost <= (this.rule.limit as number)
    return Math.max(0, (fits ? start : nextWindow(this.rule, start)) - this.now)
  }

  commit(cost: number, offset: number): void {
    this.#clockWentBack()
    const current = this.#current()
    this.#charge(Math.max(current, windowOf(this.rule, this.now + Math.ceil(offset))), cost)
  }

  settle(cost: number): void {
    this.#clockWentBack()
    const current = this.#current()
    this.#charge(current, Math.max(cost, -this.#used()))
  }

  /** Only of the window of whoever comes now. */
  takeBack(cost: number, slot: number): boolean {
    const current = this.#current()
    const used = this.#used()
    if (windowOf(this.rule, slot) !== current || used === 0) return false
    this.#clockWentBack()
    this.#charge(current, -Math.min(cost, used))
    return true
  }

  credit(cost: number, slot: number): number {
    return slot >= this.#current() ? cost : 0
  }

  view(): View {
    const start = this.#current()
    const resetAt = nextWindow(this.rule, start)
    if (start > this.now) return { left: 0, resetAt: this.#used() > 0 ? resetAt : start }
    return { left: (this.rule.limit as number) - this.#used(), resetAt }
  }

  lose(): void {
    this.#counts.clear()
    this.#latest = Number.NEGATIVE_INFINITY
    this.changedAt = -1
  }

  #charge(window: number, cost: number): void {
    this.#counts.set(window, (this.#counts.get(window) ?? 0) + cost)
    this.#latest = window
    this.changedAt = this.now
  }

  /** Windows of the old clock say nothing any more, but for the one that moved with it. */
  #clockWentBack(): void {
    if (this.now >= this.changedAt) return
    const current = this.#current()
    this.#counts = new Map([[current, this.#used()]])
    this.#latest = current
    this.changedAt = this.now
  }
}

export function windowOf(rule: LimitWire, at: number): number {
  if (rule.zone) return beginOf(rule.zone, firstDay(rule, localDay(rule.zone, Math.floor(at / 1_000_000))))
  return Math.floor(at / (rule.window as number)) * (rule.window as number)
}

export function nextWindow(rule: LimitWire, start: number): number {
  if (!rule.zone) return start + (rule.window as number)
  const first = localDay(rule.zone, start / 1_000_000)
  let day = first + 1
  while (firstDay(rule, day) === first) day++
  return beginOf(rule.zone, day)
}

/** The first day of the window of a day; both are numbers of days since 1970. */
function firstDay({ align }: LimitWire, day: number): number {
  const date = new Date(day * DAY_S * 1000)
  if (align === 'month') return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1) / 1000 / DAY_S
  return align === 'week' ? day - ((date.getUTCDay() + 6) % 7) : day
}

/** The first moment of a local day: among those at which the clocks can have shown midnight. */
function beginOf(zone: readonly number[], day: number): number {
  const { offsets, changes } = inParts(zone)
  const midnights = offsets.map((offset) => day * DAY_S - offset)
  const near = changes.filter((change) => Math.abs(change - day * DAY_S) < 2 * DAY_S)
  return Math.min(...[...midnights, ...near].filter((second) => localDay(zone, second) === day)) * 1_000_000
}

interface ZoneParts {
  readonly offsets: readonly number[]
  readonly changes: readonly number[]
}

const known = new WeakMap<readonly number[], ZoneParts>()

/** Each offset once, and when they change. */
function inParts(zone: readonly number[]): ZoneParts {
  const found = known.get(zone) ?? {
    offsets: [...new Set(zone.filter((_, i) => i % 2 === 1))],
    changes: zone.filter((_, i) => i % 2 === 0),
  }
  known.set(zone, found)
  return found
}

function localDay(zone: readonly number[], second: number): number {
  const last = zone.findLastIndex((from, i) => i % 2 === 0 && from <= second)
  return Math.floor((second + (zone[Math.max(0, last) + 1] as number)) / DAY_S)
}

interface Begun {
  readonly start: number
  readonly used: number
  /** What was charged for the very start. */
  readonly opening: number
}

/** A fixed window that begins with its first unit. */
export class FirstWindowModel extends BaseModel implements Model {
  #begun: Begun | undefined

  /** The window of whoever comes now, moved with a clock that went back. */
  #current(): Begun {
    const { now, rule } = this
    const unused = { start: now, used: 0, opening: 0 }
    if (!this.#begun) return unused
    const start = this.#begun.start - Math.max(0, this.changedAt - now)
    return now < start + (rule.window as number) ? { ...this.#begun, start } : unused
  }

  earliest(cost: number): number {
    const { start, used } = this.#current()
    const fits = used === 0 || used + cost <= (this.rule.limit as number)
    return Math.max(0, (fits ? start : start + (this.rule.window as number)) - this.now)
  }

  commit(cost: number, offset: number): void {
    const at = this.now + Math.ceil(offset)
    const { start, used, opening } = this.#current()
    const begins = at >= start + (this.rule.window as number) || (used === 0 && at > start)
    if (begins) this.#change({ start: at, used: cost, opening: cost })
    else this.#change({ start, used: used + cost, opening: (used === 0 ? 0 : opening) + (at <= start ? cost : 0) })
  }

  settle(cost: number): void {
    const current = this.#current()
    this.#change({ ...current, used: Math.max(0, current.used + cost) })
  }

  /** Where only what began the window goes, it would have begun with another charge: with which is not remembered. */
  takeBack(cost: number, slot: number): boolean {
    const { start, used, opening } = this.#current()
    if (slot < start || slot >= start + (this.rule.window as number) || used === 0) return false
    if (slot === start && cost >= opening && cost < used) return false
    const left = slot === start ? Math.max(0, opening - cost) : opening
    this.#change({ start, used: Math.max(0, used - cost), opening: left })
    return true
  }

  credit(cost: number, slot: number): number {
    return slot >= this.#current().start ? cost : 0
  }

  view(): View {
    const { start, used } = this.#current()
    const resetAt = start + (this.rule.window as number)
    if (start > this.now) return { left: 0, resetAt: used > 0 ? resetAt : start }
    return { left: (this.rule.limit as number) - used, resetAt }
  }

  lose(): void {
    this.#begun = undefined
    this.changedAt = -1
  }

  #change(begun: Begun): void {
    this.#begun = begun
    this.changedAt = this.now
  }
}
