import { EventEmitter } from 'node:events'
import type { Job, JobType } from 'bullmq'
import type { OnceOptions } from '../admission/idempotency-key.ts'
import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { checkArgument, checkQueueName } from '../call-options.ts'
import { InvalidGroupError, InvalidShapeError, type Refusal } from '../errors.ts'
import type { Explanation } from '../inspect/queue-status.ts'
import type { AddedOnce } from '../queue/add-once.ts'
import {
  CANCELLED,
  type CancelCounts,
  type CancelFilter,
  type CancelManyOptions,
  type CancelOptions,
  type CancelOutcome,
  noneCancelled,
} from '../queue/cancel.ts'
import type { Clearing, Offer, ShapeChange, ShapedQueueOptions } from '../queue/options.ts'
import { ShapedQueue } from '../queue/queue.ts'
import { asUnavailable, DEFAULT_ADMIT_TIMEOUT_MS } from '../queue/unavailable.ts'
import type { PlainCommands } from '../redis/commands.ts'
import { shardedQueuesKey } from '../redis/keys.ts'
import { groupKey, shardOf } from '../redis/shards.ts'
import { warnUnhandled } from '../redis/unhandled-errors.ts'
import { checkGroupId } from '../shape/groups.ts'
import type { ShapeField, ShapeOverride } from '../shape/shape.ts'
import type { Attribution, ShapeConflict, StateLoss } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { sumsOf } from '../sums.ts'
import { ShardedAdds, type ShardedJob } from './adds.ts'
import { answered, inAllShards } from './all-shards.ts'
import { Coordinator } from './coordinator.ts'
import { ShardNumber } from './number.ts'
import { checkShardedQueue, type ShardedQueueOptions, type ShardedState } from './options.ts'
import { enlist, inspectorOf, openHead, partOf, shardOptions } from './parts.ts'
import { Placement, shardNamedBy } from './placement.ts'
import { Removal, type RemovalOptions } from './removal.ts'
import { ownFields, splitOverride } from './shapes.ts'

/** Longest delay between BullMQ's reconnect attempts, ms. */
const BETWEEN_ATTEMPTS_MS = 20_000

export interface ShardedQueueEvents {
  error: [error: Error]
  refused: [refusal: Refusal]
  /** The shape of the whole queue changed. */
  shape: [shape: EffectiveShape, before: EffectiveShape | undefined]
  shapeConflict: [conflict: ShapeConflict]
  /** Redis had lost the shape of a shard or of the whole queue; this process restored it. */
  stateLoss: [loss: StateLoss]
}

