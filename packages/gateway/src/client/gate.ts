/** How long to wait for another request's probe, ms. One that hangs must not hold the others for ever. */
const PROBE_MS = 30_000

/**
 * Why a request waits: the downstream said so, its quota runs out, another request probes first, or its own backoff.
 */
export type WaitReason = 'pause' | 'pace' | 'probe' | 'backoff'

/** When a gate opens. */
export interface Opening {
  readonly atMs: number
  readonly reason: WaitReason
}

/** What an answer reported about a bucket. */
export interface Quota {
  /** Units left; a hint, never a grant. */
  readonly remaining: number
  /** Units in all, if reported. */
  readonly limit?: number | undefined
  /** ms until there is more. */
  readonly resetMs: number
}

/** A request that has passed a gate and is not answered yet. */
export interface Pass {
  readonly gate: Gate
  /** Call it when the request was answered; `good`: the downstream did what was requested. Older quotas are ignored. */
  done(nowMs: number, good: boolean, quota?: Quota): void
}

/**
 * What is known of one bucket of the downstream, and when its next request may start.
 *
 * - A pause holds all requests until it is over; of several, the latest end counts. Then one request probes; each good
 *   answer lets one more be under way at once.
 * - Once what remains is at most `slowBelow` of the limit, requests start (reset − last start) / remaining apart; when
 *   nothing remains they wait for the reset.
 */
export class Gate {
  readonly name: string
  readonly #slowBelow: number
  #heldUntilMs = Number.NEGATIVE_INFINITY
  /** Counts pauses: requests from before a pause say nothing about the time after it. */
  #epoch = 0
  /** How many requests may be under way at once since the last pause, and how many are. */
  #window = Number.POSITIVE_INFINITY
  #inside = 0
  #inFlight = 0
  #starts = 0
  #lastStartMs = Number.NEGATIVE_INFINITY
  #quota: { left: number; limit: number; resetAtMs: number; start: number } | undefined

  constructor(name: string, slowBelow: number) {
    this.name = name
    this.#slowBelow = slowBelow
  }

  /** Nothing starts before `untilMs`. Never shortens an earlier hold. */
  hold(untilMs: number): void {
    if (untilMs <= this.#heldUntilMs) return
    this.#heldUntilMs = untilMs
    this.#epoch++
    this.#window = 1
    this.#inside = 0
  }

  /** When a request may start, as far as is known now; a past time means now. */
  opening(nowMs: number): Opening {
    if (nowMs < this.#heldUntilMs) return { atMs: this.#heldUntilMs, reason: 'pause' }
    if (this.#inside >= this.#window) return { atMs: this.#lastStartMs + PROBE_MS, reason: 'probe' }
    return { atMs: this.#pacedMs(nowMs), reason: 'pace' }
  }

  enter(nowMs: number): Pass {
    const epoch = this.#epoch
    const start = ++this.#starts
    this.#inside++
    this.#inFlight++
    this.#lastStartMs = nowMs
    if (this.#quota) this.#quota.left--
    return {
      gate: this,
      done: (atMs, good, quota) => {
        this.#inFlight--
        if (epoch === this.#epoch) {
          this.#inside--
          if (good) this.#window++
        }
        if (quota) this.#learn(quota, start, atMs)
      },
    }
  }

  #pacedMs(nowMs: number): number {
    const quota = this.#quota
    if (!quota || nowMs >= quota.resetAtMs) return nowMs
    if (quota.left <= 0) return quota.resetAtMs
    if (quota.left > quota.limit * this.#slowBelow) return nowMs
    return this.#lastStartMs + (quota.resetAtMs - this.#lastStartMs) / quota.left
  }

  #learn({ remaining, limit, resetMs }: Quota, start: number, nowMs: number): void {
    const known = this.#quota
    if (known && start < known.start) return
    if (remaining === 0) this.hold(nowMs + resetMs)
    this.#quota = {
      // Requests under way may not have been counted yet.
      left: remaining - this.#inFlight,
      // If no limit is reported, the most that was ever left is used.
      limit: limit ?? Math.max(known?.limit ?? 0, remaining),
      resetAtMs: nowMs + resetMs,
      start,
    }
  }
}
