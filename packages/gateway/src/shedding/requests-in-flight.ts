import { checkCallOptions, InvalidInputError } from 'sluice/internal'
import { type Arrival, type Overload, type Shed, Shedder } from './shedder.ts'
import { checkPositive, SHEDDER_OPTIONS, type ShedderOptions } from './shedder-options.ts'
import { TrafficClasses } from './traffic-classes.ts'

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

class InFlight implements Overload {
  readonly #rooms: readonly number[]
  readonly #classes: TrafficClasses
  readonly #gradualShare: number
  #count = 0

  constructor(classes: TrafficClasses, { max, gradualShare = 0.2 }: RequestsInFlightOptions) {
    this.#classes = classes
    this.#rooms = classes.names.map((_, rank) => classes.roomOf(rank, max))
    this.#gradualShare = gradualShare
  }

  get count(): number {
    return this.#count
  }

  judge(arrival: Arrival): Shed | undefined {
    const { rank, className } = arrival
    const room = this.#rooms[rank] as number
    if (this.#count < room && !this.#isThinned(arrival, room)) return undefined
    return { retryAfterMs: RETRY_AFTER_MS, detail: `there is no room for more requests of class "${className}"` }
  }

  admitted(): () => void {
    this.#count += 1
    let left = false
    return () => {
      if (!left) this.#count -= 1
      left = true
    }
  }

  #isThinned({ rank, cohort }: Arrival, room: number): boolean {
    if (this.#classes.isCritical(rank)) return false
    const thinned = room * this.#gradualShare
    const share = (this.#count - (room - thinned)) / thinned
    return share > 0 && cohort() < share
  }
}

/** A {@link Shedder} by the number of requests in flight. */
export class RequestsInFlight extends Shedder {
  readonly #inFlight: InFlight

  /** @internal */
  constructor(classes: TrafficClasses, inFlight: InFlight, options: RequestsInFlightOptions) {
    super(options.name ?? 'requests-in-flight', inFlight, classes, options)
    this.#inFlight = inFlight
  }

  /** Requests in flight, counted in every mode. */
  get count(): number {
    return this.#inFlight.count
  }
}

/**
 * Bounds the requests in flight in this process, with room kept for the more critical classes: with the default
 * classes and `max: 100`, sheddable requests fill 60 places, default ones and these together 80, critical ones all. To
 * bound the whole fleet, use a limit with `concurrency`. (Stripe, "Scaling your API with rate limiters", 2017: layer 2)
 * @throws InvalidInputError
 */
export function requestsInFlight(options: RequestsInFlightOptions): RequestsInFlight {
  checkCallOptions('requestsInFlight', options, [...SHEDDER_OPTIONS, 'max', 'gradualShare'])
  const { max, gradualShare = 0.2, classes, classify } = options
  if (!(Number.isSafeInteger(max) && max >= 1))
    throw new InvalidInputError(`max must be a whole number >= 1; got ${max}`)
  if (gradualShare !== 0) checkPositive({ gradualShare }, 1)
  const sorted = new TrafficClasses(classes, classify)
  return new RequestsInFlight(sorted, new InFlight(sorted, options), options)
}