/**
 * One logical queue in several BullMQ queues, each in a hash slot of its own of a Redis Cluster. They lease their rates
 * and places from one shape, whose values their sums never exceed.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Queue
export class ShardedQueue<DataType = any, ResultType = any> extends EventEmitter<ShardedQueueEvents> {
  readonly name: string
  readonly #options: ShapedQueueOptions
  readonly #number: ShardNumber
  readonly #adds: ShardedAdds<DataType, ResultType>
  readonly #head: ShapedQueue
  readonly #queues: ShapedQueue<DataType, ResultType>[] = []
  readonly #coordinator: Coordinator
  /** Whether it was removed: the next call begins it again. */
  #isGone = false
  #isClosed = false
  #lastError: { readonly error: Error; readonly atMs: number } | undefined

  /**
   * @throws InvalidInputError, InvalidShapeError, InvalidRateError, UnsupportedOptionError; ClusterPrefixError never: the
   * shards have hash tags of their own
   */
  constructor(name: string, options: ShardedQueueOptions) {
    super()
    checkQueueName(name)
    checkShardedQueue(options)
    const { shards, placeBy, ...opts } = options
    this.name = name
    this.#options = opts
    this.#head = this.#relayed(openHead(name, opts, opts.shape, shards))
    this.#head.on('shape', (shape, before) => this.emit('shape', shape, before))
    this.#head.on('shapeConflict', (conflict) => this.emit('shapeConflict', conflict))
    const enlistHere = () => enlist(this.#head, name, opts.prefix, shards)
    this.#head.on('stateLoss', enlistHere)
    this.#number = new ShardNumber(name, this.#head.backend.store, shards, opts.shape !== undefined, enlistHere)
    this.#coordinator = new Coordinator({
      shards,
      head: partOf(this.#head.backend.store),
      agree: () => this.#number.agree(),
      check: (stored) => this.#number.check(stored),
      parts: () => this.each.map((queue) => partOf(queue.backend.store)),
      onError: (error) => this.#fails(error),
    })
    this.#adds = new ShardedAdds({
      name,
      shards,
      placement: new Placement(shards, placeBy, opts.defaultJobOptions),
      queue: (shard) => this.#queue(shard),
      started: () => this.#started(),
      getShape: () => this.#head.getShape(),
      onFull: () => this.#coordinator.nudge(),
      onRefused: (refusal) => this.emit('refused', refusal),
    })
  }

  /** Number of shards. */
  get shards(): number {
    return this.#number.count
  }

  /** The queue of each shard, for calls that concern a single shard. Changes of its shape belong to the whole queue. */
  get each(): readonly ShapedQueue<DataType, ResultType>[] {
    for (let shard = this.#queues.length; shard < this.shards; shard++) this.#queues.push(this.#open(shard))
    return this.#queues
  }

  /**
   * Resolves once the shards that answer have places and rates.
   * @throws ShardCountError if the queue has another number of shards
   */
  async waitUntilReady(): Promise<void> {
    await this.#coordinator.started
  }

  /**
   * Adds a job to the shard of its group or key, or to any that has a place.
   * @throws QueueFullError if no shard that it may be in has a place, ShardCountError if the queue has another number
   * of shards, QueueUnavailableError if its shards get no leases within `admitTimeoutMs`, and the errors of {@link
   * ShapedQueue.add}
   */
  async add(name: string, data: DataType, opts: ShapedJobsOptions = {}): Promise<Job<DataType, ResultType>> {
    return this.#adds.add({ name, data, opts })
  }

  /** Like {@link add}, but a refusal is returned, not thrown. */
  async offer(name: string, data: DataType, opts: ShapedJobsOptions = {}): Promise<Offer<Job<DataType, ResultType>>> {
    return this.#adds.offer({ name, data, opts })
  }

  /**
   * Adds jobs, all or none of those of one shard. Jobs without group or key stay together in one shard.
   * @throws as {@link add}; if an earlier part was added already, the error has its jobs in `added`. NotReplicatedError
   * once all shards have their jobs
   */
  async addBulk(jobs: readonly ShardedJob<DataType>[]): Promise<Job<DataType, ResultType>[]> {
    return this.#adds.addBulk(jobs)
  }

  /**
   * Adds jobs once per key, all or none: they share the shard of the key, or of the group of the first one.
   * @throws InvalidInputError if the jobs belong to different shards, and the errors of {@link ShapedQueue.addOnce}
   */
  async addOnce(jobs: readonly ShardedJob<DataType>[], options: OnceOptions): Promise<AddedOnce> {
    return this.#adds.addOnce(jobs, options)
  }

  /** The job with this id, from the shard that it names. For a caller's own id, all shards are searched. */
  async getJob(jobId: string): Promise<Job<DataType, ResultType> | undefined> {
    return (await this.#find(jobId))?.job
  }

  /** Numbers of jobs by state, over all shards. */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    await this.#agreed()
    const counts = await Promise.all(this.each.map((queue) => queue.getJobCounts(...types)))
    const sums: Record<string, number> = {}
    for (const one of counts) for (const [type, n] of Object.entries(one)) sums[type] = (sums[type] ?? 0) + n
    return sums
  }

  /** Jobs that wait, are delayed or wait for children, over all shards. */
  async count(): Promise<number> {
    await this.#agreed()
    const counts = await Promise.all(this.each.map((queue) => queue.count()))
    return counts.reduce((sum, n) => sum + n, 0)
  }

  /** The state of the whole queue, and of each of its shards. */
  async meter(): Promise<ShardedState> {
    await this.#agreed()
    const [shape, ...each] = await Promise.all([this.#head.getShape(), ...this.each.map((queue) => queue.meter())])
    const sums = sumsOf(['depth', 'waiting', 'delayed', 'waitingChildren', 'active'], each)
    return { shape, shards: this.shards, ...sums, each }
  }

  /** Cancels a job in the shard that holds it. See {@link ShapedQueue.cancelJob}. */
  async cancelJob(jobId: string, options: CancelOptions): Promise<CancelOutcome> {
    return (await this.queueOfJob(jobId)).cancelJob(jobId, options)
  }

  /**
   * Cancels all jobs that match a filter, in all shards. See {@link ShapedQueue.cancelJobs}.
   * @throws the same errors, and ShardsUnavailableError if some did not answer; in the others the jobs are cancelled
   */
  async cancelJobs(filter: CancelFilter, options: CancelManyOptions): Promise<CancelCounts> {
    const total = noneCancelled()
    await this.#started()
    const cancel = async (queue: ShapedQueue) => {
      const counts = await queue.cancelJobs(filter, options)
      for (const outcome of CANCELLED) total[outcome] += counts[outcome]
    }
    await inAllShards(this.name, this.#acts(cancel))
    return total
  }

  /** The shape of the whole queue. */
  async getShape(): Promise<EffectiveShape | undefined> {
    return this.#head.getShape()
  }

  /** Why a job has not started and when it may, by its shard; undefined if there is no such job. */
  async explain(jobId: string): Promise<(Explanation & { readonly shard: number }) | undefined> {
    const found = await this.#find(jobId)
    if (!found) return undefined
    const { queue, shard } = found
    const explanation = await (await inspectorOf(queue)).explain(this.name, jobId)
    return explanation && { ...explanation, shard }
  }

  /**
   * Overrides fields of the shape for the whole queue. Resolves once the change applies in all shards that answer:
   * lower values hold then, and a silent shard has lost its lease.
   * @throws InvalidShapeError, InvalidRateError, InvalidInputError, UnsupportedOptionError; ShardsUnavailableError if a
   * field that is not leased did not reach all shards
   */
  async setShape(override: ShapeOverride, change: ShapeChange): Promise<void> {
    checkArgument(typeof override === 'object' && override !== null, 'setShape: the fields', 'an object', override)
    const { whole, each } = splitOverride(override, this.shards)
    if (this.#isGone) this.#beginAnew()
    await this.#checkPaced(override)
    await this.#head.setShape(whole, change)
    if (Object.keys(each).length > 0) await this.#inAll((queue) => queue.setShape(each, change))
    await this.#coordinator.settle()
  }

  /** Lifts overrides of the given fields, or all. */
  async clearShape(clearing: Clearing<ShapeField> = {}): Promise<void> {
    if (this.#isGone) this.#beginAnew()
    await this.#head.clearShape(clearing)
    const fields = ownFields(clearing.fields)
    if (fields.length > 0) await this.#inAll((queue) => queue.clearShape({ ...clearing, fields }))
    await this.#coordinator.settle()
  }

  /** BullMQ's pause, in all shards. @throws ShardsUnavailableError if some did not answer; the others are paused */
  async pause(who?: Attribution): Promise<void> {
    await this.#inAll((queue) => queue.pause(who))
  }

  async resume(who?: Attribution): Promise<void> {
    await this.#inAll((queue) => queue.resume(who))
  }

  /** Grants no slot before the given time, in all shards. */
  async pauseUntil(until: Date | number, who: Attribution & { readonly reason: string }): Promise<void> {
    await this.#inAll((queue) => queue.pauseUntil(until, who))
  }

  async clearPause(who: Attribution = {}): Promise<void> {
    await this.#inAll((queue) => queue.clearPause(who))
  }

  /** The shard that holds the jobs of a group, for calls that concern a single group. */
  async queueOfGroup(id: string): Promise<ShapedQueue<DataType, ResultType>> {
    checkGroupId(id)
    return this.#queue(shardOf(groupKey(id), this.shards))
  }

  /**
   * The shard that holds the job; if there is no such job, the shard encoded in its id, or shard 0.
   */
  async queueOfJob(jobId: string): Promise<ShapedQueue<DataType, ResultType>> {
    const found = await this.#find(jobId)
    return found?.queue ?? this.#queue(Math.min(shardNamedBy(jobId) ?? 0, this.shards - 1))
  }

  /**
   * Removes all jobs and everything of the queue. It takes as long as its jobs need, but no longer than
   * `admitTimeoutMs` without an answer of Redis.
   * @throws the errors of BullMQ, such as for running jobs without `force`; ShardsUnavailableError if shards do not
   * answer, QueueUnavailableError if the head does not. Nothing is removed unless all answer at first; after a later
   * failure the queue continues with the remaining jobs, and repeating the call removes these.
   */
  async obliterate(options?: RemovalOptions): Promise<void> {
    const removal = new Removal(this.name, this.#admitTimeoutMs)
    await this.#agreed()
    await removal.reach(this.#head, this.each as readonly ShapedQueue[])
    await this.#coordinator.close()
    try {
      await inAllShards(
        this.name,
        this.#acts((queue) => removal.run(queue, options)),
      )
      await removal.run(this.#head, options)
      await answered(this.name, this.#delist(), this.#admitTimeoutMs)
      this.#isGone = !this.#isClosed
    } catch (error) {
      if (!this.#isClosed) this.#coordinator.reopen()
      throw error
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#isGone = false
    await this.#coordinator.close()
    await Promise.all([this.#head, ...this.#queues].map((queue) => queue.close()))
  }

  async #delist(): Promise<void> {
    const client = (await this.#head.backend.client) as unknown as PlainCommands
    await client.hdel(shardedQueuesKey(this.#options.prefix ?? 'bull'), this.name)
  }

  #queue(shard: number): ShapedQueue<DataType, ResultType> {
    return this.each[shard] as ShapedQueue<DataType, ResultType>
  }

  #open(shard: number): ShapedQueue<DataType, ResultType> {
    const options = shardOptions(this.name, this.#options, this.#options.shape, shard, this.shards)
    const place = { shard, shards: this.shards }
    const queue = this.#relayed(new ShardQueue<DataType, ResultType>(this.name, options, place))
    queue.backend.store.declareAfter(() => this.#number.agree())
    return queue
  }

  /** @throws ShardCountError, QueueUnavailableError */
  async #started(): Promise<void> {
    if (this.#isGone) this.#beginAnew()
    if (this.#coordinator.isStarted) return
    const missing = () => {
      if (this.#number.isUndeclared) return { text: 'no process has declared its shape' }
      return { text: 'its shards got no leases', cause: this.#lastCause() }
    }
    await answered(this.name, this.#coordinator.started, this.#admitTimeoutMs, { mayChange: false, missing })
  }

  /** Before a read. @throws ShardCountError, QueueUnavailableError */
  async #agreed(): Promise<void> {
    if (this.#number.isStored) return
    const missing = () => ({ cause: this.#lastCause() })
    const agreeing = this.#number.agree().catch((error: unknown) => {
      throw asUnavailable(this.name, error, false)
    })
    await answered(this.name, agreeing, this.#admitTimeoutMs, { mayChange: false, missing })
  }

  /** The last error, unless there have been attempts without one since. */
  #lastCause(): Error | undefined {
    const { error, atMs = 0 } = this.#lastError ?? {}
    return performance.now() - atMs <= BETWEEN_ATTEMPTS_MS ? error : undefined
  }

  #beginAnew(): void {
    this.#isGone = false
    this.#number.forget()
    this.#coordinator.reopen()
  }

  #relayed<Q extends ShapedQueue>(queue: Q): Q {
    queue.on('error', (error) => this.#fails(error))
    queue.on('stateLoss', (loss) => this.emit('stateLoss', loss))
    return queue
  }

  /** As BullMQ does: an error without a listener does not end the program. */
  #fails(error: Error): void {
    this.#lastError = { error, atMs: performance.now() }
    if (this.listenerCount('error') > 0) this.emit('error', error)
    else warnUnhandled(error)
  }

  async #inAll(act: (queue: ShapedQueue) => Promise<unknown>): Promise<void> {
    await this.#started()
    await inAllShards(this.name, this.#acts(act), this.#admitTimeoutMs)
  }

  #acts(act: (queue: ShapedQueue) => Promise<unknown>): Promise<unknown>[] {
    return this.each.map((queue) => act(queue as ShapedQueue))
  }

  get #admitTimeoutMs(): number {
    return this.#options.admitTimeoutMs ?? DEFAULT_ADMIT_TIMEOUT_MS
  }

  /** Without a declared rate the shards hold nothing when their leases end. */
  async #checkPaced({ rate }: ShapeOverride): Promise<void> {
    if (rate === undefined || rate === null) return
    if ((await this.#head.getShape())?.declared.rate) return
    throw new InvalidShapeError(
      `queue "${this.name}" declares no rate: declare shape.rate, then it can be changed at run time; got ${JSON.stringify(rate)}`,
    )
  }

  async #find(jobId: string) {
    await this.#agreed()
    const all = this.each.map((_, shard) => shard)
    const named = all.filter((shard) => shard === shardNamedBy(jobId))
    const found = await this.#findIn(named, jobId)
    // A caller's own id may look as if it named a shard.
    return (
      found ??
      this.#findIn(
        all.filter((shard) => !named.includes(shard)),
        jobId,
      )
    )
  }

  async #findIn(shards: readonly number[], jobId: string) {
    const found = await Promise.all(
      shards.map(async (shard) => {
        const queue = this.#queue(shard)
        const job = (await queue.getJob(jobId)) as Job<DataType, ResultType> | undefined
        return job && { job, queue, shard }
      }),
    )
    return found.find((one) => one !== undefined)
  }
}

/** The position of a queue among the shards. */
interface ShardPlace {
  readonly shard: number
  readonly shards: number
}

/**
 * The queue of one shard. It refuses jobs of groups that belong to another shard: the group would have its rate and its
 * places twice.
 */
class ShardQueue<DataType, ResultType> extends ShapedQueue<DataType, ResultType> {
  readonly #place: ShardPlace

  constructor(name: string, options: ShapedQueueOptions, place: ShardPlace) {
    super(name, options)
    this.#place = place
  }

  override add(...[name, data, opts]: Parameters<ShapedQueue<DataType, ResultType>['add']>) {
    const wrong = this.#wrong(opts)
    return wrong ? Promise.reject(wrong) : super.add(name, data, opts)
  }

  override async addBulk(jobs: Parameters<ShapedQueue<DataType, ResultType>['addBulk']>[0]) {
    this.#check(jobs)
    return super.addBulk(jobs)
  }

  override async addOnce(jobs: Parameters<ShapedQueue<DataType, ResultType>['addOnce']>[0], options: OnceOptions) {
    this.#check(jobs)
    return super.addOnce(jobs, options)
  }

  override async upsertJobScheduler(...call: Parameters<ShapedQueue<DataType, ResultType>['upsertJobScheduler']>) {
    const [, , template] = call
    this.#check([{ opts: template?.opts }])
    return super.upsertJobScheduler(...call)
  }

  /** The queue itself refuses values that are no jobs. @throws InvalidGroupError */
  #check(jobs: readonly { readonly opts?: object | undefined }[]): void {
    if (!Array.isArray(jobs)) return
    for (const job of jobs) {
      const wrong = this.#wrong(job?.opts)
      if (wrong) throw wrong
    }
  }

  #wrong(opts: ShapedJobsOptions | undefined): InvalidGroupError | undefined {
    const { group }: ShapedJobsOptions = { ...this.opts.defaultJobOptions, ...opts }
    if (typeof group?.id !== 'string') return undefined
    const { shard, shards } = this.#place
    const own = shardOf(groupKey(group.id), shards)
    if (own === shard) return undefined
    const id = JSON.stringify(group.id)
    return new InvalidGroupError(
      `group "${id}" belongs to shard ${own} of queue "${this.name}", not shard ${shard}; use queueOfGroup("${id}")`,
    )
  }
}
