import { type BulkJobOptions, type Job, type JobSchedulerTemplateOptions, type JobsOptions, Queue } from 'bullmq'
import { ESTIMATE } from '../admission/add-call.ts'
import type { OnceOptions } from '../admission/idempotency-key.ts'
import {
  checkJobDefaults,
  checkJobList,
  checkJobName,
  checkJobOptions,
  type JobTerms,
  type ShapedJobsOptions,
} from '../admission/job-options.ts'
import { checkOptionNames } from '../admission/option-names.ts'
import type { AdmissionEstimate } from '../admission/reply.ts'
import type { ShapedBackend } from '../backend/backend.ts'
import { declaringBackendOptions, shapedBackendFactory } from '../backend/factory.ts'
import { GroupedJob } from '../backend/grouped-job.ts'
import { checkArgument, checkCallOptions, checkQueueName, checkSignal } from '../call-options.ts'
import { InvalidInputError, isRefusal, UnsupportedOptionError } from '../errors.ts'
import type { LimitHolds, LimitOverride, LimitValues } from '../limits/own-values.ts'
import type { Client } from '../redis/commands.ts'
import { warnUnhandled } from '../redis/unhandled-errors.ts'
import { withShapedTelemetry } from '../reports/telemetry.ts'
import { relayShapeEvents } from '../shape/events.ts'
import type { GroupFields, GroupOverride } from '../shape/groups.ts'
import { checkSettable, encodeOverride, type ShapeField, type ShapeOverride } from '../shape/shape.ts'
import type { Attribution, ShapeStore } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { type AddedOnce, OnceCalls } from './add-once.ts'
import { PlaceLine, type WaitOptions } from './add-when-free.ts'
import {
  type CancelCounts,
  type CancelFilter,
  type CancelManyOptions,
  type CancelOptions,
  type CancelOutcome,
  cancelJob,
  cancelJobs,
} from './cancel.ts'
import { type GroupState, type GroupStatus, QueueGroups } from './groups.ts'
import { type LimitState, type LimitValueKey, QueueLimitValues } from './limits.ts'
import { type MeterState, type MeterView, meterStateOf } from './meter-state.ts'
import type { Clearing, Offer, ShapeChange, ShapedQueueListener, ShapedQueueOptions } from './options.ts'
import { type RedriveOptions, type RedriveResult, redrive } from './redrive.ts'
import { AdmitTimeout, checkAdmitTimeout } from './unavailable.ts'

/** BullMQ's reads, which would wait for as long as Redis is silent. Its other getters call these. */
const READS = [
  ...(['count', 'getJob', 'getJobs', 'getJobState', 'getJobLogs', 'getDependencies', 'getRanges'] as const),
  ...(['getJobCounts', 'getJobCountByTypes', 'getDelayedCount', 'getCountsPerPriority', 'getMeta'] as const),
  ...(['getRateLimitTtl', 'getDebounceJobId', 'getDeduplicationJobId', 'getGlobalConcurrency'] as const),
  ...(['getWorkers', 'getWorkersCount', 'getQueueEvents', 'getMetrics', 'isPaused', 'isMaxed'] as const),
  ...(['getJobScheduler', 'getJobSchedulers', 'getJobSchedulersCount'] as const),
]

