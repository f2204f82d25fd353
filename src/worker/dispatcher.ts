import { AsyncResource } from 'node:async_hooks'
import { EventEmitter } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { EndingLoop, Exchange, Exchanged } from '../departure/exchange.ts'
import { departedJob, type HeldJob, heldJobs, inOrder, startByOf } from '../departure/held-job.ts'
import { mostStarted } from '../departure/jobs-per-script.ts'
import { type DepartureReply, isFetchedTuple } from '../departure/reply.ts'
import { UncertainClockError } from '../errors.ts'
import type { RedisClock } from '../redis/clock.ts'
import { DEFAULT_HORIZON_MS, DEFAULT_MAX_LATENESS_MS } from '../shape/shape.ts'
import { isOlder, type ShapeIdentity } from '../shape/stored.ts'
import { AskSchedule } from './ask-schedule.ts'
import type { BatchOptions } from './batch-options.ts'
import { DepartureTimer } from './departure-timer.ts'
import { Gathering } from './gathering.ts'
import { LateReturns } from './late-returns.ts'
import { type ReturnHost, ReturningJobs } from './returning-jobs.ts'
import { RunTimes } from './run-times.ts'

/** Locks are renewed only once their jobs run, so a job is held for at most this share of its lock's life. */
const LOCK_LIFE_HELD = 1 / 4

/**
 * After this many consecutive returns because of its clock error, a worker leaves jobs to others for the wait below,
 * ms.
 */
const MAX_UNSURE_RETURNS = 3
const UNSURE_WAIT_MS = 2000

/** Jobs that start together may end together: about as many as one script ends. */
const MOST_ASKED = 50
/** A worker with a longer round trip than this, ms, may ask for more: its calls follow each other slowly. */
const NEAR_MS = 5

/** How long another worker's horizon is remembered, ms. Same as in the meter, which forgets it on data loss. */
const HORIZON_MEMORY_MS = 60_000

/** How late a job is, and how much later it may be by the error of this worker's estimate of Redis's clock. µs */
export interface Lateness {
  readonly latenessUs: number
  readonly clockErrorUs: number
}

/**
 * Lateness plus clock error must stay within the shape's `maxLatenessMs`. Without that bound, an imprecise clock must
 * not stop the queue: a distant worker may be late by half of the default on top of its error.
 */
function allowedLatenessUs(maxLatenessMs: number | undefined, clockErrorUs: number): number {
  if (maxLatenessMs !== undefined) return maxLatenessMs * 1000 - clockErrorUs
  return Math.max(DEFAULT_MAX_LATENESS_MS * 1000 - clockErrorUs, DEFAULT_MAX_LATENESS_MS * 500)
}

/** The source of the loop's jobs. */
export type JobSource = Pick<Exchange, 'ask' | 'ready' | 'shape'>

/** The options and the state of a worker, and the functions that run its jobs. */
export interface DispatchHost extends ReturnHost {
  readonly maxRateLimitDelayMs: number
  readonly lockDurationMs: number
  readonly maxHorizonMs?: number | undefined
  /** How jobs are gathered into batches; undefined: each runs by itself. */
  readonly batches?: BatchesHost | undefined
  /** How many jobs, or batches, may run at once. */
  concurrency(): number
  /** Nothing new may start: the worker is closing or paused. */
  stopping(): boolean
  closing(): boolean
  /** Nothing may be fetched for now: the process is overloaded. {@link Dispatcher.wake} is called when that ends. */
  overloaded(): boolean
  /** All wake-ups published before this time have arrived. ms on the monotonic clock */
  receivedUntilMs(): number
  /** Waits for BullMQ's marker; resolves with its time (ms) to ask at, 0 for now, undefined if it did not come. */
  waitForMarker(untilMs: number): Promise<number | undefined>
  /** The grant of a failed request for jobs; undefined if there was none, or Redis does not answer. */
  recall(): Promise<DepartureReply | undefined>
  /**
   * Runs jobs to their ends, whatever the outcomes; those of a batch together.
   * @param onEnd called when one of them has ended
   */
  process(jobs: readonly HeldJob[], onEnd: (job: HeldJob) => void): Promise<void>
}

