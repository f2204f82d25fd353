import { Admission } from '../../src/admission/admission.ts'
import { QueueFullError } from '../../src/errors.ts'
import type { Client } from '../../src/redis/commands.ts'
import { ShapeStore } from '../../src/shape/store.ts'
import { type BullmqArguments, bullmqArguments } from './bullmq-arguments.ts'
import type { Fleet } from './fleet.ts'

/** A refusal: when Redis made it, and its hint. */
export interface Refusal {
  readonly atUs: number
  readonly retryAfterMs: number
}

/**
 * Adds jobs of a fleet one by one, each as soon as the previous one is accepted, and retries exactly at the time in the
 * hint.
 */
export class ObedientProducer {
  readonly refusals: Refusal[] = []
  /** When each job was accepted, µs. */
  readonly acceptedUs: number[] = []
  /** The error of a call that ended with neither a refusal nor an id. */
  failure: unknown
  readonly #fleet: Fleet
  readonly #bullmq: BullmqArguments
  readonly #client: Client
  readonly #admission: Admission
  #arrivedUs = 0

  constructor(fleet: Fleet, base: string, roundTripUs: number) {
    const { set } = fleet.redis.scripts
    this.#fleet = fleet
    this.#bullmq = bullmqArguments(base, {})
    const halfTripUs = () => (roundTripUs / 2) * (1 + 0.2 * fleet.uniform())
    this.#client = fleet.redis.clientAt(halfTripUs, () => {
      this.#arrivedUs = fleet.time.nowUs
    })
    const store = new ShapeStore(base, async () => this.#client, set)
    this.#admission = new Admission(set, store, 'obedient')
  }

  /** Adds the jobs from that number on. */
  async run(first: number): Promise<void> {
    const { time, jobs } = this.#fleet
    try {
      for (let number = first; number < jobs.length; ) {
        const retryAfterMs = await this.#offer(number)
        if (retryAfterMs === undefined) number += 1
        else await time.until(time.nowUs + retryAfterMs * 1000)
      }
    } catch (error) {
      this.failure = error
    }
  }

  /** @returns undefined where it is accepted */
  async #offer(number: number): Promise<number | undefined> {
    const { time } = this.#fleet
    const args = await this.#bullmq.addStandardJob(String(number), Math.floor(time.nowUs / 1000))
    const job = { cost: 1, id: String(number), deduplicationId: '', terms: '' }
    const call = { script: 'addStandardJob', args, job }
    try {
      await this.#admission.add(this.#client, call)
      this.acceptedUs.push(this.#arrivedUs)
      return undefined
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      this.refusals.push({ atUs: this.#arrivedUs, retryAfterMs: error.retryAfterMs })
      return error.retryAfterMs
    }
  }
}
