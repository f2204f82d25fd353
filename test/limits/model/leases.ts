import { BaseModel, type Model, type View } from './base.ts'

/** Each place that is held, and when it runs out. A lease over several units holds several places. */
export class LeaseModel extends BaseModel implements Model {
  readonly #places = new Map<string, number>()

  get #duration(): number {
    return this.rule.window as number
  }

  /** When each place that is held now runs out, the soonest first. */
  #held(): number[] {
    return [...this.#places.values()].filter((end) => end > this.now).sort((one, other) => one - other)
  }

  earliest(cost: number): number {
    const limit = this.rule.limit as number
    const held = this.#held()
    const lacking = held.length + Math.min(cost, limit) - limit
    return lacking > 0 ? (held[lacking - 1] as number) - this.now : 0
  }

  // What has run out is forgotten then: a clock that goes back later does not bring it back.
  commit(cost: number, offset: number, lease: number): void {
    this.#hold(lease, cost, this.now + Math.ceil(offset) + this.#duration)
    for (const [place, end] of this.#places) if (end <= this.now) this.#places.delete(place)
  }

  #hold(lease: number, cost: number, end: number): void {
    for (let i = 1; i <= cost; i++) this.#places.set(`${lease} ${i}`, end)
  }

  settle(): void {
    throw new Error('a lease is given back, or it runs out')
  }

  takeBack(): boolean {
    throw new Error('a place follows its holder')
  }

  credit(): number {
    throw new Error('a place follows its holder')
  }

  view(): View {
    const held = this.#held()
    return { left: (this.rule.limit as number) - held.length, resetAt: held.at(-1) ?? this.now }
  }

  lose(): void {
    this.#places.clear()
  }

  override extend(lease: number, cost: number): number {
    if ((this.#places.get(`${lease} 1`) ?? 0) <= this.now) return 0
    const end = this.now + this.#duration
    this.#hold(lease, cost, end)
    return end
  }

  override release(lease: number, cost: number): number {
    const end = this.#places.get(`${lease} 1`) ?? 0
    for (let i = 1; i <= cost; i++) this.#places.delete(`${lease} ${i}`)
    return end > this.now ? 1 : 0
  }
}
