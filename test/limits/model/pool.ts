import { createHash } from 'node:crypto'
import { encodeRule, type LimitRule, type LimitWire } from '../../../src/limits/definition.ts'
import type { QueueLimit } from '../../../src/limits/queue-limits.ts'
import type { Model } from './base.ts'
import { createModel } from './model.ts'
import { isSameRate } from './scheduled.ts'

interface Member {
  readonly model: Model
  /** What is set for it. */
  own: { rate?: LimitRule['rate'] | null; rateUntilUs?: number | undefined; heldUntilUs?: number }
}

/** A limit with `pool` by its definition: a limit for each member, of which the one that may go first is charged. */
export class PoolModel {
  #limit: QueueLimit
  #now = 0
  readonly #members = new Map<string, Member>()
  /** The one that departed last at the end. */
  #turns: string[] = []
  /** The last slot: none goes before it. */
  #last = { aheadUs: 0, atUs: 0 }

  constructor(limit: QueueLimit) {
    this.#limit = limit
    this.change(limit)
  }

  get pool(): readonly string[] {
    return this.#limit.pool as readonly string[]
  }

  set now(now: number) {
    this.#now = now
    for (const member of this.#members.values()) {
      const { model, own } = member
      if (own.rateUntilUs !== undefined && own.rateUntilUs <= now) {
        model.now = own.rateUntilUs
        member.own = { ...own, rate: undefined, rateUntilUs: undefined }
        take(model, this.#wireOf(member.own))
      }
      model.now = now
    }
  }

  /** Its rule and its members change. One that leaves and comes back is as it was. */
  change(limit: QueueLimit): void {
    this.#limit = limit
    for (const name of this.pool) {
      const known = this.#members.get(name)
      if (!known) this.#members.set(name, { model: createModel(this.#wireOf({})), own: {} })
      else take(known.model, this.#wireOf(known.own))
    }
    this.now = this.#now
  }

  set(name: string, own: Member['own']): void {
    const member = this.#members.get(name) as Member
    member.own = { ...member.own, ...own }
    if ('rate' in own) take(member.model, this.#wireOf(own))
  }

  /** µs from now until a cost conforms. */
  earliest(cost: number): number {
    const first = Math.min(...this.pool.map((name) => this.#earliestOf(name, cost)))
    // Places are taken at once, wherever a slot lies.
    if (this.#limit.algorithm === 'concurrency') return first
    return Math.max(first, this.#last.aheadUs - (this.#now - this.#last.atUs))
  }

  /** Charges a cost for a time, µs from now. @returns the member */
  commit(cost: number, offset: number, lease: number, group?: string): string {
    const conforms = (name: string) => this.#earliestOf(name, cost) <= offset
    const home = group === undefined ? undefined : this.#homeOf(group)
    // Those that have not departed have rested longest.
    const fresh = this.pool.filter((one) => !this.#turns.includes(one))
    const rested = [...fresh, ...this.#turns.filter((one) => this.pool.includes(one))]
    const name = (home !== undefined && conforms(home) ? home : rested.find(conforms)) as string
    this.#turns = [...rested.filter((one) => one !== name), name]
    this.#last = { aheadUs: offset, atUs: this.#now }
    const { model, own } = this.#members.get(name) as Member
    if (own.rate !== null) model.commit(cost, offset, lease)
    return name
  }

  takeBack(name: string, cost: number, slot: number): boolean {
    return this.#counts(name) && this.#modelOf(name).takeBack(cost, slot)
  }

  settle(name: string, cost: number): boolean {
    if (!this.#counts(name)) return false
    this.#modelOf(name).settle(cost)
    return true
  }

  release(name: string, cost: number, lease: number): boolean {
    if (!this.pool.includes(name)) return false
    this.#modelOf(name).release(lease, cost)
    return true
  }

  #counts(name: string): boolean {
    return this.pool.includes(name) && this.#members.get(name)?.own.rate !== null
  }

  #earliestOf(name: string, cost: number): number {
    const { model, own } = this.#members.get(name) as Member
    const heldUs = Math.max(0, (own.heldUntilUs ?? 0) - this.#now)
    return own.rate === null ? heldUs : Math.max(heldUs, model.earliest(cost))
  }

  #homeOf(group: string): string {
    const weight = (name: string) => createHash('sha1').update(`${group}\0${name}`).digest('hex')
    return this.pool.reduce((one, other) => (weight(other) > weight(one) ? other : one))
  }

  #modelOf(name: string): Model {
    return (this.#members.get(name) as Member).model
  }

  #wireOf({ rate }: Member['own']) {
    const { name: _, pool: __, sticky: ___, ...rule } = this.#limit
    return encodeRule(rate ? { ...rule, rate } : rule)
  }
}

/** A state takes over another rate, not the same one once more. */
function take(model: Model, wire: LimitWire): void {
  model.change(wire, !isSameRate(model.rule, wire))
}
