import type { DepartureReply, Stop } from '../departure/reply.ts'
import type { RedisClock } from '../redis/clock.ts'
import { isOutOfMemory } from '../redis/failures.ts'

/** After an error the wait doubles up to this, so that a failing Redis does not get thousands of requests a second. */
const FIRST_ERROR_DELAY_MS = 50
const MAX_ERROR_DELAY_MS = 1000
/** The same when Redis is out of memory: producers soon use up any memory that is freed. */
const MAX_FULL_DELAY_MS = 200
/** Longest sleep of a worker that may have missed a wake-up, ms. */
const MAX_UNSURE_SLEEP_MS = 10_000
/** Longest sleep of any worker, ms: a change of Redis's clock is not published. */
const MAX_SLEEP_MS = 60_000
/** A shorter sleep is not worth a wait for the marker, ms. */
const MIN_LISTENING_MS = 100

/** Inputs of the schedule; all of them can change at any time. */
export interface AskConditions {
  readonly maxRateLimitDelayMs: number
  concurrency(): number
  /** µs */
  horizonUs(): number
  /** µs between two slots; undefined if departures are not paced. */
  intervalUs(): number | undefined
  /** All wake-ups published before this time have arrived. ms on the monotonic clock */
  receivedUntilMs(): number
}

/**
 * When a worker asks for jobs again, given its last reply:
 *   full     every place is taken, or as many jobs came as one call gives: when one is free, or the next slot comes
 *            near
 *   closed   the next slot is beyond the horizon: at the wake-up time that Redis assigned; if only groups hold the
 *            jobs,
 *            also at the marker, because a plain BullMQ producer wakes no other worker for a job of another group
 *   empty    nothing waits: at BullMQ's marker
 *   halted   paused, or the global concurrency is reached: at the marker, or when a job ends here
 *   limited  BullMQ's own limiter: when it ends
 *   unshaped no shape is known: when one is published
 */
export class AskSchedule {
  readonly #conditions: AskConditions
  readonly #clock: RedisClock
  #askAtMs = 0
  /** Brought forward by the lead if slots are granted further ahead than one horizon. */
  #nextSlotUs: number | undefined
  #spanUs: number | undefined
  lastStop: Stop | undefined
  #errorDelayMs = 0
  /** Counts wake-ups: a reply may be older than the last one. */
  wakes = 0
  /** ms on the monotonic clock; like {@link wakes}, for replies whose time of sending alone is known. */
  wokenAtMs = Number.NEGATIVE_INFINITY
  /** Whether the worker waits for BullMQ's marker. */
  blocks = false
  /** Whether the worker, while it sleeps until its time, waits for BullMQ's marker as well. */
  listens = false
  #markerUntilMs = 0
  #waitUntilMs = 0
  #answeredUs = 0
  #answeredAtMs = 0

  constructor(conditions: AskConditions, clock: RedisClock) {
    this.#conditions = conditions
    this.#clock = clock
  }

  /** Starts a wait for the marker. @returns when the next delayed job is due (ms), 0 if that does not end the wait */
  beginWait(): number {
    this.#waitUntilMs = this.listens ? 0 : this.#markerUntilMs
    return this.#waitUntilMs
  }

