// The rate of the queue and its limits without a key, before which the chosen job waits, as it does today: nothing passes it.
//
// Decision: the exception of today, that jobs of other groups pass one that waits for a limit in a unit of which they take
// nothing, is not in the model.

import { gridIntervalUs } from '../../../src/rate.ts'
import {
  type BucketState,
  charge,
  latest,
  newState,
  reshaped,
  slotOf,
  type Ticks,
  ticksOf,
} from '../../../src/testing/bucket-state.ts'
import { Cell } from './cell.ts'
import type { Job } from './job.ts'
import { costUnder } from './lane-id.ts'
import { namesBy, type Shape } from './shape.ts'

/** A slot that the queue allows. */
export interface QueueSlot {
  readonly slotUs: number
  /** From now, not rounded. */
  readonly offsetUs: number
}

export class QueueGate {
  /** Of the rate; undefined without one. */
  #bucket: BucketState | undefined
  readonly #cells = new Map<string, Cell>()
  #shape: Shape

  constructor(shape: Shape, nowUs: number) {
    this.#shape = shape
    this.#bucket = shape.rate && newState(ticksOf(nowUs), nowUs, bucketShape(shape))
  }

  change(shape: Shape, nowUs: number): void {
    this.#shape = shape
    if (!shape.rate) this.#bucket = undefined
    else if (!this.#bucket) this.#bucket = newState(ticksOf(nowUs), nowUs, bucketShape(shape))
    else this.#bucket = reshaped(this.#bucket, bucketShape(shape), ticksOf(nowUs))
  }

  /** When its rate lets a cost of 1 go, µs: so long no group is held. */
  soonUs(nowUs: number): number {
    return this.#bucket ? wholeUs(slotOf(this.#bucket, 1, ticksOf(nowUs))) : nowUs
  }

  /** @param floorUs what the group and the cells of the job allow */
  slot(job: Job, floorUs: number, nowUs: number): QueueSlot {
    const offsets = this.#needs(job).map(({ cell, cost }) => cell.offset(cost, nowUs))
    const floor = Math.max(0, floorUs - nowUs, ...offsets)
    if (!this.#bucket) return { slotUs: nowUs + Math.ceil(floor), offsetUs: floor }
    const slot = latest(slotOf(this.#bucket, job.cost, ticksOf(nowUs)), ticksOf(nowUs) + ticksOf(floor))
    return { slotUs: wholeUs(slot), offsetUs: Number(slot - ticksOf(nowUs)) / 1024 }
  }

  charge(job: Job, { offsetUs }: QueueSlot, nowUs: number): void {
    for (const { cell, cost } of this.#needs(job)) cell.charge(cost, offsetUs, nowUs, { lease: 0 })
    if (this.#bucket) this.#bucket = charge(this.#bucket, job.cost, ticksOf(nowUs) + ticksOf(offsetUs))
  }

  /** A job goes back before it has started. @param isUnder whether it was charged under the rules of now */
  takeBack(job: Job, slotUs: number, isUnder: boolean, nowUs: number): void {
    if (!isUnder) return
    for (const { cell, cost } of this.#needs(job)) cell.takeBack(cost, slotUs, nowUs)
    const bucket = this.#bucket
    if (bucket && wholeUs(bucket.last) === slotUs)
      this.#bucket = { ...bucket, tat: bucket.tat - ticksOf(job.cost * bucket.intervalUs) }
  }

  /** For the properties. */
  get cells(): readonly Cell[] {
    return [...this.#cells.values()]
  }

  #needs(job: Job) {
    const limits = (this.#shape.limits ?? []).filter((limit) => namesBy(limit).length === 0)
    return limits.flatMap((limit) => {
      const cell = this.#cells.get(limit.name) ?? new Cell(limit.name, limit)
      this.#cells.set(limit.name, cell)
      cell.follow(limit)
      const cost = costUnder(limit, job)
      return cost > 0 ? [{ cell, cost }] : []
    })
  }
}

function bucketShape({ rate, burst = 1 }: Shape) {
  const [limit, periodMs] = rate as readonly [number, number]
  const intervalUs = gridIntervalUs(limit, periodMs)
  return { intervalUs, burst, mode: 'enforce', onStateLoss: 'burst', horizonUs: 0 } as const
}

/** Rounded up to the next microsecond: what a worker gets, so that nothing starts before its slot. */
function wholeUs(ticks: Ticks): number {
  return Number(-(-ticks >> 10n))
}
