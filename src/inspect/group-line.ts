import { decodeGroups, type GroupDefaults, type GroupFields } from '../shape/groups.ts'
import type { AgeingLine, AgeingOrder } from './ageing.ts'
import type { Answer, Batch } from './batch.ts'
import { nthSlotOf } from './bucket.ts'
import { GroupReading } from './groups.ts'
import type { HoldingLimit } from './limit-reading.ts'
import type { GroupPlace } from './queue-status.ts'

/** As in `lua/groups/line.lua`: so many groups are looked at. */
const MOST = 100
/** As in `lua/groups/queue-groups.lua`: by how much a cost of 1 raises a tag, for a weight of 1. */
const UNIT = 2 ** 20
/** BullMQ's score of a prioritized job is its priority times this, plus a counter; those of groups are below it. */
const BAND = 2 ** 32
/** Jobs without a group are one group without a name. */
const PLAIN = ''

/** A job in a queue with groups. */
export interface PlaceAmongGroups {
  /** Jobs that leave before it, if no group is held or released. */
  readonly ahead: number
  /** Whether there are more groups than were looked at. */
  readonly isAheadAtLeast: boolean
  /** undefined for a job without a group. */
  readonly group: GroupPlace | undefined
  /** The last slot of its group; undefined where it has no rate. */
  readonly servedAt: Date | undefined
  /** When its group lets it go, ms; Infinity where that is not known. Without the limits of its group. */
  readonly ownStartMs: number
  /** Jobs of its group, or without one, that leave before it. */
  readonly before: number
  /** The limits per group that hold it: an estimate charges them. */
  readonly limits: readonly HoldingLimit[]
}

/** Where a waiting job stands: the formulas of `lua/groups/line.lua`, for users that may only read. */
export class GroupLineReading {
  readonly #base: string
  readonly #id: string
  readonly #own: GroupReading
  readonly #rank: Answer<number | null>
  readonly #grouped: Answer<number>
  readonly #plain: Answer<number>
  readonly #listed: Answer<number>
  readonly #clock: Answer<(string | null)[]>
  readonly #ownTag: Answer<string | null>
  readonly #plainTag: Answer<string | null>
  readonly #ready: Answer<string[]>
  readonly #ownTurn: Answer<string | null>
  readonly #plainTurn: Answer<string | null>
  #others: readonly { readonly id: string; readonly tag: number; readonly reading: GroupReading }[] = []

  /** @param group undefined for a job without one */
  constructor(base: string, group: string | undefined, jobId: string, batch: Batch) {
    this.#base = base
    this.#id = group ?? PLAIN
    this.#own = new GroupReading(base, this.#id, batch)
    this.#rank = batch.add('zrank', `${base}meta:group:jobs:${this.#id}`, jobId)
    this.#listed = batch.add('llen', `${base}wait`)
    this.#grouped = batch.add('zcount', `${base}prioritized`, '-inf', `(${BAND}`)
    this.#plain = batch.add('zcount', `${base}prioritized`, BAND, '+inf')
    this.#clock = batch.add('hmget', `${base}meta:groups`, 'v', 't')
    this.#ownTag = batch.add('zscore', `${base}meta:groups:tags`, this.#id)
    this.#plainTag = batch.add('zscore', `${base}meta:groups:tags`, PLAIN)
    // It may be behind the first ones.
    this.#ownTurn = batch.add('zscore', `${base}meta:groups:ready`, this.#id)
    this.#plainTurn = batch.add('zscore', `${base}meta:groups:ready`, PLAIN)
    this.#ready = batch.add('zrange', `${base}meta:groups:ready`, 0, MOST - 1, 'WITHSCORES')
  }