interface BatchesHost {
  readonly options: BatchOptions
  /** Keeps the lock of a job until it runs or goes back. */
  keepLock(job: HeldJob): void
}

/** Events of a loop. */
interface DispatchEvents {
  reply: [reply: DepartureReply]
  /** The end of a job fetched another one, whose slot had come. */
  fetched: []
  late: [job: HeldJob, lateness: Lateness]
  /** No job waits, runs or is held. */
  empty: []
  unshaped: []
  error: [error: unknown]
}

/**
 * The loop of a worker: it asks for as many jobs as it has room for, holds each until its slot, and sleeps until the
 * schedule says to ask again. The end of a job, a change of the shape, a resume and a close wake it.
 */
export class Dispatcher extends EventEmitter<DispatchEvents> implements EndingLoop {
  readonly #host: DispatchHost
  readonly #exchange: JobSource
  readonly #clock: RedisClock
  readonly #timer: DepartureTimer<HeldJob>
  /** Jobs whose slots have come, until their batches run. */
  readonly #gathering: Gathering | undefined
  /** Whether the jobs that come in this turn of the event loop are still being gathered. */
  #gathers = false
  /** Running batches: those with unended jobs. */
  #batches = 0
  readonly #late: LateReturns
  readonly roundTrip = new RoundTrip()
  readonly #runTimes = new RunTimes()
  readonly #running = new Set<HeldJob>()
  /** Running jobs with stored ends, by id, and whether these should fetch others. Their places are free. */
  readonly #ended = new Map<string, boolean>()
  /** Whether a job has started in this turn of the event loop. */
  #begun = false
  readonly #returning: ReturningJobs
  /** The revision that began the last pause. */
  #pause: ShapeIdentity | undefined
  /** When this worker learned of that pause, by the loop's clock, ms. */
  #pausedMs = Number.NEGATIVE_INFINITY
  /** Resolves once the jobs that came in this turn of the event loop have started, if their slots have come. */
  #turn: Promise<void> | undefined
  /** Jobs granted before that pause, which will be given back. */
  #paused: HeldJob[] = []
  /** A call for jobs, until its reply is handled. */
  #asking: Promise<void> | undefined
  /** Number of jobs in the current request. */
  #asked = 0
  /** Consecutive returns since the estimate of Redis's clock became too imprecise. */
  #unsureReturns = 0
  #unsureUntilMs = 0
  readonly #schedule: AskSchedule
  #marker: Promise<void> | undefined
  #clockSteps: number | undefined
  /** The longest horizon of another worker in the last minute; 0 if none was longer than this one's. */
  #longestHorizon = { us: 0, untilMs: 0 }
  /** The slot of the next job, µs, if the last reply filled this worker. */
  #nextSlotUs: number | undefined
  #signal: (() => void) | undefined
  /** Jobs run in the asynchronous context of the loop, not of the job whose end brought them. */
  #context = new AsyncResource('sluice.loop')

