import type { Part } from './decider.ts'
import type { LimitClient } from './limit-client.ts'

/** A place under a limit of `concurrency`. It runs out by itself unless it is extended, so that a holder may die. */
export class Lease {
  readonly id: string
  readonly #client: LimitClient
  readonly #part: Part
  readonly #leaseUs: number
  #expiresAt: Date

  constructor(client: LimitClient, part: Part, leaseUs: number, nowUs: number) {
    this.id = part.lease as string
    this.#client = client
    this.#part = part
    this.#leaseUs = leaseUs
    this.#expiresAt = new Date((nowUs + leaseUs) / 1000)
  }

  /** On Redis's clock. */
  get expiresAt(): Date {
    return this.#expiresAt
  }

  /** Makes it last a whole lease from now on. @returns false where it had run out: another one may hold the place */
  async extend(): Promise<boolean> {
    const { state, cost } = this.#part
    const endsUs = await this.#client.run<number>('extend-lease', [state], [this.id, cost, this.#leaseUs])
    if (endsUs > 0) this.#expiresAt = new Date(endsUs / 1000)
    return endsUs > 0
  }

  /** Gives the place back. @returns false where it had run out, or was given back before */
  async release(): Promise<boolean> {
    const { limit, state, cost } = this.#part
    return (await this.#client.run<number>('release-lease', [limit.control, state], [this.id, cost])) === 1
  }
}
