import type { DepartureReply } from '../departure/reply.ts'
import type { StoredShape } from '../shape/stored.ts'
import { MovingMean } from './run-times.ts'

/** This many consecutive slots missed while every place was taken are not a coincidence. */
const LOST_SLOTS = 20

/** Weight of the last job in the mean. */
const JOB_WEIGHT = 1 / 16

/** Warns once if jobs take so long that the concurrency cannot sustain the rate. */
export class ThroughputWatch {
  readonly #queueName: string
  readonly #jobMs = new MovingMean(JOB_WEIGHT)
  #wasFull = false
  #lost = 0
  #warned = false

  constructor(queueName: string) {
    this.#queueName = queueName
  }

  ran(ms: number): void {
    this.#jobMs.add(ms)
  }

  /**
   * A reply arrived; the previous one may have filled the worker.
   * @param isFull whether this one did, so that slots may pass unused from now on
   */
  asked(reply: DepartureReply, isFull: boolean, shape: StoredShape | undefined, concurrency: number): void {
    const [first] = reply.grants
    // The slot is due now although it was requested as soon as a place was free: earlier slots have passed unused.
    const late = first !== undefined && reply.nowUs !== undefined && first.slotUs <= reply.nowUs
    this.#lost = this.#wasFull && late ? this.#lost + 1 : 0
    this.#wasFull = isFull
    this.#warn(shape, concurrency)
  }

  /** A place was used again at once by a job whose slot had come. */
  fetched(shape: StoredShape | undefined, concurrency: number): void {
    this.#lost += 1
    this.#wasFull = true
    this.#warn(shape, concurrency)
  }

  #warn(shape: StoredShape | undefined, concurrency: number): void {
    const intervalUs = shape?.pacedIntervalUs
    if (this.#warned || this.#lost < LOST_SLOTS || intervalUs === undefined) return
    const needed = Math.ceil(((this.#jobMs.value ?? 0) * 1000) / intervalUs)
    const available = Math.min(concurrency, shape?.number('concurrency') ?? concurrency)
    if (needed <= available) return
    this.#warned = true
    process.emitWarning(
      `queue "${this.#queueName}": jobs take ${Math.round(this.#jobMs.value ?? 0)} ms, so its rate needs ${needed} of them ` +
        `running at once over all workers, and this worker runs ${available}: raise concurrency or start more workers`,
      { code: 'SLUICE_CONCURRENCY' },
    )
  }
}
