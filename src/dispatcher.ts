import { setImmediate as nextTurn } from 'node:timers/promises'
import type { DepartureReply, Grant, Stop } from './departure-reply.ts'
import { DepartureTimer } from './departure-timer.ts'
import type { DepartureRequest } from './departures.ts'
import { LateReturns } from './late-returns.ts'
import type { RedisClock } from './redis-clock.ts'
import { RoundTrip } from './round-trip.ts'
import { DEFAULT_HORIZON_MS, DEFAULT_MAX_LATENESS_MS } from './shape.ts'
import type { StoredShape } from './stored-shape.ts'

/** A job that is held until its slot. */
export interface HeldJob extends Grant {
  /** Its lock token. */
  readonly token: string
  /** The grant it came with, for a refund. */
  readonly grantNumber: string
  /** The slot before it, µs. */
  readonly previousSlotUs: string
}

/** What the dispatcher needs of the worker that it works for. */
export interface DispatchHost {
  readonly workerId: string
  readonly allowUnshaped: boolean
  readonly maxRateLimitDelayMs: number
  concurrency(): number
  /** Nothing new may start: the worker is closing or paused. */
  stopping(): boolean
  closing(): boolean
  shape(): StoredShape | undefined
  nextToken(): string
  depart(token: string, request: DepartureRequest): Promise<DepartureReply>
  /** Waits for BullMQ's marker; resolves with the time (ms) to ask at, 0 for now. */
  waitForMarker(untilMs: number): Promise<number>
  /** Runs a job to its end, whatever that is. */
  process(job: HeldJob): Promise<void>
  /** @param leaving no more jobs are asked for: slots are refunded where they can be, and others are told */
  giveBack(jobs: readonly HeldJob[], leaving: boolean): Promise<void>
  onReply(reply: DepartureReply): void
  onLate(job: HeldJob, latenessUs: number): void
  onEmpty(): void
  onUnshaped(): void
  onError(error: unknown): void
}

/** After an error the wait doubles up to this: a Redis out of memory is not asked thousands of times a second. */
const FIRST_ERROR_DELAY_MS = 50
const MAX_ERROR_DELAY_MS = 5000
const MAX_SLEEP_MS = 3_600_000

/**
 * The loop of a worker. It asks for as many jobs as it has room for, holds each until its slot, and sleeps until it has
 * reason to ask again:
 *   asking   -> full     every place is taken: until one is free, or the next slot comes near
 *            -> closed   the next slot is beyond the horizon: until the wake-up time that Redis assigned
 *            -> empty    nothing waits: until BullMQ's marker
 *            -> halted   paused, or the global concurrency is reached: until the marker, or a job ends here
 *            -> limited  BullMQ's own limiter: until it is over
 *            -> unshaped no shape is known: until one is published
 * A job that ends, a change of the shape, a resume and a close wake it at any time.
 */
export class Dispatcher {
  readonly #host: DispatchHost
  readonly #clock: RedisClock
  readonly #timer: DepartureTimer<HeldJob>
  readonly #late = new LateReturns()
  readonly #roundTrip = new RoundTrip()
  readonly #running = new Set<Promise<void>>()
  #returning: Promise<void>[] = []
  #lateJobs: HeldJob[] = []
  #marker: Promise<void> | undefined
  #markerUntilMs = 0
  #blocks = false
  #askAtMs = 0
  #nextSlotUs: number | undefined
  #lastStop: Stop | undefined
  #wakes = 0
  #errorDelayMs = 0
  #clockSteps: number | undefined
  #signal: (() => void) | undefined

  constructor(host: DispatchHost, clock: RedisClock) {
    this.#host = host
    this.#clock = clock
    this.#timer = new DepartureTimer(clock, (job) => this.#due(job))
  }

