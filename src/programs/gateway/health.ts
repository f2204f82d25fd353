import type { Middleware } from '../../http/index.ts'
import { countText } from '../../plain-text.ts'
import { reasonOf } from '../errors.ts'

/** Whether the gateway is healthy, and why. */
export interface Health {
  readonly ok: boolean
  readonly reason: string
}

export interface HealthOptions {
  /** Reads every queue, as a request would; rejects when one does not answer in time. */
  readonly readQueues: () => Promise<unknown>
  /** Number of received requests without a response. */
  readonly waiting: () => number
  /** When a request was last answered, on the clock of `nowMs`. */
  readonly lastAnswerMs: () => number
  /** False from the moment the program is asked to stop. */
  readonly accepting: () => boolean
  readonly stallTimeoutMs: number
  /** Called when admissions begin to fail, and when one succeeds again. */
  readonly onTurn?: (failing: boolean) => void
  /** A monotonic clock in milliseconds. */
  readonly nowMs?: () => number
}

/** How long a read of the queues is reused, so that frequent probes do not load Redis. */
const LOOK_MS = 1000
/**
 * How long a failed admission makes the gateway not ready. A fixed time: without requests, nothing else would make it
 * ready again.
 */
const FAILURE_MS = 5000

/**
 * The health of the gateway: whether it answers waiting requests, whether admissions succeed, whether queues can be
 * read.
 */
export class GatewayHealth {
  readonly #options: HealthOptions
  readonly #nowMs: () => number
  #waitingSinceMs: number | undefined
  #failedAtMs = Number.NEGATIVE_INFINITY
  #failing = false
  #lookedAtMs = Number.NEGATIVE_INFINITY
  #look: Promise<Health> | undefined

  constructor(options: HealthOptions) {
    this.#options = options
    this.#nowMs = options.nowMs ?? (() => performance.now())
  }

  /**
   * Whether the process is alive: it is not if requests wait and none got a response for `stallTimeoutMs`. An
   * unavailable Redis does not matter.
   */
  live(): Health {
    const { waiting, lastAnswerMs, stallTimeoutMs } = this.#options
    const nowMs = this.#nowMs()
    const requests = waiting()
    if (requests === 0) {
      this.#waitingSinceMs = undefined
      return { ok: true, reason: 'nothing waits' }
    }
    this.#waitingSinceMs ??= nowMs
    const idleMs = nowMs - Math.max(this.#waitingSinceMs, lastAnswerMs())
    if (idleMs < stallTimeoutMs) return { ok: true, reason: 'working' }
    return {
      ok: false,
      reason: `${countText(requests, 'request')} waiting and none answered for ${Math.round(idleMs)} ms`,
    }
  }

  /** Whether it should receive requests. */
  async ready(): Promise<Health> {
    if (!this.#options.accepting()) return { ok: false, reason: 'stopping' }
    if (this.#nowMs() - this.#failedAtMs < FAILURE_MS) return { ok: false, reason: 'the last admission failed' }
    return this.#lookAtQueues()
  }

  /** The same middleware, with the result of each admission recorded. */
  watching(middleware: Middleware): Middleware {
    return {
      enter: async (request) => {
        const entry = await middleware.enter(request)
        if (request.method === 'POST') this.#note(entry.response?.status ?? 200)
        return entry
      },
    }
  }

  #note(status: number): void {
    // The caller's mistakes do not count.
    if (status >= 300 && status < 500) return
    const failing = status >= 500
    this.#failedAtMs = failing ? this.#nowMs() : Number.NEGATIVE_INFINITY
    if (failing !== this.#failing) this.#options.onTurn?.(failing)
    this.#failing = failing
  }

  #lookAtQueues(): Promise<Health> {
    const nowMs = this.#nowMs()
    if (this.#look && nowMs - this.#lookedAtMs < LOOK_MS) return this.#look
    this.#lookedAtMs = nowMs
    this.#look = this.#options.readQueues().then(
      () => ({ ok: true, reason: 'taking requests' }),
      (error: unknown) => ({ ok: false, reason: reasonOf(error) }),
    )
    return this.#look
  }
}