/**
 * A bounded BullMQ queue: a job that does not fit is refused at once, with the time to retry at. Its generics are
 * Queue's, in Queue's order.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Queue
export class ShapedQueue<DataTypeOrJob = any, ResultType = any, NameType extends string = string> extends Queue<
  DataTypeOrJob,
  ResultType,
  NameType,
  DataOf<DataTypeOrJob>,
  ResultOf<DataTypeOrJob, ResultType>,
  NameOf<DataTypeOrJob, NameType>,
  ShapedBackend
> {
  readonly #admitTimeout: AdmitTimeout
  readonly #line = new PlaceLine()
  readonly #once: OnceCalls
  readonly #arrivals: ArrivalReports
  readonly #groups: QueueGroups
  readonly #limits: QueueLimitValues

  static {
    for (const name of READS) {
      const read = Queue.prototype[name] as (...args: unknown[]) => Promise<unknown>
      const value = function (this: ShapedQueue, ...args: unknown[]) {
        return this.#read(() => read.apply(this, args))
      }
      Object.defineProperty(ShapedQueue.prototype, name, { value, configurable: true, writable: true })
    }
  }

  /**
   * @throws InvalidShapeError, InvalidRateError, InvalidCostError for a wrong shape or default cost; InvalidInputError,
   * UnsupportedOptionError for options that would be ignored
   */
  constructor(name: string, options: ShapedQueueOptions = { connection: {} }) {
    checkQueueName(name)
    checkArgument(typeof options === 'object' && options !== null, 'the options of a queue', 'an object', options)
    checkOptionNames('queue', options)
    const { shape, admitTimeoutMs, declarer, ...opts } = options
    const defaults = checkJobDefaults(opts.defaultJobOptions)
    if (defaults) opts.defaultJobOptions = defaults
    checkAdmitTimeout(admitTimeoutMs)
    super(name, withShapedTelemetry(opts), shapedBackendFactory(declaringBackendOptions(shape, declarer)))
    this.#admitTimeout = new AdmitTimeout(this.backend.connection, admitTimeoutMs)
    this.#once = new OnceCalls(name, this.backend.store.base)
    this.#arrivals = new ArrivalReports(this.backend.store)
    this.#limits = new QueueLimitValues(name, this.backend.store)
    this.#groups = new QueueGroups(name, this.backend.store, () => this.backend.client as unknown as Promise<Client>)
    relayShapeEvents(this.backend.store, this as never)
  }

  /**
   * Adds a job.
   * @throws QueueFullError with `retryAfterMs` if there is no place
   * @throws CannotStartInTimeError if it would start after its deadline, or wait longer than `shape.maxWaitMs`
   * @throws QueueUnavailableError if Redis does not answer within `admitTimeoutMs`
   * @throws CostTooHighError, InvalidCostError, InvalidDeadlineError, InvalidJobIdError
   */
  override add(
    name: NameOf<DataTypeOrJob, NameType>,
    data: DataOf<DataTypeOrJob>,
    opts?: ShapedJobsOptions,
  ): Promise<JobOf<DataTypeOrJob, ResultType, NameType>> {
    // Not an async function, which would add promises to each call.
    try {
      checkJobName(name)
      const checked = checkJobOptions(opts)
      return this.#admit(() => super.add(name, data, checked as JobsOptions))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Adds all jobs or none: if they do not all fit, none is added. A crash, a stall of more than ten seconds or a change
   * of the shape can still interrupt a call with more than 100 jobs, or 512 KiB of them: `addedIds` of the error lists
   * the added ones.
   * @throws as {@link add}, and TooLargeError if there are more jobs than the queue can ever hold
   */
  override async addBulk(
    jobs: {
      name: NameOf<DataTypeOrJob, NameType>
      data: DataOf<DataTypeOrJob>
      opts?: BulkJobOptions & JobTerms
    }[],
  ): Promise<JobOf<DataTypeOrJob, ResultType, NameType>[]> {
    checkJobList('addBulk', jobs)
    const checked = jobs.map((job) => ({ ...job, opts: checkJobOptions(job.opts) as BulkJobOptions }))
    return this.#admit(() => super.addBulk(checked))
  }

  /**
   * Offers a job: like {@link add}, but a full queue, or a start that would be too late, is returned, not thrown.
   * @returns the job's position and estimated start, or when to retry
   */
  async offer(
    name: NameOf<DataTypeOrJob, NameType>,
    data: DataOf<DataTypeOrJob>,
    opts?: ShapedJobsOptions,
  ): Promise<Offer<JobOf<DataTypeOrJob, ResultType, NameType>>> {
    let found: AdmissionEstimate = { position: undefined, startsAt: undefined }
    const take = (estimate: AdmissionEstimate) => {
      found = estimate
    }
    try {
      const job = await this.add(name, data, { ...opts, [ESTIMATE]: take } as ShapedJobsOptions)
      return { accepted: true, job, ...found }
    } catch (error) {
      if (!isRefusal(error)) throw error
      const { retryAfterMs, depth, capacity, paused, startsAt, opensAt } = error
      const times = { ...(startsAt && { startsAt }), ...(opensAt && { opensAt }) }
      return { accepted: false, retryAfterMs, depth, capacity, paused, ...times }
    }
  }

  /**
   * Adds a job as soon as there is a place. Callers of one process are served in order; each retries at the time given
   * by its refusal, so nothing is polled.
   * @throws WaitTimeoutError after `timeoutMs`, the signal's reason if it is aborted, and the errors of {@link add}
   */
  async addWhenFree(
    name: NameOf<DataTypeOrJob, NameType>,
    data: DataOf<DataTypeOrJob>,
    options: WaitOptions & ShapedJobsOptions = {},
  ): Promise<JobOf<DataTypeOrJob, ResultType, NameType>> {
    checkArgument(typeof options === 'object' && options !== null, 'addWhenFree: its options', 'an object', options)
    checkOptionNames('wait', options)
    checkSignal('addWhenFree', options.signal)
    const { timeoutMs, signal, ...opts } = options
    return this.#line.wait(this.name, () => this.add(name, data, opts), { timeoutMs, signal }, opts.group?.id)
  }

  /**
   * Puts the jobs of dead letters back, oldest first, each as soon as there is a place; they depart at the rate, behind
   * the waiting jobs. Each job keeps its id and its timestamp, hence the identity of its effect, and gets all its
   * attempts again. A redrive may be stopped and repeated at any time, also concurrently: each job comes back once.
   * @throws InvalidInputError, QueueUnavailableError, and the signal's reason if it is aborted
   */
  async redrive(options: RedriveOptions): Promise<RedriveResult> {
    const host = {
      name: this.name,
      backend: this.backend,
      prefix: this.opts.prefix ?? 'bull',
      untilPlace: <T>(attempt: () => Promise<T>, wait: WaitOptions) =>
        this.#line.wait(this.name, () => this.#admit(attempt), wait),
    }
    const result = await redrive(host, options)
    const { from, by, reason } = options
    if (by || reason) await this.#admit(() => this.backend.store.note('redrive', { from, ...result }, { by, reason }))
    return result
  }

  /**
   * Adds jobs, all or none, once per key: a repeated call gets the ids of the first one and adds nothing, even if the
   * jobs have ended, the queue is full or their deadline has passed. A refused call does not store the key.
   * @param jobs 1 to 200, without `jobId`: their ids are derived from the key
   * @throws IdempotencyConflictError if the key was used with another fingerprint or number of jobs
   * @throws IdempotencyInFlightError while a call of this object with the same key is in flight
   * @throws as {@link addBulk}
   */
  async addOnce(
    jobs: {
      name: NameOf<DataTypeOrJob, NameType>
      data: DataOf<DataTypeOrJob>
      opts?: BulkJobOptions & JobTerms
    }[],
    options: OnceOptions,
  ): Promise<AddedOnce> {
    return this.#once.add(jobs, options, (once) => this.#admit(() => super.addBulk(once)))
  }

  override async upsertJobScheduler(
    jobSchedulerId: NameOf<DataTypeOrJob, NameType>,
    repeatOpts: Parameters<Queue['upsertJobScheduler']>[1],
    jobTemplate?: {
      name?: NameOf<DataTypeOrJob, NameType>
      data?: DataOf<DataTypeOrJob>
      opts?: JobSchedulerTemplateOptions & Omit<JobTerms, 'mustStartBefore'>
    },
  ): Promise<JobOf<DataTypeOrJob, ResultType, NameType>> {
    checkScheduler(jobSchedulerId, repeatOpts, jobTemplate)
    const opts = checkJobDefaults(jobTemplate?.opts)
    const checked = opts ? { ...jobTemplate, opts } : jobTemplate
    return this.#admit(() => super.upsertJobScheduler(jobSchedulerId, repeatOpts, checked))
  }

  /**
   * Cancels a job from any process. A waiting job fails at once, with an `UnrecoverableError` that carries the reason;
   * its children continue. For a running job, the `signal` of its processor is aborted, wherever it runs. Whatever its
   * attempts, it fails finally unless the processor returns. If its worker is lost it does not run again.
   * @returns the outcome
   * @throws InvalidInputError
   */
  async cancelJob(id: string, options: CancelOptions): Promise<CancelOutcome> {
    return this.#admit(() => cancelJob(this.backend.store, id, options))
  }

  /**
   * Cancels, like {@link cancelJob}, all jobs that match a filter and have not ended; with an empty filter, all. Jobs
   * added meanwhile, by their program's clock, stay. Large queues are processed in parts: a call that is stopped or
   * fails leaves the rest.
   * @throws InvalidInputError, and the signal's reason if it is aborted
   */
  async cancelJobs(filter: CancelFilter, options: CancelManyOptions): Promise<CancelCounts> {
    return cancelJobs((call) => this.#admit(() => call(this.backend.store)), filter, options)
  }

  /** The current shape, or undefined if none is stored. */
  async getShape(): Promise<EffectiveShape | undefined> {
    return (await this.meter()).shape
  }

  /**
   * Overrides fields of the shape for the whole fleet, at once. The declared values apply again after `ttlMs` or {@link
   * clearShape}. `null` means "no limit".
   * @throws InvalidShapeError, InvalidRateError
   */
  async setShape(override: ShapeOverride, change: ShapeChange): Promise<void> {
    const changes = encodeOverride(override)
    checkChange('setShape', 'the shape', change)
    const { by, reason, ttlMs } = change
    await this.#admit(() => this.backend.store.override(changes, by, reason, ttlMs))
  }

  /**
   * Lifts the overrides of the given fields, or all. `by` and `reason` go into the history.
   * @throws InvalidShapeError
   */
  async clearShape(clearing: Clearing<ShapeField> = {}): Promise<void> {
    const { fields = [], by = '', reason = '' } = checkClearing('clearShape', clearing)
    for (const field of fields) checkSettable(field)
    const changes = Object.fromEntries(fields.map((field) => [field, { clear: true as const }]))
    await this.#admit(() => this.backend.store.override(changes, by, reason, undefined, fields.length === 0))
  }

  /**
   * Grants no slot before the given time, for the whole fleet. A later pause never shortens an earlier one. Jobs
   * already granted, up to one horizon ahead, start if their slot comes before their worker learns of the pause.
   * @param until a date, or ms since 1970
   * @param who the reason is shown as long as the pause lasts; both go into the history
   */
  async pauseUntil(until: Date | number, who: Attribution & { readonly reason: string }): Promise<void> {
    const ms = Number(until)
    if (!Number.isFinite(ms)) throw new InvalidInputError(`pauseUntil needs a valid date; got ${String(until)}`)
    checkWho('pauseUntil', who)
    const { by, reason } = who
    if (!reason) throw new InvalidInputError('pauseUntil needs { reason }: why nothing leaves the queue')
    await this.#admit(() => this.backend.store.pause({ kind: 'until', ms, reason, by }))
  }

  /** BullMQ's pause, which has no end. `who`, if given, goes into the history. */
  override async pause(who?: Attribution): Promise<void> {
    await this.#noted('pause', () => super.pause(), who)
  }

  /** Ends BullMQ's pause. */
  override async resume(who?: Attribution): Promise<void> {
    await this.#noted('resume', () => super.resume(), who)
  }

  async #noted(change: 'pause' | 'resume', run: () => Promise<void>, who: Attribution | undefined): Promise<void> {
    if (who) checkWho(change, who)
    await this.#admit(run)
    if (who) await this.#admit(() => this.backend.store.note(change, QUEUE_PAUSE, who))
  }

  /** Lifts the meter's pause. BullMQ's `pause()` is lifted by `resume()`. */
  async clearPause(who: Attribution = {}): Promise<void> {
    checkWho('clearPause', who)
    const { by, reason } = who
    await this.#admit(() => this.backend.store.pause({ kind: 'clear', by, reason }))
  }

  /** Level, depth, next departure, and the current rate with its cause. */
  async meter(): Promise<MeterState> {
    return meterStateOf(await this.#admit(() => this.backend.store.readMeter<MeterView>()))
  }

  /** The same value as `shape.concurrency`. */
  override async setGlobalConcurrency(concurrency: number): Promise<number> {
    await this.setShape({ concurrency }, { by: 'setGlobalConcurrency', reason: 'set at run time' })
    return 1
  }

  override async removeGlobalConcurrency(): Promise<number> {
    await this.setShape({ concurrency: null }, { by: 'removeGlobalConcurrency', reason: 'set at run time' })
    return 1
  }

  /**
   * Sets fields of one group instead of the defaults of `shape.groups`, for `ttlMs` or until {@link clearGroup}. `null`
   * means "no limit".
   * @throws InvalidGroupError, InvalidShapeError, InvalidRateError
   */
  async setGroup(id: string, override: GroupOverride, change: ShapeChange): Promise<void> {
    checkChange('setGroup', 'the group', change)
    await this.#admit(() => this.#groups.set(id, override, change))
  }

  /** Lifts settings of a group: the given fields, or all. A pause stays. */
  async clearGroup(id: string, clearing: Clearing<keyof GroupFields> = {}): Promise<void> {
    const { fields = [], ...who } = checkClearing('clearGroup', clearing)
    await this.#admit(() => this.#groups.clear(id, fields, who))
  }

  /**
   * Holds the jobs of one group, for `ttlMs` or until {@link resumeGroup}. Running jobs continue, and new ones are
   * accepted while the group has places. If nothing bounds it, a process warning says so (`SLUICE_UNBOUNDED_GROUP`).
   */
  async pauseGroup(id: string, who: Attribution & { readonly ttlMs?: number } = {}): Promise<void> {
    checkCallOptions('pauseGroup', who, ['by', 'reason', 'ttlMs'])
    await this.#admit(() => this.#groups.pause(id, who, who.ttlMs))
    const warning = await this.#groups.unboundedWarning(id)
    if (warning) process.emitWarning(warning, { code: 'SLUICE_UNBOUNDED_GROUP' })
  }

  async resumeGroup(id: string, who: Attribution = {}): Promise<void> {
    checkWho('resumeGroup', who)
    await this.#admit(() => this.#groups.resume(id, who))
  }

  /** @throws InvalidGroupError if the queue has no groups */
  async getGroup(id: string): Promise<GroupState> {
    return this.#read(() => this.#groups.state(id))
  }

  async getGroupStatus(id: string): Promise<GroupStatus> {
    return (await this.getGroup(id)).status
  }

  /** Number of waiting jobs of a group. */
  async getGroupJobsCount(id: string): Promise<number> {
    return (await this.getGroup(id)).waiting
  }

  /** Waiting jobs of a group in their order. @param end inclusive; -1 is the last */
  async getGroupJobs(id: string, start = 0, end = -1): Promise<JobOf<DataTypeOrJob, ResultType, NameType>[]> {
    const ids = await this.#read(() => this.#groups.jobIds(id, start, end))
    const jobs = await Promise.all(ids.map((jobId) => this.getJob(jobId)))
    return jobs.filter((job) => job !== undefined) as JobOf<DataTypeOrJob, ResultType, NameType>[]
  }

  /** Ids of groups with waiting jobs in this state, in the order in which they are due. */
  async getGroupsByStatus(status: Exclude<GroupStatus, 'idle'>, start = 0, end = -1): Promise<string[]> {
    return this.#read(() => this.#groups.byStatus(status, start, end))
  }

  /** Number of groups with waiting jobs in each state. */
  async getGroupsCountByStatus(): Promise<Readonly<Record<Exclude<GroupStatus, 'idle'>, number>>> {
    return this.#read(() => this.#groups.counts())
  }

  /**
   * Sets what a limit of the shape with `by` allows for one value of its keys, for `ttlMs` or until {@link clearLimit}.
   * A lower value applies to the next departure, a higher one at once; a rate of `null` means "no limit".
   * @throws InvalidLimitError, InvalidRateError, InvalidGroupError
   */
  async setLimit(name: string, key: LimitValueKey, override: LimitOverride, change: ShapeChange): Promise<void> {
    checkChange('setLimit', 'the limit', change)
    await this.#admit(() => this.#limits.set(name, key, override, change))
  }

  /** Lifts settings of one value of a limit's keys: the given fields, or all. */
  async clearLimit(
    name: string,
    key: LimitValueKey,
    clearing: Clearing<keyof (LimitValues & LimitHolds)> = {},
  ): Promise<void> {
    const { fields = [], ...who } = checkClearing('clearLimit', clearing)
    await this.#admit(() => this.#limits.clear(name, key, fields, who))
  }

  /**
   * Charges a limit for one value of its keys, even beyond its remaining units: for use other than by jobs of this
   * queue. Jobs wait until the debt is refilled.
   * @param cost > 0
   * @throws InvalidCostError, and as {@link setLimit}
   */
  async chargeLimit(name: string, key: LimitValueKey, cost: number): Promise<void> {
    await this.#admit(() => this.#limits.charge(name, key, cost))
  }

  /**
   * What one value of a limit's keys may use, its remaining units, and its own settings. @throws as {@link setLimit}
   */
  async getLimit(name: string, key: LimitValueKey): Promise<LimitState> {
    return this.#read(() => this.#limits.state(name, key))
  }

  override async rateLimit(expireTimeMs: number): Promise<void> {
    const isRight = typeof expireTimeMs === 'number' && expireTimeMs >= 0 && Number.isFinite(expireTimeMs)
    checkArgument(isRight, 'rateLimit: for how long', 'a number of ms >= 0', expireTimeMs)
    return super.rateLimit(expireTimeMs)
  }

  /** @throws UnsupportedOptionError always: a second limiter next to the meter would silently lower its rate. */
  override setGlobalRateLimit(max: number, duration: number): Promise<number> {
    return Promise.reject(
      new UnsupportedOptionError(
        `setGlobalRateLimit(${max}, ${duration}) is BullMQ's own limiter; use ` +
          `setShape({ rate: { limit: ${max}, period: ${duration} } }, { by, reason }) instead`,
      ),
    )
  }

  override on<U extends keyof ShapedQueueListener>(event: U, listener: ShapedQueueListener[U]): this {
    return super.on(event as never, listener as never)
  }

  override once<U extends keyof ShapedQueueListener>(event: U, listener: ShapedQueueListener[U]): this {
    return super.once(event as never, listener as never)
  }

  override off<U extends keyof ShapedQueueListener>(event: U, listener: ShapedQueueListener[U]): this {
    return super.off(event as never, listener as never)
  }

  override emit<U extends keyof ShapedQueueListener>(event: U, ...args: Parameters<ShapedQueueListener[U]>): boolean {
    if (event === 'error' && this.listenerCount('error') === 0) return warnUnhandled(args[0])
    return super.emit(event as never, ...(args as never))
  }

  protected override get Job(): typeof Job {
    return GroupedJob as typeof Job
  }

  #read<T>(read: () => Promise<T>): Promise<T> {
    return this.#admitTimeout.read(this.name, read, (client) => client.llen(this.toKey('wait')))
  }

  #admit<T>(run: () => Promise<T>): Promise<T> {
    this.#arrivals.noted()
    return this.#admitTimeout.run(this.name, run).catch((error: unknown) => {
      if (isRefusal(error)) this.emit('refused', error)
      throw error
    })
  }
}

