import { InvalidInputError } from 'sluice/internal'
import { type Arrival, checkPositive, type Shed, Shedder, type ShedderOptions } from './shedder.ts'

export interface RequestsInFlightOptions extends ShedderOptions {
  /** Maximum number of requests in flight in this process, at least 1. */
  readonly max: number
  /**
   * In this last share of a class's room, admission falls off gradually: halfway through it, half of the callers are
   * shed. 0: first come, first served. Default 0.2.
   */
  readonly gradualShare?: number
}

/** A place is free almost at once: the shortest wait in whole seconds. */
const RETRY_AFTER_MS = 1000

/** A {@link Shedder} by the number of requests in flight. */
export class RequestsInFlight extends Shedder {
  readonly #rooms: readonly number[]
  readonly #gradualShare: number
  #count = 0

  /** @internal */
  constructor(options: RequestsInFlightOptions) {
    super('requestsInFlight', 'requests-in-flight', options, ['max', 'gradualShare'])
    const { max, gradualShare = 0.2 } = options
    if (!(Number.isSafeInteger(max) && max >= 1))
      throw new InvalidInputError(`max must be a whole number >= 1; got ${max}`)
    if (gradualShare !== 0) checkPositive({ gradualShare }, 1)
    this.#rooms = this.classes.names.map((_, rank) => this.classes.roomOf(rank, max))
    this.#gradualShare = gradualShare
  }

  /** Requests in flight, counted in every mode. */
  get count(): number {
    return this.#count
  }

  protected judge(arrival: Arrival): Shed | undefined {
    const { rank, className } = arrival
    const room = this.#rooms[rank] as number
    if (this.#count < room && !this.#isThinned(arrival, room)) return undefined
    return { retryAfterMs: RETRY_AFTER_MS, detail: `there is no room for more requests of class "${className}"` }
  }

  protected override admitted(): () => void {
    this.#count += 1
    let left = false
    return () => {
      if (!left) this.#count -= 1
      left = true
    }
  }

  #isThinned({ rank, cohort }: Arrival, room: number): boolean {
    if (this.classes.isCritical(rank)) return false
    const thinned = room * this.#gradualShare
    const share = (this.#count - (room - thinned)) / thinned
    return share > 0 && cohort() < share
  }
}

/**
 * Bounds the requests in flight in this process, with room kept for the more critical classes: with the default
 * classes and `max: 100`, sheddable requests fill 60 places, default ones and these together 80, critical ones all. To
 * bound the whole fleet, use a limit with `concurrency`. (Stripe, "Scaling your API with rate limiters", 2017: layer 2)
 * @throws InvalidInputError
 */
export function requestsInFlight(options: RequestsInFlightOptions): RequestsInFlight {
  return new RequestsInFlight(options)
}
