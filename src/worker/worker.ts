import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  ErrorCode,
  isNotConnectionError,
  type Job,
  type JobJson,
  type Processor,
  type Span,
  UnrecoverableError,
  WaitingError,
  Worker,
} from 'bullmq'
import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { type CancelMessage, isCancelFailure } from '../backend/cancellation.ts'
import { CLOSE_LIMIT_MS, closeInTime } from '../backend/closing.ts'
import { hasOpened } from '../backend/connections.ts'
import { checkDeadLetterQueue } from '../backend/dead-letters.ts'
import { declaringBackendOptions, shapedBackendFactory } from '../backend/factory.ts'
import { checkQueueName } from '../call-options.ts'
import type { Departure } from '../departure/departure.ts'
import { giveBack } from '../departure/give-back.ts'
import { type HeldJob, membersOf } from '../departure/held-job.ts'
import { mostGivenBack } from '../departure/jobs-per-script.ts'
import { type DepartureReply, jobOfGrant } from '../departure/reply.ts'
import { CloseTimeoutError, InvalidGroupError, NoShapeError, RunTimeoutError } from '../errors.ts'
import { FeedbackLoop } from '../feedback/loop.ts'
import { checkFeedbackOptions } from '../feedback/options.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import { RedisClock } from '../redis/clock.ts'
import type { Argument, Client } from '../redis/commands.ts'
import { untilServed } from '../redis/until-served.ts'
import { traceDepartures, withShapedTelemetry } from '../reports/telemetry.ts'
import { WorkerReports } from '../reports/worker-reports.ts'
import { relayShapeEvents } from '../shape/events.ts'
import { Attempts, hasMoved } from './attempts.ts'
import { Batch } from './batch.ts'
import { type BatchOptions, checkBatchOptions } from './batch-options.ts'
import { BypassWatch } from './bypass-watch.ts'
import { expiryOf, missedDeadline } from './deadline.ts'
import { Dispatcher, type DispatchHost } from './dispatcher.ts'
import { EventfulWorker } from './events.ts'
import { JobsInHand, type StartingJob } from './jobs-in-hand.ts'
import {
  checkProcessor,
  checkWorkerOptions,
  DEFAULT_MAX_STALLED_COUNT,
  MAX_HORIZON,
  type ShapedProcessor,
  type ShapedWorkerOptions,
} from './options.ts'
import { OverloadWatch } from './overload-watch.ts'
import { ShapeWake } from './shape-wake.ts'
import { type BatchedJob, departs, ShapedJob } from './shaped-job.ts'
import { ThroughputWatch } from './throughput-watch.ts'

/** Why Redis rejects the end of a job: its lock is gone or another worker's, or it does not run any more. */
const NOT_OURS: readonly unknown[] = [ErrorCode.JobLockNotExist, ErrorCode.JobLockMismatch, ErrorCode.JobNotInState]

/** BullMQ's message of `Worker.RateLimitError()`. */
const RATE_LIMITED = Worker.RateLimitError().message

/** s. BullMQ replaces the blocking connection one second after its wait should have ended. */
const LONGEST_WAIT_S = 10

/** BullMQ's default length of the event stream. */
const MAX_EVENTS = 10_000

/** Whether an error means that the worker that ran a job no longer has it. */
function isLost({ message, code }: Error & { readonly code?: unknown }, jobId = ''): boolean {
  return NOT_OURS.includes(code) && message.toLowerCase().includes(`job ${jobId}`.toLowerCase())
}

/** Resolves with the call, or with undefined when its connection closes. */
async function orClosed<T>(client: Client, call: Promise<T>): Promise<T | undefined> {
  let done = () => {}
  const closed = new Promise<undefined>((resolve) => {
    done = () => resolve(undefined)
    client.on('close', done)
  })
  try {
    return await Promise.race([call, closed])
  } finally {
    client.removeListener('close', done)
  }
}

