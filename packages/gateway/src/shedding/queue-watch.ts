import type { MeterState } from 'sluice'

/** What a shedder reads of a queue. */
export type QueueState = Pick<MeterState, 'depth' | 'capacity' | 'headAgeMs'>

/** A queue whose state can be read: a ShapedQueue. */
export interface WatchedQueue {
  readonly name: string
  meter(): Promise<QueueState>
}

export interface QueueWatchOptions {
  readonly intervalMs: number
  readonly now: () => number
  /**
   * @param intervals how many have passed since the previous reading
   * @returns whether to go on reading while no request comes
   */
  readonly onState: (state: QueueState, intervals: number) => boolean
  readonly onError: (error: Error) => void
}

/** Places given out between two readings, to requests that are still in flight. */
interface Given {
  places: number
  /** When the next reading began, ms; undefined for the current period. */
  endMs?: number
}

/** A job may be stored long before its response is sent: after this time, a reading is assumed to include it. */
const STORED_AFTER_MS = 1000

/** How long after the last request the queue is still read. ms */
const WATCHED_MS = 60_000

/** Reads the state of a queue on demand, at most once in an interval, and never delays a request. */
export class QueueWatch {
  readonly #queue: WatchedQueue
  readonly #options: QueueWatchOptions
  #state: QueueState | undefined
  #readAtMs: number | undefined
  #triedAtMs = Number.NEGATIVE_INFINITY
  #lookedAtMs = Number.NEGATIVE_INFINITY
  #reading = false
  #timer: NodeJS.Timeout | undefined
  /** Places given out here that the state may not include yet: to requests in flight, and to those answered since. */
  #given: Given[] = [{ places: 0 }]
  #answered = 0

  constructor(queue: WatchedQueue, options: QueueWatchOptions) {
    this.#queue = queue
    this.#options = options
  }

  /** How old the state is, ms; Infinity before the first reading. */
  get ageMs(): number {
    return this.#readAtMs === undefined ? Number.POSITIVE_INFINITY : this.#options.now() - this.#readAtMs
  }

  get state(): QueueState | undefined {
    return this.#state
  }

  /** Jobs that may hold a place by now: those of the state, and those let in here since. */
  get depth(): number {
    return this.#given.reduce((sum, { places }) => sum + places, (this.#state?.depth ?? 0) + this.#answered)
  }

  /** @returns a function to call when the response was sent: a reading that begins later includes its job */
  give(places: number): () => void {
    const given = this.#given.at(-1) as Given
    given.places += places
    let isAnswered = false
    return () => {
      // Places that a reading is assumed to include no longer count.
      if (isAnswered || !this.#given.includes(given)) return
      isAnswered = true
      given.places -= places
      this.#answered += places
    }
  }

  /** A request needs the state. */
  look(): void {
    this.#lookedAtMs = this.#options.now()
    this.#refresh()
  }

  #refresh(): void {
    const { now, intervalMs } = this.#options
    if (this.#reading || now() - this.#triedAtMs < intervalMs) return
    this.#triedAtMs = now()
    this.#reading = true
    this.#read(this.#triedAtMs, this.#answered, this.#stored(this.#triedAtMs))
      .catch(this.#options.onError)
      .finally(() => {
        this.#reading = false
      })
  }

  /** Places that a reading that begins now is assumed to include, though their requests are in flight. */
  #stored(nowMs: number): readonly Given[] {
    const current = this.#given.at(-1) as Given
    current.endMs = nowMs
    this.#given = [...this.#given.filter(({ places }) => places > 0), { places: 0 }]
    return this.#given.filter(({ endMs = nowMs }) => nowMs - endMs >= STORED_AFTER_MS)
  }

  async #read(atMs: number, answered: number, stored: readonly Given[]): Promise<void> {
    const state = await this.#queue.meter()
    const beforeMs = this.#readAtMs ?? Number.NEGATIVE_INFINITY
    this.#state = state
    this.#readAtMs = atMs
    this.#answered -= answered
    this.#given = this.#given.filter((given) => !stored.includes(given))
    const { intervalMs, onState } = this.#options
    const goesOn = onState(state, Math.max(1, Math.floor((atMs - beforeMs) / intervalMs)))
    if (goesOn && atMs - this.#lookedAtMs < WATCHED_MS) this.#readLater()
  }

  #readLater(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#refresh(), this.#options.intervalMs)
    this.#timer.unref()
  }
}
