import { BaseModel, type Model, type View } from './base.ts'

interface Charge {
  readonly time: number
  readonly cost: number
}

/** Every charge with its time. With costs in halves, quarters and so on all sums are exact in any order. */
export class LogModel extends BaseModel implements Model {
  #charges: Charge[] = []

  /** A clock that went back: all that counted then counts as charged now. */
  protected override look(): void {
    if (this.now >= this.changedAt || this.#charges.length === 0) return
    const cost = sumOf(this.#chargesAt(this.changedAt))
    this.#charges = cost > 0 ? [{ time: this.now, cost }] : []
    this.changedAt = this.now
  }

  get #window(): number {
    return this.rule.window as number
  }

  /** A window is half-open: what was charged a whole window ago counts no more. */
  #chargesAt(time: number): Charge[] {
    return this.#charges.filter((charge) => charge.time > time - this.#window)
  }

  /** µs of the latest charge: none goes before it. */
  #last(): number {
    return this.#charges.at(-1)?.time ?? Number.NEGATIVE_INFINITY
  }

  earliest(cost: number): number {
    const limit = this.rule.limit as number
    const charges = this.#chargesAt(this.now)
    let used = sumOf(charges)
    // When the first so many have left the window; all of them, for a cost above a limit that was lowered.
    let conforms = this.now
    for (const { time, cost: charged } of charges) {
      if (used + cost <= limit) break
      used -= charged
      conforms = time + this.#window
    }
    return Math.max(0, this.#last() - this.now, conforms - this.now)
  }

  commit(cost: number, offset: number): void {
    this.#charges = this.#chargesAt(this.now)
    this.#charges.push({ time: Math.max(this.#last(), this.now + Math.ceil(offset)), cost })
    this.changedAt = this.now
  }

  settle(cost: number): void {
    if (cost > 0) this.commit(cost, 0)
    else this.#giveBack(-cost)
  }

  /** The oldest charges first: they leave the window first. */
  #giveBack(cost: number): void {
    const charges = this.#chargesAt(this.now)
    if (charges.length === 0) return
    let back = cost
    while (back > 0 && charges.length > 0) {
      const oldest = charges.shift() as Charge
      if (oldest.cost > back) charges.unshift({ time: oldest.time, cost: oldest.cost - back })
      back -= oldest.cost
    }
    this.#charges = charges
    this.changedAt = this.now
  }

  takeBack(cost: number, slot: number): boolean {
    const charges = this.#chargesAt(this.now)
    const charged = sumOf(charges.filter(({ time }) => time === slot))
    if (charged === 0) return false
    const left = charged - Math.min(cost, charged)
    const others = charges.filter(({ time }) => time !== slot)
    this.#charges = [...others, ...(left > 0 ? [{ time: slot, cost: left }] : [])].sort((a, b) => a.time - b.time)
    this.changedAt = this.now
    return true
  }

  override undo(): void {
    this.#charges.pop()
    this.changedAt = this.now
  }

  credit(cost: number, slot: number): number {
    return Math.min(cost, sumOf(this.#chargesAt(this.now).filter(({ time }) => time <= slot)))
  }

  view(): View {
    const used = sumOf(this.#chargesAt(this.now))
    const resetAt = used > 0 ? this.#last() + this.#window : this.now
    return { left: (this.rule.limit as number) - used, resetAt }
  }

  lose(): void {
    this.#charges = []
  }
}

function sumOf(charges: readonly Charge[]): number {
  return charges.reduce((sum, { cost }) => sum + cost, 0)
}
