import { countText } from 'sluice/internal'
import { reasonOf } from 'sluice-programs'

/** Whether the gateway is healthy, and why. */
export interface Health {
  readonly ok: boolean
  readonly reason: string
}

export interface HealthOptions {
  /** Rejects when Redis does not answer this process in time, or takes no writes. */
  readonly askRedis: () => Promise<unknown>
  /** Number of received requests without a response. */
  readonly waiting: () => number
  /** When a request was last answered, on the clock of `nowMs`. */
  readonly lastAnswerMs: () => number
  /** False from the moment the program is asked to stop. */
  readonly accepting: () => boolean
  readonly stallTimeoutMs: number
  /** A monotonic clock in milliseconds. */
  readonly nowMs?: () => number
}

/** How long an answer of Redis is reused, so that frequent probes do not load it. */
const LOOK_MS = 1000

/**
 * The health of the gateway: whether it answers waiting requests, and whether Redis takes what it writes. A queue that
 * fails by itself is no reason to stop the requests of all others, and who may change one queue could cause it.
 */
export class GatewayHealth {
  readonly #options: HealthOptions
  readonly #nowMs: () => number
  #waitingSinceMs: number | undefined
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
    return this.#lookAtRedis()
  }

  #lookAtRedis(): Promise<Health> {
    const nowMs = this.#nowMs()
    if (this.#look && nowMs - this.#lookedAtMs < LOOK_MS) return this.#look
    this.#lookedAtMs = nowMs
    this.#look = this.#options.askRedis().then(
      () => ({ ok: true, reason: 'taking requests' }),
      (error: unknown) => ({ ok: false, reason: reasonOf(error) }),
    )
    return this.#look
  }
}