/** BullMQ would fail in its own code, or store a value that no script can compute with. */
function checkScheduler(id: unknown, repeat: unknown, template: unknown): void {
  const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)
  checkArgument(typeof id === 'string' && id !== '', 'upsertJobScheduler: the id of the scheduler', 'a string', id)
  checkArgument(isObject(repeat), 'upsertJobScheduler: when to repeat', '{ every } or { pattern }', repeat)
  const { every, pattern } = repeat as { readonly every?: unknown; readonly pattern?: unknown }
  const isOne = (every === undefined) !== (pattern === undefined)
  checkArgument(isOne, 'upsertJobScheduler: when to repeat', '{ every } or { pattern }, and not both', repeat)
  const isEvery = every === undefined || (typeof every === 'number' && every > 0 && Number.isFinite(every))
  checkArgument(isEvery, 'upsertJobScheduler: every', 'a number of ms > 0', every)
  const isPattern = pattern === undefined || (typeof pattern === 'string' && pattern !== '')
  checkArgument(isPattern, 'upsertJobScheduler: pattern', 'a string', pattern)
  checkArgument(
    template === undefined || isObject(template),
    'upsertJobScheduler: the job',
    '{ name, data, opts }',
    template,
  )
}

/** Somebody answers for each change. */
function checkChange(call: string, what: string, change: ShapeChange): void {
  const { by, reason } = change ?? ({} as Partial<ShapeChange>)
  if (change) checkCallOptions(call, change, ['by', 'reason', 'ttlMs'])
  if (!by || !reason) throw new InvalidInputError(`${call} needs { by, reason }: who changes ${what}, and why`)
}

