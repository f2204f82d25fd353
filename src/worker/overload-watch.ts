import { LoopLoad } from '../reports/loop-load.ts'
import type { Dispatcher } from './dispatcher.ts'
import type { AnyWorker } from './events.ts'

/** A worker resumes below this share of the bound. */
const RESUME_SHARE = 0.8
const CHECK_MS = 100

/** Tells a worker when the event loop of its process is overloaded, and when that ends. */
export class OverloadWatch {
  readonly #max: number | undefined
  readonly #loop: Pick<Dispatcher, 'wake'>
  readonly #worker: AnyWorker
  readonly #load: LoopLoad
  overloaded = false

  /**
   * @param max utilisation, 0 to 1, above which the loop is overloaded; undefined: never
   * @param loop woken at once on a change, which the worker emits
   */
  constructor(max: number | undefined, loop: Pick<Dispatcher, 'wake'>, worker: AnyWorker, load = new LoopLoad()) {
    this.#max = max
    this.#loop = loop
    this.#worker = worker
    this.#load = load
  }

  /** Watches until `run` settles. */
  async during<T>(run: Promise<T>): Promise<T> {
    if (this.#max === undefined) return run
    const timer = setInterval(() => this.check(), CHECK_MS).unref()
    try {
      return await run
    } finally {
      clearInterval(timer)
      this.overloaded = false
    }
  }

  check(): void {
    if (this.#max === undefined) return
    const utilisation = this.#load.utilisation()
    const overloaded = utilisation > (this.overloaded ? this.#max * RESUME_SHARE : this.#max)
    if (overloaded === this.overloaded) return
    this.overloaded = overloaded
    this.#loop.wake()
    this.#worker.emit(overloaded ? 'overloaded' : 'relieved', { utilisation })
  }
}
