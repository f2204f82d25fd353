import type { MeterState } from '../../meter-state.ts'

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
  /** @param intervals how many have passed since the reading before */
  readonly onState: (state: QueueState, intervals: number) => void
  readonly onError: (error: Error) => void
}

/** Reads the state of a queue when it is asked for, at most once in an interval, and never makes anybody wait for it. */
export class QueueWatch {
  readonly #queue: WatchedQueue
  readonly #options: QueueWatchOptions
  #state: QueueState | undefined
  #readAtMs: number | undefined
  #triedAtMs = Number.NEGATIVE_INFINITY
  #reading = false
  /** Places that were given out here and that the state may not know of. */
  #given = 0

  constructor(queue: WatchedQueue, options: QueueWatchOptions) {
    this.#queue = queue
    this.#options = options
  }

  /** How long ago the state was read, ms; Infinity before the first time. */
  get ageMs(): number {
    return this.#readAtMs === undefined ? Number.POSITIVE_INFINITY : this.#options.now() - this.#readAtMs
  }

  get state(): QueueState | undefined {
    return this.#state
  }

  /** Jobs that may hold a place by now: those that did, and those that were let in here since. */
  get depth(): number {
    return (this.#state?.depth ?? 0) + this.#given
  }

  give(places: number): void {
    this.#given += places
  }

  refresh(): void {
    const { now, intervalMs } = this.#options
    if (this.#reading || now() - this.#triedAtMs < intervalMs) return
    this.#triedAtMs = now()
    this.#reading = true
    this.#read(this.#triedAtMs, this.#given)
      .catch(this.#options.onError)
      .finally(() => {
        this.#reading = false
      })
  }

  async #read(atMs: number, given: number): Promise<void> {
    const state = await this.#queue.meter()
    const beforeMs = this.#readAtMs ?? Number.NEGATIVE_INFINITY
    this.#state = state
    this.#readAtMs = atMs
    this.#given -= given
    const { intervalMs, onState } = this.#options
    onState(state, Math.max(1, Math.floor((atMs - beforeMs) / intervalMs)))
  }
}