  /** How far ahead slots are asked for, µs: at least what the shape says, and twice the round trip. */
  get horizonUs(): number {
    const configured = this.#host.shape()?.number('horizonMs') ?? DEFAULT_HORIZON_MS
    return Math.round(Math.max(configured, 2 * this.#roundTrip.ms) * 1000)
  }

  /** Whether the end of a job may fetch the next one: where slots are paced, they are asked for in time instead. */
  get fetchesOnFinish(): boolean {
    if (this.#host.stopping()) return false
    return this.#host.shape()?.pacedIntervalUs === undefined && this.#taken <= this.#host.concurrency()
  }

  get running(): number {
    return this.#running.size
  }

  holds(jobId: string): boolean {
    return this.#timer.has(({ id }) => id === jobId)
  }

  /** Something changed that the loop does not see by itself. */
  wake(): void {
    this.#wakes += 1
    this.#askAtMs = 0
    // No marker tells of a limit on running jobs that was raised.
    if (this.#lastStop === 'halted') this.#blocks = false
    this.#signal?.()
  }

  /** Runs until the worker stops, what was granted but not started is back, and what runs has ended. */
  async run(): Promise<void> {
    this.#askAtMs = 0
    this.#blocks = false
    while (!this.#host.closing() && (!this.#host.stopping() || this.#taken > 0)) {
      if (this.#host.stopping()) {
        await this.giveBackHeld()
        if (this.#running.size > 0) await this.#rest(undefined)
      } else await this.#step()
    }
    await this.giveBackHeld()
    await Promise.all(this.#running)
  }

  /** Puts every held job back, in order, and leaves the next slots to others. */
  async giveBackHeld(): Promise<void> {
    const jobs = this.#timer.takeAll()
    const asleep = this.#lastStop === 'closed'
    if (asleep) this.#lastStop = undefined
    if (jobs.length > 0 || asleep) this.#return(jobs, true)
    await Promise.all(this.#returning)
  }

  /** A finish has fetched too: takes what came of it. The job itself follows through {@link accept}. */
  noteReply(reply: DepartureReply): void {
    this.#note(reply)
    if (reply.grants.length === 0) this.#plan(reply)
  }

  /** Holds granted jobs until their slots. */
  accept(grants: readonly Grant[], token: string, reply: DepartureReply): void {
    let previousSlotUs = reply.lastBeforeUs
    for (const grant of grants) {
      this.#timer.add({ ...grant, token, grantNumber: reply.grantNumber, previousSlotUs })
      previousSlotUs = String(grant.slotUs)
    }
  }

  get #taken(): number {
    return this.#timer.size + this.#running.size
  }

  async #step(): Promise<void> {
    const free = this.#host.concurrency() - this.#taken
    if (free <= 0) return this.#rest(undefined)
    const waitMs = this.#waitMs(free)
    if (waitMs > 0) return this.#rest(waitMs)
    if (this.#blocks) {
      this.#marker ??= this.#block()
      return this.#rest(undefined, this.#marker)
    }
    await this.#ask(free)
  }

  async #block(): Promise<void> {
    try {
      const at = await this.#host.waitForMarker(this.#markerUntilMs)
      this.#markerUntilMs = at
      if (at <= Date.now()) this.#blocks = false
    } finally {
      this.#marker = undefined
    }
  }

  async #ask(free: number): Promise<void> {
    const careful = this.#late.persistent
    if (careful && this.#timer.size > 0) return this.#rest(undefined)
    const token = this.#host.nextToken()
    const sentMs = performance.now()
    const wakes = this.#wakes
    try {
      const reply = await this.#host.depart(token, {
        jobs: careful ? 1 : free,
        horizonUs: careful ? 0 : this.horizonUs,
        workerId: this.#host.workerId,
        allowUnshaped: this.#host.allowUnshaped,
      })
      this.#roundTrip.add(performance.now() - sentMs)
      this.#errorDelayMs = 0
      this.#note(reply)
      this.#plan(reply)
      // The answer may be older than what woke us meanwhile.
      if (this.#wakes !== wakes) this.#askAtMs = 0
      // What was answered together is heard first: a program that adds a job knows of it before it runs here.
      if (reply.grants.length > 0 && !careful) await nextTurn()
      this.accept(reply.grants, token, reply)
    } catch (error) {
      this.#errorDelayMs = Math.min(MAX_ERROR_DELAY_MS, this.#errorDelayMs * 2 || FIRST_ERROR_DELAY_MS)
      this.#askAtMs = performance.now() + this.#errorDelayMs
      if (!this.#host.closing()) this.#host.onError(error)
    }
  }

  #note(reply: DepartureReply): void {
    const stepped = reply.clockSteps !== undefined && reply.clockSteps !== (this.#clockSteps ?? reply.clockSteps)
    this.#clockSteps = reply.clockSteps ?? this.#clockSteps
    if (reply.loss || reply.clockStepUs > 0 || stepped) this.#clock.reset()
    // Slots of the clock before the step mean other times now. Only one worker finds the step; the others are told.
    if ((reply.clockStepUs > 0 || stepped) && this.#timer.size > 0) this.#return(this.#timer.takeAll(), false)
    if (reply.nowUs !== undefined) this.#clock.sample(reply.nowUs)
    this.#host.onReply(reply)
  }

  /** Decides when to ask again. */
  #plan(reply: DepartureReply): void {
    this.#nextSlotUs = reply.nextUs
    this.#lastStop = reply.stop
    this.#blocks = reply.stop === 'empty' || reply.stop === 'halted'
    this.#markerUntilMs = reply.delayedMs
    this.#askAtMs = 0
    if (reply.stop === 'closed') this.#askAtMs = this.#localMs(reply.wakeUs ?? reply.nextUs ?? 0)
    if (reply.stop === 'limited') {
      this.#askAtMs = performance.now() + Math.min(reply.limitedMs, this.#host.maxRateLimitDelayMs)
    }
    if (reply.stop === 'unshaped') {
      this.#askAtMs = performance.now() + MAX_SLEEP_MS
      this.#host.onUnshaped()
    }
    if (reply.stop === 'empty' && reply.grants.length === 0) this.#host.onEmpty()
  }

  /** ms until it is worth asking with so many free places. */
  #waitMs(free: number): number {
    const now = performance.now()
    const until = this.#askAtMs - now
    if (until > 0 || this.#lastStop !== 'full' || this.#nextSlotUs === undefined) return Math.min(until, MAX_SLEEP_MS)
    const intervalUs = this.#host.shape()?.pacedIntervalUs
    if (intervalUs === undefined || free >= Math.min(this.#batch(intervalUs), this.#host.concurrency() / 2)) return 0
    // All slots that are known are taken: few free places wait for others, but not past half a horizon before the next.
    return this.#clock.untilMs(this.#nextSlotUs - this.horizonUs / 2)
  }

  // As in lua/lib/sleepers: one call takes the slots of half a horizon.
  #batch(intervalUs: number): number {
    return Math.max(1, Math.floor(this.horizonUs / 2 / intervalUs))
  }

  #localMs(redisUs: number): number {
    return performance.now() + this.#clock.untilMs(redisUs)
  }

  #due(job: HeldJob): void {
    const latenessUs = this.#clock.latenessUs(job.slotUs)
    const allowedMs = this.#host.shape()?.number('maxLatenessMs') ?? DEFAULT_MAX_LATENESS_MS
    if (this.#host.shape()?.pacedIntervalUs !== undefined && latenessUs > allowedMs * 1000) {
      this.#late.note(job.id)
      this.#host.onLate(job, latenessUs)
      this.#lateJobs.push(job)
      if (this.#lateJobs.length === 1) queueMicrotask(() => this.#return(this.#lateJobs.splice(0), false))
      return
    }
    this.#late.started(job.id)
    this.#start(job)
  }

  #start(job: HeldJob): void {
    const run = this.#host.process(job).finally(() => {
      this.#running.delete(run)
      // A place is free in the global concurrency too.
      if (this.#lastStop === 'halted') this.#blocks = false
      if (this.#lastStop === 'empty' && this.#taken === 0) this.#host.onEmpty()
      this.#signal?.()
    })
    this.#running.add(run)
  }

  #return(jobs: readonly HeldJob[], leaving: boolean): void {
    const done = this.#host
      .giveBack(jobs, leaving)
      .catch((error: unknown) => this.#host.onError(error))
      .finally(() => {
        this.#returning = this.#returning.filter((other) => other !== done)
        this.wake()
      })
    this.#returning.push(done)
  }

  /** Sleeps until a signal, for so many ms at most, or until something else is done. */
  async #rest(ms: number | undefined, other?: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve, reject) => {
      this.#signal = resolve
      if (ms !== undefined) timer = setTimeout(resolve, Math.ceil(ms))
      other?.then(resolve, reject)
    })
    clearTimeout(timer)
    this.#signal = undefined
  }
}