/**
 * A BullMQ worker whose jobs start at the queue's drain rate, evenly spaced over all workers: each job is fetched ahead
 * of its slot and starts at it. Its generics are Worker's, in Worker's order.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Worker
export class ShapedWorker<DataType = any, ResultType = any, NameType extends string = string> extends EventfulWorker<
  DataType,
  ResultType,
  NameType
> {
  readonly #clock = new RedisClock()
  readonly #dispatcher: Dispatcher
  readonly #feedback: FeedbackLoop
  readonly #attempts: Attempts
  readonly #watch: ThroughputWatch
  readonly #overload: OverloadWatch
  readonly #bypass: BypassWatch
  readonly #reports: WorkerReports | undefined
  readonly #jobs = new JobsInHand()
  readonly #batch: BatchOptions | undefined
  readonly #wake = new ShapeWake(this, {
    wake: () => this.#dispatcher.wake(),
    cancel: (message) => this.#cancelRun(message),
    missed: () => void this.#cancelMissed().catch((error: Error) => this.#report(error)),
  })
  #forced = false
  #closed: Promise<void> | undefined

  /**
   * @throws UnsupportedOptionError for `limiter`; InvalidShapeError, InvalidRateError for a wrong shape;
   * InvalidInputError for a wrong `deadLetter`, `maxLoopUtilisation` or `batch`; UnsupportedOptionError for `batch` without
   * a processor function
   */
  constructor(
    name: string,
    processor: string | URL | null | undefined | ShapedProcessor<DataType, ResultType, NameType>,
    options: ShapedWorkerOptions,
  ) {
    checkQueueName(name)
    checkProcessor(processor)
    checkWorkerOptions(options)
    const { shape, allowUnshaped = false, declarer, deadLetter, maxLoopUtilisation, ...others } = options
    const { report = true, autorun = true, batch, ...opts } = others
    checkBatchOptions(batch, processor)
    checkDeadLetterQueue(deadLetter, name)
    const listening = checkFeedbackOptions(options)
    const withDefaults = { maxStalledCount: DEFAULT_MAX_STALLED_COUNT, ...withShapedTelemetry(opts), autorun: false }
    super(
      name,
      processor as Processor<DataType, ResultType, NameType>,
      withDefaults,
      shapedBackendFactory({ ...declaringBackendOptions(shape, declarer), deadLetter }),
    )
    this.opts.autorun = autorun
    this.#batch = batch
    this.#watch = new ThroughputWatch(name)
    const exchange = this.backend.exchangeFor({
      id: this.id,
      allowUnshaped,
      name: this.opts.name,
      isEnding: (jobId, token) => this.#jobs.isEnding(jobId, token),
      keepLock: (jobId) => this.#keepLock(jobId),
    })
    this.#dispatcher = new Dispatcher(this.#host(), exchange, this.#clock)
    exchange.loop = this.#dispatcher
    this.#relayDispatch()
    this.#overload = new OverloadWatch(maxLoopUtilisation, this.#dispatcher, this)
    this.#feedback = new FeedbackLoop(this, listening)
    this.#bypass = new BypassWatch(this)
    this.#reports = report ? new WorkerReports(this, this.#dispatcher, this.#overload, this.#bypass) : undefined
    this.#attempts = new Attempts(this, this.#feedback, this.lockManager)
    this.#connectBackend()
    this.on('failed', (job) => this.#emitExpired(job))
    if (opts.telemetry) traceDepartures(this as never)
    // BullMQ would start inside super(), before the fields of this class exist.
    if (autorun && processor) this.run().catch((error: Error) => this.emit('error', error))
  }

  /** Runs the dispatch loop instead of BullMQ's main loop. */
  override async run(): Promise<void> {
    if (!this.processFn) throw new Error('No process function is defined.')
    if (this.running) throw new Error('Worker is already running.')
    try {
      this.running = true
      if (this.closing || this.paused) return
      await this.startStalledCheckTimer()
      if (!this.opts.skipLockRenewal) this.lockManager.start()
      this.#wake.start()
      do {
        const running = this.#overload.during(this.#dispatcher.run())
        this.mainLoopRunning = this.#reports?.during(running) ?? running
        await this.mainLoopRunning
        // Resumed before the loop had ended: BullMQ's code starts no other while this one runs.
      } while (!this.closing && !this.paused)
    } finally {
      this.running = false
    }
  }

  override async pause(doNotWaitActive?: boolean): Promise<void> {
    const paused = super.pause(doNotWaitActive)
    this.#dispatcher.wake()
    try {
      await paused
    } catch (error) {
      // A close that overtakes it ends the connection that it opens again, and does all of its work.
      if (!this.closing) throw error
      await this.closing
    }
  }

  override async resume(): Promise<void> {
    await super.resume()
    this.#dispatcher.wake()
  }

  /**
   * Waits until the running jobs have ended, however long that takes, and the held ones are back, and closes the
   * connections. If Redis does not answer, it waits 20 s, then cuts the connections, within 5 s more: jobs whose ends
   * could not be stored run again, and `error` has a CloseTimeoutError. A worker that never reached Redis closes at
   * once.
   * @param force waits for nothing: running jobs continue, and run again once their locks expire
   */
  override close(force = false): Promise<void> {
    this.#closed ??= this.#close(force)
    return this.#closed
  }

  async #close(force: boolean): Promise<void> {
    this.#forced = force || !hasOpened(this.backend.connection)
    if (!this.running) this.#reports?.leave()
    this.backend.leaveOpening()
    const closed = super.close(this.#forced)
    this.#dispatcher.wake()
    if (this.#forced) {
      this.#wake.stop()
      return closed
    }
    const cut = () => {
      this.#forced = true
      this.emit('error', new CloseTimeoutError(this.name, CLOSE_LIMIT_MS))
      this.backend.cut()
    }
    // Until then running jobs can be cancelled.
    await closeInTime(closed, cut, this.#attempts).finally(() => this.#wake.stop())
  }

  /**
   * Holds the group of a job for this many ms, in the whole fleet; other groups continue. A processor then throws
   * `Worker.RateLimitError()`, and its job goes back without using up an attempt. A shorter hold never ends a longer
   * one.
   * @throws InvalidGroupError if the job has no group, or the queue has none
   */
  async rateLimitGroup(job: Job<DataType, ResultType, NameType>, expireTimeMs: number): Promise<void> {
    const { group } = job.opts as ShapedJobsOptions
    if (!group) throw new InvalidGroupError(`job ${job.id} of queue "${this.name}" has no group to limit`)
    const who = { by: this.opts.name ?? this.id, reason: 'rateLimitGroup' }
    await this.backend.store.changeGroup(group.id, { limited: true }, who, expireTimeMs)
  }

  override cancelJob(jobId: string, reason?: string): boolean {
    if (!this.#unstarted().includes(jobId)) return super.cancelJob(jobId, reason)
    this.#jobs.cancel(jobId, reason)
    return true
  }

  override cancelAllJobs(reason?: string): void {
    super.cancelAllJobs(reason)
    for (const id of this.#unstarted()) this.#jobs.cancel(id, reason)
  }

  /** A job was cancelled through its queue. */
  #cancelRun({ id, token, failure }: CancelMessage): void {
    if (this.#jobs.cancelRun(id, token, new UnrecoverableError(failure))) super.cancelJob(id, failure)
  }

  /** Messages may have been missed: checks which of its jobs are marked as cancelled. */
  async #cancelMissed(): Promise<void> {
    const client = await this.backend.client
    // Redis answers in order: jobs that were granted before, without the mark, are here then.
    await client.hexists(this.backend.store.key, 'id')
    await nextTurn()
    const jobs = [...this.#jobs.runs(), ...this.#dispatcher.held]
    const marks = await Promise.all(jobs.map(({ id }) => client.hget(this.toKey(id), 'defa')))
    for (const [i, { id, token }] of jobs.entries()) {
      const failure = marks[i]
      if (isCancelFailure(failure)) this.#cancelRun({ id, token, failure })
    }
  }

  /** Jobs that it runs, holds for their slots or has asked for. */
  placesTaken(): number {
    return this.#dispatcher.placesTaken
  }

  override set concurrency(concurrency: number) {
    super.concurrency = concurrency
    // Also called inside super(), when this class has no fields yet.
    if (#dispatcher in this) this.#dispatcher.wake()
  }

  override get concurrency(): number {
    return super.concurrency
  }

  /**
   * For the job of `getNextJob`, or of an end by hand that fetched one. When a scheduler's job begins, BullMQ stores
   * the next one first: the lock must be kept during that, too.
   */
  protected override async nextJobFromJobData(
    jobData?: JobJson,
    jobId?: string,
    token = '',
  ): Promise<Job<DataType, ResultType, NameType>> {
    if (jobId === undefined) return undefined as unknown as Job<DataType, ResultType, NameType>
    this.#jobs.start(jobId, token)
    try {
      return await super.nextJobFromJobData(jobData, jobId, token)
    } finally {
      this.#jobs.ended(jobId, token)
    }
  }

  /** BullMQ renews no lock before a job runs or after it ran. */
  #keepLock(jobId: string): (() => void) | undefined {
    const token = this.#jobs.lockToken(jobId)
    if (token === undefined) return undefined
    // Tracked as of time 1, so that it is renewed at the next opportunity.
    this.lockManager.trackJob(jobId, token, 1)
    return () => this.lockManager.untrackJob(jobId)
  }

  /** Jobs of a worker can settle their costs. */
  protected override get Job(): typeof Job {
    return ShapedJob as typeof Job
  }

  protected override callProcessJob(
    job: Job<DataType, ResultType, NameType>,
    token: string,
    signal?: AbortSignal,
  ): Promise<ResultType> {
    const id = job.id as string
    const { held, batch } = this.#jobs.takeStarting(id) ?? ({} as Partial<StartingJob>)
    if (held) {
      const back = this.#dispatcher.returnIfLate(held)
      if (back) return this.#notStarted(id, back)
      const failure = this.#failureOf(job) ?? expiryOf(job, this.#clock)
      if (failure) return Promise.reject(failure)
      this.#dispatcher.departed(id)
      this.#reportDeparture(job, held)
    }
    const call = () =>
      this.#inTime(job, (): Promise<ResultType> => {
        if (batch) return batch.join(job as BatchedJob, signal) as Promise<ResultType>
        return super.callProcessJob(job, token, signal)
      })
    const running = held ? this.#attempts.run(job, held, call) : call()
    const cancelled = this.#jobs.takeCancelled(id)
    if (cancelled) {
      // Only once the processor listens: most processors miss a signal aborted before that.
      const abort = setImmediate(() => super.cancelJob(id, cancelled.reason))
      running.catch(() => {}).finally(() => clearImmediate(abort))
    }
    return running
  }

  /** An aborted run fails with the reason of the abort, unless its processor returns or has moved the job itself. */
  async #inTime<T>(job: Job<DataType, ResultType, NameType>, run: () => Promise<T>): Promise<T> {
    const { runTimeoutMs } = job.opts as ShapedJobsOptions
    const timesOut = () => {
      const error = new RunTimeoutError(job.id as string, runTimeoutMs as number)
      this.#jobs.timedOut(error.jobId, error)
      super.cancelJob(error.jobId, error.message)
    }
    // A foreign producer may have stored something else than a time.
    const isTime = typeof runTimeoutMs === 'number' && runTimeoutMs > 0 && runTimeoutMs <= MAX_TIMER_MS
    const timer = isTime ? setTimeout(timesOut, runTimeoutMs) : undefined
    try {
      return await run()
    } catch (error) {
      const failure = hasMoved(error) ? undefined : this.#failureOf(job)
      if (failure && failure !== error) failure.cause = error
      throw failure ?? error
    } finally {
      clearTimeout(timer)
    }
  }

  /** The error of an aborted job. */
  #failureOf(job: Job<DataType, ResultType, NameType>): Error | undefined {
    const failure = this.#jobs.failureOf(job.id as string)
    // As for a job that was marked before it started.
    if (isCancelFailure(failure?.message)) job.deferredFailure = failure.message
    return failure
  }

  protected override handleCompleted(
    result: ResultType,
    job: Job<DataType, ResultType, NameType>,
    token: string,
    fetchNext?: () => boolean,
    span?: Span,
  ): Promise<Job<DataType, ResultType, NameType>> {
    this.#jobs.ends(job.id as string, token)
    const end = () => super.handleCompleted(result, job, token, fetchNext, span)
    const completed = this.#onceOpen(job.id, end)
    // This mark would make a retry of the completed job fail.
    const unmark = () => this.backend.client.then((client) => client.hdel(this.toKey(job.id as string), 'defa'))
    return isCancelFailure(this.#jobs.failureOf(job.id as string)?.message)
      ? completed.finally(() => unmark().catch(() => 0))
      : completed
  }

  /**
   * A job whose completion Redis rejected has not failed: another worker owns it, or will. Reporting a failure now could
   * end that worker's run.
   */
  protected override handleFailed(
    error: Error,
    job: Job<DataType, ResultType, NameType>,
    token: string,
    fetchNext?: () => boolean,
    span?: Span,
  ): Promise<Job<DataType, ResultType, NameType>> {
    if (isLost(error, job.id)) return Promise.reject(error)
    this.#jobs.ends(job.id as string, token)
    const end = () => super.handleFailed(error, job, token, fetchNext, span)
    const goesBack = error.message === RATE_LIMITED && this.#dispatcher.mayHold
    return this.#onceOpen(job.id, goesBack ? () => this.#heldFirst(job.id as string).then(end) : end)
  }

  /**
   * A job is about to go back to the head, and a pause that its processor made may not be known here yet: the jobs that
   * are held, or on their way here, go back before it, and so behind it.
   */
  async #heldFirst(jobId: string): Promise<void> {
    const release = this.#keepLock(jobId)
    await this.backend.store.readMeter().catch(() => undefined)
    await this.#dispatcher.pausedBack()
    release?.()
  }

  /** Keeps the lock of a job whose work is done until the end can be sent. */
  #onceOpen<T>(jobId: string | undefined, end: () => Promise<T>): Promise<T> {
    const { opening } = this.backend
    if (!opening) return end()
    const release = this.#keepLock(jobId as string)
    return opening.then(() => {
      release?.()
      return end()
    })
  }

  #reportDeparture(job: Job<DataType, ResultType, NameType>, held: HeldJob): void {
    const { slotUs } = held
    const pool = membersOf(held)
    const departedAtUs = Math.round(this.#clock.nowUs() ?? slotUs)
    const departure: Departure = {
      departureTimeUs: slotUs,
      departedAtUs,
      latenessUs: departedAtUs - slotUs,
      clockErrorUs: Math.round(this.#clock.errorUs()),
      ...(pool && { pool }),
      ...(this.opts.telemetry ? { heldBy: this.#reports?.heldBy(job, slotUs) } : {}),
    }
    departs(job, departure)
    this.#reports?.departed(job, departure)
    this.emit('departed', job, departure)
  }

  /** If a script found the job expired, the event is in the stream already. */
  #emitExpired(job: Job<DataType, ResultType, NameType> | undefined): void {
    const deadline = job && missedDeadline(job)
    if (!job || deadline === undefined) return
    this.emit('expired', job, { deadline: new Date(deadline) })
    if (job.deferredFailure) return
    const event = { event: 'expired', jobId: job.id as string, deadline }
    this.backend.publishEvent(event, MAX_EVENTS).catch((error: Error) => this.emit('error', error))
  }

  #host(): DispatchHost {
    const {
      maximumRateLimitDelay,
      lockDuration,
      [MAX_HORIZON]: maxHorizonMs,
    } = this.opts as { [MAX_HORIZON]?: number } & typeof this.opts
    return {
      maxRateLimitDelayMs: maximumRateLimitDelay as number,
      lockDurationMs: lockDuration as number,
      maxHorizonMs,
      batches: this.#batch && {
        options: this.#batch,
        keepLock: ({ id, token }) => void this.lockManager.trackJob(id, token, Date.now()),
      },
      concurrency: () => Math.min(this.concurrency, this.#feedback.concurrency),
      stopping: () => Boolean(this.closing || this.paused),
      closing: () => Boolean(this.closing),
      overloaded: () => this.#overload.overloaded,
      receivedUntilMs: () => this.#wake.receivedUntilMs,
      waitForMarker: (untilMs) => this.#waitForMarker(untilMs),
      process: (held, onEnd) => this.#process(held, onEnd),
      giveBack: (jobs, leaving) => this.#giveBack(jobs, leaving),
      recall: () => this.#recall(),
    }
  }

  #relayDispatch(): void {
    this.#dispatcher
      .on('reply', (reply) => this.#onReply(reply))
      .on('fetched', () => this.#watch.fetched(this.backend.store.memory.stored, this.#mostJobs))
      .on('late', (held, lateness) => this.emit('late', this.createJob(jobOfGrant(held), held.id), lateness))
      .on('empty', () => void super.nextJobFromJobData(undefined))
      .once('unshaped', () => this.emit('error', new NoShapeError(this.name)))
      .on('error', (error) => this.#report(error as Error))
  }

  /** BullMQ's blocking wait for its marker, with its recovery. */
  async #waitForMarker(untilMs: number): Promise<number | undefined> {
    const timeoutS = Math.min(LONGEST_WAIT_S, this.getBlockTimeout(untilMs))
    if (timeoutS <= 0) return 0
    try {
      return (await this.backend.waitForJob(timeoutS))?.score
    } catch (error) {
      this.#report(error as Error)
    }
    if (this.closing || this.paused || this.#overload.overloaded) return 0
    await this.backend.reconnectBlocking().catch((error: Error) => this.#report(error))
    if (!this.closing) await this.delay()
    return 0
  }

  #connectBackend(): void {
    const { store } = this.backend
    const dispatcher = this.#dispatcher
    // A new connection may lead to another server.
    this.backend.on('ready', () => this.#clock.reset())
    this.backend.on('loaded', () => dispatcher.askAgain())
    relayShapeEvents(store, this as never)
    store.on('shape', (shape, before) => {
      const later = shape.pausedUntilUs > (before?.pausedUntilUs ?? 0)
      if (later && shape.pausedUntilUs > (this.#clock.nowUs() ?? 0)) dispatcher.release(shape)
    })
  }

  /** How many jobs may run here at once. */
  get #mostJobs(): number {
    return this.concurrency * (this.#batch?.size ?? 1)
  }

  /** Held jobs, and jobs on their way to their processors. */
  #unstarted(): string[] {
    return [...this.#dispatcher.held.map(({ id }) => id), ...this.#jobs.starting()]
  }

  /** BullMQ does nothing to a job whose processor throws WaitingError: no attempt is counted, nothing has failed. */
  async #notStarted(id: string, back: Promise<void>): Promise<never> {
    this.lockManager.untrackJob(id)
    await back
    throw new WaitingError()
  }

  /** Once all jobs of a batch can begin, they reach the processor together. */
  async #process(jobs: readonly HeldJob[], onEnd: (held: HeldJob) => void): Promise<void> {
    const batch = this.#batch && new Batch()
    const begun = await Promise.all(jobs.map((held) => this.#begin(held, batch)))
    const runs = jobs.map((held, i) => this.#run(held, begun[i]).finally(() => onEnd(held)))
    batch?.start((first, signal) => super.callProcessJob(first, first.token as string, signal))
    await Promise.all(runs)
  }

  async #begin(held: HeldJob, batch: Batch | undefined): Promise<Job<DataType, ResultType, NameType> | undefined> {
    const { id, token } = held
    this.#jobs.start(id, token, { held, batch })
    try {
      return await super.nextJobFromJobData(jobOfGrant(held), id, token)
    } catch (error) {
      this.emit('error', error as Error)
      return undefined
    }
  }

  /** BullMQ's code runs a job and ends it, and fetches no other: the loop does that. */
  async #run({ id, token }: HeldJob, job: Job<DataType, ResultType, NameType> | undefined): Promise<void> {
    try {
      if (!job) return
      const startedMs = performance.now()
      await this.processJob(job, token, () => false)
      this.#watch.ran(performance.now() - startedMs)
    } catch (error) {
      this.emit('error', error as Error)
    } finally {
      this.#jobs.ended(id, token)
      if (!job) this.lockManager.untrackJob(id)
    }
  }

  /** If Redis does not answer, nothing waits: the jobs are recovered as stalled. */
  async #recall(): Promise<DepartureReply | undefined> {
    const { exchange } = this.backend
    if (!exchange || this.#forced) return undefined
    const client = await this.backend.client
    return client.status === 'ready' ? orClosed(client, exchange.recall()) : undefined
  }

  async #giveBack(jobs: readonly HeldJob[], leaving: boolean): Promise<void> {
    const last = jobs.at(-1)
    for (const { id } of jobs) {
      this.#jobs.takeCancelled(id)
      this.lockManager.untrackJob(id)
    }
    const client = await this.backend.client
    // Without a job at stake, a close need not wait for an unreachable Redis.
    if (!last && client.status !== 'ready') return
    const { store } = this.backend
    // A forced close waits for nothing: the jobs that it leaves are recovered as stalled.
    const over = () => !last || this.#forced
    const send = (args: readonly Argument[]) => {
      const give = () => store.run('give-back', args)
      return give().catch((error: unknown) => untilServed(error, give, over, (refused) => this.#report(refused)))
    }
    const given = giveBack(jobs, leaving ? this.id : '', mostGivenBack(store.memory.stored), send).catch(
      (error: unknown) => {
        if (!this.#forced) throw error
      },
    )
    await (last ? given : orClosed(client, given))
  }

  #onReply(reply: DepartureReply): void {
    if (reply.clockStepUs > 0) this.emit('clockStep', { backUs: reply.clockStepUs })
    if (reply.foreignJobId) this.#bypass.found(reply.foreignJobId)
    const { running, held } = this.#dispatcher
    const isFull = reply.stop === 'full' && running + held.length + reply.grants.length >= this.#mostJobs
    this.#watch.asked(reply, isFull, this.backend.store.memory.stored, this.#mostJobs)
  }

  /** A lost connection reports itself, as in BullMQ's loop. */
  #report(error: Error): void {
    if (isNotConnectionError(error)) this.emit('error', error)
  }
}