  constructor(host: DispatchHost, exchange: JobSource, clock: RedisClock) {
    super()
    this.#host = host
    this.#exchange = exchange
    this.#clock = clock
    this.#late = new LateReturns(clock.time)
    this.#timer = new DepartureTimer(clock, (job) => void (this.returnIfLate(job) ?? this.#start(job)))
    const { batches } = host
    this.#gathering = batches && new Gathering(batches.options, clock, () => this.#runBatches(false))
    this.#returning = new ReturningJobs(
      host,
      () => this.wake(),
      (error) => this.emit('error', error),
    )
    const [horizonUs, intervalUs] = [() => this.horizonUs, () => exchange.shape?.pacedIntervalUs]
    const concurrency = () => this.#places
    this.#schedule = new AskSchedule({ ...host, concurrency, horizonUs, intervalUs }, clock)
  }

  /**
   * How far ahead slots are requested, µs: the shape's horizon, or twice the round trip if longer, limited by the
   * locks.
   */
  get horizonUs(): number {
    const configured = this.#exchange.shape?.number('horizonMs') ?? DEFAULT_HORIZON_MS
    const { maxHorizonMs = Number.POSITIVE_INFINITY, lockDurationMs } = this.#host
    const wantedMs = Math.min(Math.max(configured, 2 * this.roundTrip.ms), maxHorizonMs)
    return Math.round(Math.min(wantedMs, lockDurationMs * LOCK_LIFE_HELD) * 1000)
  }

  /**
   * Whether finishing a job may fetch the next one. Not if a rate holds jobs back: slots are then requested ahead of
   * time. Not if every worker is busy until after the next slot. Not under limits if it could wait for the rest of a
   * batch to end, and be late.
   */
  get fetchesOnFinish(): boolean {
    if (this.#host.stopping() || this.#host.overloaded() || this.#taken > this.#places) return false
    if (this.#gathering) return !this.#exchange.shape?.isPaced
    if (this.#exchange.shape?.pacedIntervalUs === undefined) return true
    if (this.#nextSlotUs === undefined || this.#isCareful || this.#returning.pending) return false
    return this.#clock.untilMs(this.#nextSlotUs) <= 0
  }

  get running(): number {
    return this.#running.size
  }

  get full(): boolean {
    return this.#taken >= this.#places
  }

  /** Jobs that it runs, holds or has asked for. */
  get placesTaken(): number {
    return this.#taken + this.#asked
  }

  /** The monotonic clock of this process, ms. */
  get nowMs(): number {
    return this.#clock.time.monotonicMs()
  }

  /** How far Redis's clock may be ahead of its estimate here; infinite before the first call. */
  get clockErrorUs(): number {
    return this.#clock.errorUs()
  }

  /** The jobs that wait here: for their slots, or for their batches. */
  get held(): readonly HeldJob[] {
    return [...(this.#gathering?.jobs ?? []), ...this.#timer.items]
  }

  /** Whether jobs wait for their slots here, or may be on their way here. */
  get mayHold(): boolean {
    return this.#asking !== undefined || this.#held > 0
  }

  /** Called for changes that the loop does not notice by itself. */
  wake(): void {
    this.#schedule.wake()
    // If no job waits, only a worker that has gathered some need know of a pause.
    if (this.#gathering && this.#gathering.size > 0) this.#schedule.markerCame(0)
    this.#signal?.()
  }

  /** Jobs may have come without a message to any worker: it asks even if it waits for the marker. */
  askAgain(): void {
    this.#schedule.markerCame(0)
    this.#signal?.()
  }

  /** Runs until the worker has stopped: jobs granted but not started are back, and running jobs have ended. */
  async run(): Promise<void> {
    this.#context = new AsyncResource('sluice.loop')
    this.#schedule.start()
    while (!this.#host.closing() && (!this.#host.stopping() || this.#taken > 0)) {
      if (this.#turn) await this.#turn
      else if (this.#host.stopping()) {
        await this.giveBackHeld()
        if (this.#running.size > 0) await this.#rest(undefined)
      } else await (this.#host.overloaded() ? this.#sitOut() : this.#step())
    }
    await this.#recall()
    // An end that was sent before may still fetch a job, which is held here when its reply comes.
    do {
      await this.#turn
      await this.giveBackHeld()
      if (this.#running.size > 0) await this.#rest(undefined)
    } while (this.#taken > 0 || this.#running.size > 0)
  }

  /**
   * Jobs of a lost reply would wait for this worker until their locks expire: they are held in order to be given back.
   */
  async #recall(): Promise<void> {
    if (!this.#schedule.hasFailed) return
    const reply = await this.#host.recall().catch(() => undefined)
    for (const job of reply ? heldJobs(reply) : []) this.#timer.hold(job)
  }

  /** Gives back every held job, in order, and leaves the next slots to other workers. */
  async giveBackHeld(): Promise<void> {
    const jobs = this.#takeHeld()
    const asleep = this.#schedule.leave()
    if (jobs.length > 0 || asleep) this.#returning.start(jobs, true)
    await this.#returning.allBack()
  }

  /**
   * The queue is paused: gives back jobs granted before the pause, including those that arrive later.
   * @param shape the first revision with the pause
   */
  release(shape: ShapeIdentity): void {
    this.#pause = shape
    this.#pausedMs = this.nowMs
    this.#paused.push(...this.#takeHeld())
    this.#returnPaused()
  }

  /** Resolves once the jobs that were granted before a known pause are back, including those on their way here. */
  async pausedBack(): Promise<void> {
    await this.#asking
    await this.#returning.allBack()
  }

  /**
   * Called just before a job's processor: jobs due at the same moment may have kept this process busy since.
   * @returns undefined if the job may start; otherwise resolves once it is back
   */
  returnIfLate(job: HeldJob): Promise<void> | undefined {
    const shape = this.#exchange.shape
    if (job.due || !shape?.isPaced) return undefined
    const latenessUs = this.#clock.latenessUs(job.gatheredUs ?? job.slotUs)
    const clockErrorUs = this.#clock.errorUs()
    const maxLatenessMs = shape.number('maxLatenessMs')
    if (latenessUs <= allowedLatenessUs(maxLatenessMs, clockErrorUs)) return undefined
    const startByUs = maxLatenessMs === undefined && shape.isLimitedOnly ? startByOf(job) : undefined
    if (startByUs !== undefined && job.slotUs + latenessUs + clockErrorUs < startByUs) return undefined
    this.#late.note(job.id)
    this.emit('late', job, { latenessUs, clockErrorUs })
    if (maxLatenessMs !== undefined) this.#unsure(maxLatenessMs, clockErrorUs)
    return this.#returning.late(job)
  }

  /**
   * No job is certain to start in time here: later calls may improve the clock's estimate, and other workers take the
   * jobs.
   */
  #unsure(maxLatenessMs: number, clockErrorUs: number): void {
    this.#unsureReturns = clockErrorUs > maxLatenessMs * 1000 ? this.#unsureReturns + 1 : 0
    if (!this.#isUnsure) return
    if (this.#unsureReturns === MAX_UNSURE_RETURNS) {
      this.emit('error', new UncertainClockError(clockErrorUs / 1000, maxLatenessMs))
    }
    // The held jobs would be late as well; before they are due, others can still use their slots.
    if (this.#held > 0) this.#returning.start(this.#takeHeld(), true)
    this.#unsureUntilMs = this.#clock.time.monotonicMs() + UNSURE_WAIT_MS
  }

  /** The job's processor is called. */
  departed(jobId: string): void {
    this.#late.started(jobId)
    this.#unsureReturns = 0
  }

  /** Jobs have ended, and others come in their places. */
  exchanged(exchanged: Exchanged): void {
    const { reply, sentMs } = exchanged
    const came = this.#fetched(exchanged) + (reply?.grants.length ?? 0)
    if (reply) {
      this.#note(reply, sentMs)
      this.#hold(heldJobs(reply))
      // All requested jobs came and there is nothing to ask for now: this worker keeps sleeping or waiting as before.
      const staysAsleep = came > 0 && reply.stop === 'full' && reply.wakeUs === undefined
      // A failed request is resent, whatever this reply says: jobs may have been granted to it.
      if (!staysAsleep && !this.#schedule.hasFailed) {
        this.#answered(reply, this.#schedule.wokenAtMs > sentMs)
        this.#signal?.()
      }
    }
    this.#returnPaused()
    if (came > 0) void this.#startNextTurn()
  }

  /** @returns number of jobs that replace ended ones, to start at once */
  #fetched({ ends, results, nowUs, sentMs }: Exchanged): number {
    const free = !this.#exchange.shape?.isPaced
    let count = 0
    let slotUs = 0
    ends.forEach(({ id, token, fetches }, i) => {
      const result = results[i]
      if (isFetchedTuple(result)) {
        if (count === 0) {
          if (nowUs !== undefined) this.#clock.sample(nowUs, sentMs)
          const hereUs = this.#clock.nowUs() ?? Date.now() * 1000
          slotUs = free ? hereUs : (nowUs ?? hereUs)
        }
        this.#holdFetched(departedJob(result, token, slotUs, i - ends.length, free), sentMs)
        count += 1
      }
      if (isFetchedTuple(result) || (result as number) >= 0) this.#ended.set(id, fetches)
    })
    if (!free && count > 0) this.emit('fetched')
    return count
  }

  /** A job that was fetched before a pause goes back if it may have to wait for its batch during the pause. */
  #holdFetched(job: HeldJob, sentMs: number): void {
    if (this.#gathering && sentMs < this.#pausedMs) this.#paused.push(job)
    else this.#timer.hold(job)
  }

  /** Holds jobs until their slots. Jobs granted before a pause that is already known here go back. */
  #hold(jobs: readonly HeldJob[]): void {
    for (const job of jobs) {
      if (this.#pause && isOlder(job.grantedBy, this.#pause)) this.#paused.push(job)
      else this.#timer.hold(job)
    }
  }

  /**
   * Starts due jobs once the replies that came together are handled: a program that adds a job sees its reply before
   * the job runs here, and the end of a job is reported before its replacement starts.
   */
  #startNextTurn(): Promise<void> {
    this.#turn ??= new Promise((resolve) =>
      setImmediate(() => {
        this.#turn = undefined
        try {
          this.#context.runInAsyncScope(() => this.#timer.fireDue())
        } catch (error) {
          this.emit('error', error)
        }
        resolve()
      }),
    )
    return this.#turn
  }

  get #isCareful(): boolean {
    return this.#late.persistent || this.#isUnsure
  }

  get #isUnsure(): boolean {
    return this.#unsureReturns >= MAX_UNSURE_RETURNS
  }

  get #taken(): number {
    return this.#held + this.#running.size - this.#ended.size
  }

  /** Jobs that wait here: for their slots, or for their batches. */
  get #held(): number {
    return this.#timer.size + (this.#gathering?.size ?? 0)
  }

  /** How many jobs this worker may have now. A running batch gets no more. */
  get #places(): number {
    const most = this.#host.concurrency()
    if (!this.#gathering) return most
    return this.#gathering.places(most - this.#batches) + this.#running.size - this.#ended.size
  }

  /** Takes out all waiting jobs, in the order of the slots. */
  #takeHeld(): readonly HeldJob[] {
    const held = this.#timer.takeAll()
    return this.#gathering ? inOrder([...this.#gathering.takeAll(), ...held]) : held
  }

  /** Leaves the held jobs, the next slots, and the job of a marker just taken to other workers. */
  async #sitOut(): Promise<void> {
    this.#returning.start(this.#takeHeld(), true)
    await this.#returning.allBack()
    while (this.#host.overloaded() && !this.#host.stopping()) await this.#rest(undefined)
  }

  async #step(): Promise<void> {
    // Late jobs go back first, so that the jobs fetched next are behind them again.
    this.#timer.fireDue()
    if (this.#returning.pending) return this.#rest(undefined)
    if (this.#begun) {
      this.#begun = false
      // A CPU-bound processor delays the others: let it run first, or jobs fetched now would overtake the delayed ones.
      return nextTurn()
    }
    const unsureMs = this.#unsureUntilMs - this.#clock.time.monotonicMs()
    if (unsureMs > 0) return this.#rest(unsureMs)
    const free = this.#places - this.#taken
    if (free <= 0) return this.#rest(undefined)
    const waitMs = this.#schedule.waitMs(free)
    if (waitMs > 0) return this.#rest(waitMs, this.#schedule.listens ? this.#awaitMarker() : undefined)
    if (this.#schedule.blocks) {
      const marker = this.#awaitMarker()
      const dueMs = this.#schedule.dueWhileWaitingMs
      if (dueMs === undefined || dueMs > 0) return this.#rest(dueMs, marker)
    }
    const careful = this.#isCareful
    if (careful && this.#timer.size > 0) return this.#rest(undefined)
    this.#asking = this.#ask(careful ? 1 : free, careful).finally(() => {
      this.#asking = undefined
      this.#asked = 0
      this.#returnPaused()
    })
    await this.#asking
  }

  #awaitMarker(): Promise<void> {
    this.#marker ??= this.#block()
    return this.#marker
  }

  async #block(): Promise<void> {
    try {
      const untilMs = this.#schedule.beginWait()
      const atMs = await this.#host.waitForMarker(untilMs)
      // It can use no marker any more: another worker must get it.
      const isPaused = this.#host.stopping() && !this.#host.closing()
      if (atMs !== undefined && (isPaused || this.#host.overloaded() || this.full)) this.#returning.start([], true)
      this.#schedule.markerCame(untilMs > 0 && atMs !== undefined ? Math.min(untilMs, atMs) : atMs)
    } finally {
      this.#marker = undefined
    }
  }

  /** A distant worker asks for the departures of two round trips: otherwise it could not keep a high rate. */
  get #mostAsked(): number {
    const shape = this.#exchange.shape
    const intervalUs = shape?.pacedIntervalUs
    const isNear = intervalUs === undefined || this.roundTrip.ms < NEAR_MS
    const wanted = isNear ? 0 : Math.ceil((2 * this.roundTrip.ms * 1000) / intervalUs)
    return Math.min(mostStarted(shape), Math.max(MOST_ASKED, wanted))
  }

  async #ask(most: number, careful: boolean): Promise<void> {
    const { wakes } = this.#schedule
    this.#asked = most
    try {
      if (this.#clock.nowUs() === undefined) await this.#exchange.ready()
      // A client of the program may open long after the close.
      if (this.#host.stopping()) return
      this.#asked = Math.min(most, this.#mostAsked)
      const sentMs = this.#clock.time.monotonicMs()
      const reply = await this.#exchange.ask({
        jobs: this.#asked,
        horizonUs: careful ? 0 : this.horizonUs,
        longestHorizonUs: Math.max(this.horizonUs, this.#longestHorizon.us),
        ran: this.#runTimes.text,
      })
      this.roundTrip.add(this.#clock.time.monotonicMs() - sentMs)
      this.#note(reply, sentMs)
      this.#answered(reply, this.#schedule.wakes !== wakes)
      this.#hold(heldJobs(reply))
      this.#asked = 0
      if ((reply.grants.length > 0 && !careful) || this.#turn) await this.#startNextTurn()
      else this.#timer.fireDue()
    } catch (error) {
      this.#schedule.failed(error as Error)
      if (!this.#host.closing()) this.emit('error', error)
    }
  }

  /**
   * Jobs still being fetched are behind the held ones: all go back in one call, otherwise the later ones would end up
   * in front.
   */
  #returnPaused(): void {
    if (this.#paused.length > 0 && !this.#asking) this.#returning.start(this.#paused.splice(0))
  }

  #note(reply: DepartureReply, sentMs: number): void {
    const stepped = reply.clockSteps !== undefined && reply.clockSteps !== (this.#clockSteps ?? reply.clockSteps)
    this.#clockSteps = reply.clockSteps ?? this.#clockSteps
    if (reply.loss || reply.clockStepUs > 0 || stepped) this.#clock.reset()
    // Slots from before a clock step now mean other times. Only one worker detects the step; the others see the
    // counter.
    if ((reply.clockStepUs > 0 || stepped) && this.#held > 0) this.#returning.start(this.#takeHeld())
    if (reply.clockSteps !== undefined) this.#noteHorizon(reply.longestHorizonUs ?? 0)
    if (reply.nowUs !== undefined) this.#clock.sample(reply.nowUs, sentMs)
    this.#nextSlotUs = reply.stop === 'full' ? reply.nextUs : undefined
    this.emit('reply', reply)
  }

  /** A reply that reports a loss does not include horizons from before it. */
  #noteHorizon(us: number): void {
    if (us < this.#longestHorizon.us && this.nowMs < this.#longestHorizon.untilMs) return
    this.#longestHorizon = { us, untilMs: this.nowMs + HORIZON_MEMORY_MS }
  }

  #answered(reply: DepartureReply, isOvertaken: boolean): void {
    this.#schedule.answered(reply, isOvertaken)
    if (reply.stop === 'unshaped') this.emit('unshaped')
    const isDrained = reply.stop === 'empty' && reply.grants.length === 0 && this.#held === 0
    if (isDrained) this.emit('empty')
  }

  /** The slot of a job has come. */
  #start(job: HeldJob): void {
    if (!this.#gathering) return void this.#run([job])
    this.#gathering.add(job)
    this.#host.batches?.keepLock(job)
    if (this.#gathers) return
    this.#gathers = true
    queueMicrotask(() => {
      this.#gathers = false
      this.#runBatches(this.#asksAgainAtOnce)
    })
  }

  /** If nothing holds jobs back, the loop asks again as long as each reply brings as many as requested. */
  get #asksAgainAtOnce(): boolean {
    const isPaced = this.#exchange.shape?.pacedIntervalUs !== undefined
    return !isPaced && this.#schedule.lastStop === 'full' && !this.full
  }

  /** @param mayGrow whether more jobs are about to come */
  #runBatches(mayGrow: boolean): void {
    const next = () => this.#gathering?.next(this.#batches < this.#host.concurrency(), mayGrow)
    for (let batch = next(); batch; batch = next()) void this.#run(batch)
  }

  async #run(jobs: readonly HeldJob[]): Promise<void> {
    for (const job of jobs) this.#running.add(job)
    this.#begun = true
    this.#batches += 1
    await this.#host.process(jobs, (job) => this.#ran(job))
    this.#batches -= 1
    if (!this.#gathering) return
    // The jobs that its last ends fetched are gathered in this turn.
    this.#runBatches(this.#turn !== undefined || this.#asksAgainAtOnce)
    this.#signal?.()
  }

  #ran(job: HeldJob): void {
    this.#running.delete(job)
    // If its end fetches the next job, the script measures the run time.
    const measured = this.#ended.get(job.id) === true
    this.#ended.delete(job.id)
    const paced = this.#exchange.shape?.pacedIntervalUs !== undefined
    if (paced && !measured) this.#runTimes.add(this.#clock.latenessUs(job.slotUs))
    this.#schedule.jobEnded()
    if (this.#schedule.lastStop === 'empty' && this.#taken === 0) this.emit('empty')
    // The loop has nothing to do while every place is taken.
    if (this.#taken < this.#places || this.#host.stopping()) this.#signal?.()
  }

  /** Sleeps until a signal, for `ms` at most, or until `other` settles. */
  async #rest(ms: number | undefined, other?: Promise<void>): Promise<void> {
    if (!this.#host.stopping()) this.#runBatches(false)
    let stopTimer: (() => void) | undefined
    await new Promise<void>((resolve, reject) => {
      this.#signal = resolve
      if (ms !== undefined) stopTimer = this.#clock.time.after(Math.ceil(ms), resolve)
      other?.then(resolve, reject)
    })
    stopTimer?.()
    this.#signal = undefined
  }
}

const RECENT = 8

/**
 * Duration of a call to Redis: the fastest of the last few. A call that waited for a connection, or for this process
 * while it was busy, says nothing about the network. The first does not count: it connects and loads its script.
 */
export class RoundTrip {
  /** undefined before the first. */
  #recent: readonly number[] | undefined
  /** 0 before the second call. */
  ms = 0

  add(ms: number): void {
    this.#recent = this.#recent ? [...this.#recent, ms].slice(-RECENT) : []
    if (this.#recent.length > 0) this.ms = Math.min(...this.#recent)
  }
}