  /** Asks for the other groups in line, and for how the limits per group stand. */
  more(batch: Batch, limits: string | undefined, nowUs: number): void {
    if (limits !== undefined) this.#own.more(batch, limits, nowUs)
    const others = [...this.#tags()].filter(([id]) => id !== this.#id)
    this.#others = others.map(([id, tag]) => ({ id, tag, reading: new GroupReading(this.#base, id, batch) }))
  }

  /** Finds the next job of its group, where jobs age. */
  async age(order: AgeingOrder | undefined): Promise<void> {
    if (this.#id !== PLAIN) await this.#own.age(order)
  }

  /** Where the jobs of its group wait. */
  get line(): AgeingLine {
    if (this.#id !== PLAIN) return { set: `${this.#base}meta:group:jobs:${this.#id}`, from: 0, list: undefined }
    return { set: `${this.#base}prioritized`, from: BAND, list: `${this.#base}wait` }
  }

  /**
   * How many jobs of its group leave before it, if they do not age; undefined where it is not sorted in yet.
   * @param ahead how many of all jobs are ahead of it by BullMQ's order
   */
  before({ state, ahead }: { readonly state: string; readonly ahead: number }): number | undefined {
    if (this.#id !== PLAIN) return this.#rank() ?? undefined
    return ahead - (state === 'prioritized' ? this.#grouped() : 0)
  }

  /** @param before how many jobs of its group leave before it */
  place(
    shape: string,
    { cost, before }: { readonly cost: number; readonly before: number },
    { meanCost, nowUs }: { readonly meanCost: number; readonly nowUs: number },
  ): PlaceAmongGroups {
    const defaults = decodeGroups(shape)
    const state = this.#own.state(defaults, nowUs)
    const isPlain = this.#id === PLAIN
    const group = isPlain ? undefined : { ...state, ahead: before }
    return {
      ahead: before + this.#othersBefore(before, isPlain ? {} : state.inForce, defaults, { meanCost, nowUs }),
      isAheadAtLeast: this.#tags().size === MOST,
      group,
      servedAt: this.#own.servedAt,
      ...{ before, limits: this.#own.limits() },
      ownStartMs: group ? this.#ownStartMs(group, cost, { meanCost, nowUs }) : 0,
    }
  }

  /** How many jobs of other groups leave before the one that has `before` of its own ahead of it. */
  #othersBefore(
    before: number,
    own: GroupFields,
    defaults: GroupDefaults,
    { meanCost, nowUs }: { readonly meanCost: number; readonly nowUs: number },
  ): number {
    const plainFirst = defaults.ungrouped === 'first'
    if (this.#id === PLAIN && plainFirst) return 0
    const stepOf = ({ weight = 1 }: GroupFields) => (meanCost * UNIT) / weight
    const [v = 0, t = 0] = this.#clock().map(Number)
    // One that is not ready, and keeps no tag, gets the next new one; jobs without a group get theirs last.
    let newest = Math.max(v, t)
    const tagOf = (turn: string | null, kept: string | null) => {
      if (turn !== null) return Number(turn)
      if (Number(kept ?? 0) > v) return Number(kept)
      newest += 1
      return newest
    }
    const ownTag = tagOf(this.#ownTurn(), this.#ownTag())
    const rows = this.#others.map(({ id, tag, reading }) => {
      const { waiting, inForce } = reading.state(defaults, nowUs)
      return { id, tag, waiting, step: stepOf(inForce) }
    })
    const plain = {
      id: PLAIN,
      tag: tagOf(this.#plainTurn(), this.#plainTag()),
      waiting: this.#listed() + this.#plain(),
      step: stepOf({}),
    }
    const others = [...rows.filter(({ id }) => id !== PLAIN), ...(this.#id === PLAIN ? [] : [plain])]
    const until = ownTag + before * stepOf(own)
    return others.reduce((jobs, { id, tag, waiting, step }) => {
      if (id === PLAIN && plainFirst) return jobs + waiting
      const steps = (until - tag) / step
      // Of equal tags the one of the first name leaves first.
      const ties = Number.isInteger(steps) && id < this.#id ? 1 : 0
      return jobs + Math.max(0, Math.min(waiting, Math.ceil(steps) + ties))
    }, 0)
  }

  #ownStartMs(
    { ahead, status, until, inForce }: GroupPlace,
    cost: number,
    { meanCost, nowUs }: { readonly meanCost: number; readonly nowUs: number },
  ): number {
    if (status === 'maxed' || (status === 'paused' && !until)) return Number.POSITIVE_INFINITY
    const fromMs = until?.getTime() ?? 0
    const bucket = this.#own.bucket(inForce, nowUs)
    if (!bucket) return fromMs
    const first = ahead === 0 ? cost : meanCost
    return nthSlotOf(bucket, ahead + 1, first, meanCost, Math.max(nowUs, fromMs * 1000)) / 1000
  }

  /** Of the first groups in line. */
  #tags(): ReadonlyMap<string, number> {
    const flat = this.#ready().flat()
    return new Map(flat.flatMap((id, i) => (i % 2 === 0 ? [[id, Number(flat[i + 1])] as const] : [])))
  }
}