  /**
   * ms until the next delayed job is due, if the current wait for the marker lasts longer: that time was reported by
   * the end of a job after the wait had begun.
   */
  get dueWhileWaitingMs(): number | undefined {
    const until = this.#markerUntilMs
    const known = until === 0 || (this.#waitUntilMs > 0 && this.#waitUntilMs <= until)
    return known ? undefined : until - this.#clock.time.wallMs()
  }

  start(): void {
    this.#askAtMs = 0
    this.blocks = false
  }

  wake(): void {
    this.#woken()
    this.#askAtMs = 0
    // The queue may no longer be halted.
    if (this.lastStop === 'halted') this.blocks = false
  }

  /** The marker came, and `atMs` is when to ask; undefined: the wait ended without one. */
  markerCame(atMs: number | undefined): void {
    if (atMs === undefined && !this.blocks) return
    // A reply on its way may be older than the marker, which does not come twice.
    this.#woken()
    const { time } = this.#clock
    const sooner = Math.min(atMs ?? 0, this.#markerUntilMs || Number.POSITIVE_INFINITY)
    this.#markerUntilMs = sooner
    const untilMs = sooner - time.wallMs()
    if (untilMs > 0) {
      // No other worker knows when this delayed job is due.
      if (this.listens) this.#askAtMs = Math.min(this.#askAtMs, time.monotonicMs() + untilMs)
      return
    }
    this.blocks = false
    // The end of a job may meanwhile have put this worker to sleep, but only this worker got the marker.
    if (this.#errorDelayMs === 0) this.#askAtMs = 0
  }

  #woken(): void {
    this.wakes += 1
    this.wokenAtMs = this.#clock.time.monotonicMs()
  }

  /** A job ended, which also frees a place in the global concurrency. */
  jobEnded(): void {
    if (this.lastStop === 'halted') this.blocks = false
  }

  /** The worker no longer sleeps until a slot. @returns whether it did */
  leave(): boolean {
    const asleep = this.lastStop === 'closed'
    if (asleep) this.lastStop = undefined
    return asleep
  }

  /** Whether the last request for jobs failed: it is resent soon. */
  get hasFailed(): boolean {
    return this.#errorDelayMs > 0
  }

  failed(error: Error): void {
    const most = isOutOfMemory(error) ? MAX_FULL_DELAY_MS : MAX_ERROR_DELAY_MS
    this.#errorDelayMs = Math.min(most, this.#errorDelayMs * 2 || FIRST_ERROR_DELAY_MS)
    this.#askAtMs = this.#clock.time.monotonicMs() + this.#errorDelayMs
  }

  /** @param isOvertaken whether a wake-up came since the request was sent: the reply may be older */
  answered(reply: DepartureReply, isOvertaken = false): void {
    this.#errorDelayMs = 0
    this.#answeredAtMs = this.#clock.time.monotonicMs()
    this.#nextSlotUs = reply.nextUs === undefined ? undefined : reply.nextUs - reply.leadUs
    this.#spanUs = reply.spanUs
    this.lastStop = reply.stop
    this.blocks = !isOvertaken && (reply.stop === 'empty' || reply.stop === 'halted')
    this.#learnDue(reply)
    this.#askAtMs = isOvertaken ? 0 : this.#askAfter(reply)
    this.listens = reply.passable && this.#askAtMs - this.#answeredAtMs >= MIN_LISTENING_MS
  }

  /**
   * A request for jobs and the end of a job can be in flight at once: the older reply may arrive last, with no due
   * time.
   */
  #learnDue({ nowUs = this.#answeredUs, delayedMs }: DepartureReply): void {
    if (delayedMs > 0 || nowUs >= this.#answeredUs) this.#markerUntilMs = delayedMs
    this.#answeredUs = nowUs
  }

  /** ms until asking pays off with this many free places; 0 or less means now. */
  waitMs(free: number): number {
    const untilMs = this.#askAtMs - this.#clock.time.monotonicMs()
    if (untilMs > 0) return this.#oversleeps ? 0 : Math.min(untilMs, MAX_UNSURE_SLEEP_MS)
    if (this.lastStop !== 'full' || this.#nextSlotUs === undefined) return untilMs
    const intervalUs = this.#conditions.intervalUs()
    if (intervalUs === undefined) return 0
    if (free >= Math.min(this.#batch(intervalUs), this.#conditions.concurrency() / 2)) return 0
    // All known slots are taken: with few places free, wait for more, but only until half a horizon before the next
    // slot.
    return this.#clock.untilMs(this.#nextSlotUs - this.#horizonUs / 2)
  }

  /** Whether to ask early, because the awaited state may have changed. */
  get #oversleeps(): boolean {
    if (this.#errorDelayMs > 0) return false
    const nowMs = this.#clock.time.monotonicMs()
    const knownAtMs = Math.max(this.#answeredAtMs, this.#conditions.receivedUntilMs())
    return nowMs - knownAtMs >= MAX_UNSURE_SLEEP_MS || nowMs - this.#answeredAtMs >= MAX_SLEEP_MS
  }

  #askAfter({ stop, wakeUs, nextUs, limitedMs }: DepartureReply): number {
    const now = this.#clock.time.monotonicMs()
    if (stop === 'closed') return now + this.#clock.untilMs(wakeUs ?? nextUs ?? 0)
    if (stop === 'limited') return now + Math.min(MAX_UNSURE_SLEEP_MS, limitedMs, this.#conditions.maxRateLimitDelayMs)
    return stop === 'unshaped' ? now + MAX_UNSURE_SLEEP_MS : 0
  }

  // As in lua/gate/sleepers: one call takes the slots of half a horizon.
  #batch(intervalUs: number): number {
    return Math.max(1, Math.floor(this.#horizonUs / 2 / intervalUs))
  }

  get #horizonUs(): number {
    return this.#spanUs ?? this.#conditions.horizonUs()
  }
}
