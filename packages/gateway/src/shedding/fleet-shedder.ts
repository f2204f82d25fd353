import { InvalidInputError } from 'sluice/internal'
import type { HttpRequest } from '../middleware.ts'
import { type QueueState, QueueWatch, type WatchedQueue } from './queue-watch.ts'
import { type ShedControl, ShedLevel } from './shed-level.ts'
import { type Arrival, checkPositive, type Shed, Shedder, type ShedderOptions } from './shedder.ts'

export interface FleetShedderOptions extends ShedderOptions, ShedControl {
  /** The queue that the requests add jobs to: a ShapedQueue. */
  readonly queue: WatchedQueue
  /** Above this share of its capacity the queue is too long, and the level rises. 0 to 1, default 0.5. */
  readonly depthShare?: number
  /**
   * A queue whose head has waited longer than this is too slow, and the level rises. ms, default: the age does not
   * count. A tenth of the longest wait allowed for a job is a good start. (CoDel, RFC 8289, and DAGOR: waiting time,
   * not length, indicates overload)
   */
  readonly targetAgeMs?: number
  /** How often the queue is read, and the level moves, while requests arrive. ms, default 500. */
  readonly intervalMs?: number
  /** An older state no longer counts: all requests are let in. ms, default 10 000. */
  readonly staleAfterMs?: number
  /**
   * Places of the queue that a request takes; they count until the queue is read after its response, or a second after
   * it arrived. Default: 1, and 0 for GET, HEAD, OPTIONS and DELETE.
   */
  readonly places?: (request: HttpRequest) => number
  /** Called when the queue cannot be read. It must not throw. */
  readonly onError?: (error: Error) => void
}

const OPTIONS = [
  ...['shedStep', 'restoreStep', 'queue', 'depthShare', 'targetAgeMs', 'intervalMs', 'staleAfterMs', 'places'],
  'onError',
]
const INTERVAL_MS = 500
const STALE_AFTER_MS = 10_000
const DEPTH_SHARE = 0.5
const TAKE_NONE: readonly string[] = ['GET', 'HEAD', 'OPTIONS', 'DELETE']

/** A {@link Shedder} by the state of a queue. */
class FleetShedder extends Shedder {
  readonly #options: FleetShedderOptions
  readonly #level: ShedLevel
  readonly #watch: QueueWatch
  readonly #staleAfterMs: number
  readonly #intervalMs: number

  /** @internal */
  constructor(options: FleetShedderOptions) {
    super('fleetShedder', `fleet-shedder:${options?.queue?.name}`, options, OPTIONS)
    const { queue, intervalMs = INTERVAL_MS, staleAfterMs = STALE_AFTER_MS, onError = () => {} } = options
    const { depthShare, shedStep, restoreStep, targetAgeMs } = options
    if (typeof queue?.meter !== 'function')
      throw new InvalidInputError(`a fleet shedder needs a ShapedQueue; got ${queue}`)
    checkPositive({ depthShare, shedStep, restoreStep }, 1)
    checkPositive({ targetAgeMs, intervalMs, staleAfterMs })
    this.#options = options
    this.#staleAfterMs = staleAfterMs
    this.#intervalMs = intervalMs
    this.#level = new ShedLevel(this.classes.names.length, this.classes.sheddable, intervalMs, options)
    const onState = (state: QueueState, intervals: number) => {
      const pressure = this.#pressure(state)
      this.#level.adjust(pressure, intervals)
      return pressure > 1
    }
    this.#watch = new QueueWatch(queue, { intervalMs, now: this.now, onState, onError })
  }

  /** How much is shed: 0 is nothing, 1 the whole last class, 2 also the class before it. */
  get level(): number {
    return this.#level.level
  }

  /** The last reading of the queue, and its age. */
  get seen(): { readonly state: QueueState | undefined; readonly ageMs: number } {
    const { state, ageMs } = this.#watch
    return { state, ageMs }
  }

  protected judge(arrival: Arrival): Shed | undefined {
    this.#watch.look()
    if (this.classes.isCritical(arrival.rank) || this.#watch.ageMs > this.#staleAfterMs) return undefined
    return this.#withoutRoom(arrival) ?? this.#level.judge(arrival)
  }

  protected override admitted({ request }: Arrival): (() => void) | undefined {
    const places = this.#placesOf(request)
    return places > 0 ? this.#watch.give(places) : undefined
  }

  /** At any level: places reserved for more critical classes are kept for them. */
  #withoutRoom({ request, rank, className }: Arrival): Shed | undefined {
    const capacity = this.#watch.state?.capacity
    if (capacity === undefined) return undefined
    const places = this.#placesOf(request)
    if (places === 0 || this.#watch.depth + places <= this.classes.roomOf(rank, capacity)) return undefined
    const { name } = this.#options.queue
    return { retryAfterMs: this.#intervalMs, detail: `queue "${name}" has no room for class "${className}"` }
  }

  #pressure({ depth, capacity, headAgeMs }: QueueState): number {
    const { depthShare = DEPTH_SHARE, targetAgeMs } = this.#options
    const length = capacity === undefined ? 0 : depth / (capacity * depthShare)
    const age = targetAgeMs === undefined || headAgeMs === undefined ? 0 : headAgeMs / targetAgeMs
    return Math.max(length, age)
  }

  #placesOf(request: HttpRequest): number {
    const { places } = this.#options
    if (places) return Math.max(0, places(request)) || 0
    return TAKE_NONE.includes(request.method) ? 0 : 1
  }
}

/**
 * Sheds requests while the queue behind them is too long or too slow: the most sheddable class first, a growing share
 * of its callers, then the class before it. The first class always passes; its reserved share of the capacity is kept
 * for it at any level: with the default classes and `capacity: 100`, sheddable requests fill 60 places, default ones
 * and these together 80. Several processes may give out the same place between two readings; if that must not
 * happen, use `shape.reservedPlaces`, which Redis itself enforces.
 *
 * Each process reads the queue by one call in `intervalMs`, while requests arrive, and under overload until a minute
 * after the last one: so it sheds within two seconds however sparse they are. No request waits for a reading. All
 * processes see the same queue and the same cohorts, but one that has just started begins at level 0. While Redis does
 * not answer, the last state holds for `staleAfterMs`; then all requests are let in, as before the first reading: a
 * shedder must not cause the outage, and the queue itself still refuses. A paused queue ages too. In shadow mode
 * nothing is shed, so the level rises further than it would, and `wouldRefuse` is an upper bound. (Stripe, "Scaling
 * your API with rate limiters", 2017: layer 3)
 * @throws InvalidInputError
 */
export function fleetShedder(options: FleetShedderOptions): FleetShedder {
  return new FleetShedder(options)
}