function checkWho(call: string, who: Attribution): void {
  checkCallOptions(call, who, ['by', 'reason'])
}

/** Returns the checked value. A list of fields that were left out by mistake would clear all. */
function checkClearing<F extends string>(call: string, clearing: Clearing<F>): Clearing<F> {
  checkCallOptions(call, clearing, ['fields', 'by', 'reason'])
  const { fields } = clearing
  if (fields === undefined || (Array.isArray(fields) && fields.length > 0)) return clearing
  throw new InvalidInputError(
    `${call}: fields must be a list of at least one; leave it out to clear all; got ${JSON.stringify(fields)}`,
  )
}

/** The history's mark for BullMQ's own pause, as opposed to the meter's. */
const QUEUE_PAUSE = { pause: 'queue' }

/** The types that BullMQ's Queue derives from its first parameter, which is the data or a whole Job type. */
type DataOf<D> = D extends Job<infer T, unknown, string> ? T : D
type ResultOf<D, R> = D extends Job<unknown, infer T, string> ? T : R
type NameOf<D, N extends string> = D extends Job<unknown, unknown, infer T> ? T : N
type JobOf<D, R, N extends string> = Job<DataOf<D>, ResultOf<D, R>, NameOf<D, N>>

/**
 * How often a program that adds jobs reports the queue's time series, ms: the queue's workers may be paused or gone.
 */
const REPORT_MS = 15_000

/** Reports of producers, for a queue that jobs enter without departures. Nothing depends on them. */
class ArrivalReports {
  readonly #store: Pick<ShapeStore, 'memory' | 'run'>
  #reportedAtMs = performance.now()

  constructor(store: Pick<ShapeStore, 'memory' | 'run'>) {
    this.#store = store
  }

  noted(): void {
    const nowMs = performance.now()
    if (nowMs - this.#reportedAtMs < REPORT_MS || !this.#store.memory.stored) return
    this.#reportedAtMs = nowMs
    this.#store.run('report', ['', '', '{}', 0, '', 0]).catch(() => undefined)
  }
}
