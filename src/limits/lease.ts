import type { LimitScript } from '../redis/scripts.ts'
import type { Part } from './decision.ts'
import type { Arguments } from './limit-client.ts'

type Run = <T>(script: LimitScript, keys: readonly string[], args: Arguments) => Promise<T>

/** A place under a `concurrency` limit. It expires unless it is extended, so that a dead holder does not keep it. */
export class Lease {
  readonly id: string
  readonly #run: Run
  readonly #part: Part
  readonly #leaseUs: number
  #expiresAt: Date

  /** @internal */
  constructor(run: Run, part: Part, leaseUs: number, nowUs: number) {
    this.id = part.lease as string
    this.#run = run
    this.#part = part
    this.#leaseUs = leaseUs
    this.#expiresAt = new Date((nowUs + leaseUs) / 1000)
  }

  /** How long the lease lasts after it is taken or extended. ms */
  get leaseMs(): number {
    return this.#leaseUs / 1000
  }

  /** When the lease expires, on Redis's clock. */
  get expiresAt(): Date {
    return this.#expiresAt
  }

  /** Extends the lease to its full length from now. @returns false if it had expired: its place may be taken */
  async extend(): Promise<boolean> {
    const { state, cost } = this.#part
    const endsUs = await this.#run<number>('extend-lease', [state], [this.id, cost, this.#leaseUs])
    if (endsUs > 0) this.#expiresAt = new Date(endsUs / 1000)
    return endsUs > 0
  }

  /** Gives the place back. @returns false if the lease had expired, or was released before */
  async release(): Promise<boolean> {
    const { limit, state, cost } = this.#part
    return (await this.#run<number>('release-lease', [limit.control, state], [this.id, cost])) === 1
  }
}
