import { InvalidInputError } from '../errors.ts'
import type { FeedbackChange } from './request.ts'
import type { ConcurrencyLimit, FeedbackSource } from './source.ts'

/** The parts of a worker that answers limit. */
export interface LimitedWorker {
  readonly id: string
  readonly concurrency: number
  emit(event: 'feedback', change: FeedbackChange): unknown
  emit(event: 'error', error: Error): unknown
}

/** The concurrency that the latency of one worker's calls allows. */
export class LatencyLimit {
  readonly #worker: LimitedWorker
  readonly #create: NonNullable<FeedbackSource['concurrencyLimit']>
  #most = 0
  #isWrong = false
  #calls: ConcurrencyLimit | undefined
  #reported = Number.POSITIVE_INFINITY

  constructor(worker: LimitedWorker, create: NonNullable<FeedbackSource['concurrencyLimit']>) {
    this.#worker = worker
    this.#create = create
  }

  /** Number of jobs that may run here. */
  get limit(): number {
    return this.#guarded(() => {
      const { limit } = this.#limited()
      if (!(limit >= 1)) throw new InvalidInputError(`a limit by latency must be >= 1; got ${String(limit)}`)
      return limit
    })
  }

  wentWell(latencyMs: number, inflight: number): void {
    this.#guarded(() => {
      this.#limited().sample(latencyMs, inflight)
      this.#report(`calls take ${latencyMs.toFixed(1)} ms`)
    })
  }

  refused(): void {
    this.#guarded(() => {
      this.#limited().dropped()
      this.#report('a call was refused')
    })
  }

  /** A faulty source disables its own limit, but affects neither the worker nor a job. */
  #guarded<T>(run: () => T): T | number {
    if (this.#isWrong) return Number.POSITIVE_INFINITY
    try {
      return run()
    } catch (error) {
      this.#isWrong = true
      this.#worker.emit('error', error as Error)
      return Number.POSITIVE_INFINITY
    }
  }

  #limited(): ConcurrencyLimit {
    const most = this.#worker.concurrency
    if (!this.#calls || most !== this.#most) {
      this.#calls = this.#create(most)
      this.#reported = this.#calls.limit
      this.#most = most
    }
    return this.#calls
  }

  #report(reason: string): void {
    const { limit } = this.#limited()
    if (limit === this.#reported) return
    this.#reported = limit
    const change = { kind: 'concurrency', scope: 'queue', source: 'latency', reason, at: new Date(), limit } as const
    this.#worker.emit('feedback', { ...change, by: this.#worker.id })
  }
}
