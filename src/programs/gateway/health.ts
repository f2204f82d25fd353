import type { Door } from '../../http/index.ts'
import { reasonOf } from '../errors.ts'

/** How it is, in a word and a sentence. */
export interface Health {
  readonly ok: boolean
  readonly reason: string
}

export interface HealthOptions {
  /** Reads every queue, as a request would have to; rejects when one does not answer in time. */
  readonly readQueues: () => Promise<unknown>
  /** Requests that are here and have no answer. */
  readonly waiting: () => number
  /** When a request was last answered, on the clock of `nowMs`. */
  readonly lastAnswerMs: () => number
  /** False from the moment that it is told to stop. */
  readonly accepting: () => boolean
  readonly stallTimeoutMs: number
  /** Told when admissions begin to fail, and when one goes well again. */
  readonly onTurn?: (failing: boolean) => void
  /** A monotonic clock in milliseconds. */
  readonly nowMs?: () => number
}

/** How long a look at the queues is good for: whoever asks more often does not ask Redis. */
const LOOK_MS = 1000
/** How long failed admissions keep it from being ready: no longer, as without requests nothing else would take it back. */
const FAILURE_MS = 5000

/** How the gateway is, by what it does: answers while requests wait, admissions that went well, queues that can be read. */
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

  /** Whether the process answers: not, when requests wait and none was answered for long. Redis being gone is no reason. */
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
    return { ok: false, reason: `${requests} requests wait and none was answered for ${Math.round(idleMs)} ms` }
  }

  /** Whether requests should come here. */
  async ready(): Promise<Health> {
    if (!this.#options.accepting()) return { ok: false, reason: 'stopping' }
    if (this.#nowMs() - this.#failedAtMs < FAILURE_MS) return { ok: false, reason: 'the last admission failed' }
    return this.#lookAtQueues()
  }

  /** The same door, of whose admissions it is known how the last one ended. */
  watching(door: Door): Door {
    return {
      enter: async (request) => {
        const entry = await door.enter(request)
        if (request.method === 'POST') this.#note(entry.answer?.status ?? 200)
        return entry
      },
    }
  }

  #note(status: number): void {
    // What the caller did wrong says nothing.
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
