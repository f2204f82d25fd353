import { EventEmitter } from 'node:events'
import type { BulkJobOptions, Job, JobType } from 'bullmq'
import type { OnceOptions } from '../admission/idempotency-key.ts'
import type { JobTerms, ShapedJobsOptions } from '../admission/job-options.ts'
import { InvalidInputError, InvalidShapeError, isRefusal, QueueFullError, type Refusal } from '../errors.ts'
import { Inspector } from '../inspect/inspector.ts'
import type { Explanation } from '../inspect/queue-status.ts'
import type { AddedOnce } from '../queue/add-once.ts'
import type { Clearing, Offer, ShapeChange, ShapedQueueOptions } from '../queue/options.ts'
import { ShapedQueue } from '../queue/queue.ts'
import type { ShapeField, ShapeOverride } from '../shape/shape.ts'
import type { Attribution, ShapeConflict, StateLoss } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { Coordinator } from './coordinator.ts'
import { checkPlaceBy, checkReshard, checkShards, type ShardedQueueOptions, type ShardedState } from './options.ts'
import { openHead, partOf, shardOptions } from './parts.ts'
import { jobIdIn, type PlaceBy, placeKey, type Shards, shardNamedBy, shardOf } from './placement.ts'
import { Resharding } from './reshard.ts'
import { ownFields, splitOverride } from './shapes.ts'

export interface ShardedQueueEvents {
  error: [error: Error]
  refused: [refusal: Refusal]
  /** The shape of the whole changed. */
  shape: [shape: EffectiveShape, before: EffectiveShape | undefined]
  shapeConflict: [conflict: ShapeConflict]
  /** Redis had lost the shape of a shard or of the whole; this process restored it. */
  stateLoss: [loss: StateLoss]
  /** The number of shards changed. */
  shards: [shards: Shards, before: Shards]
}

/** A job as `addBulk` and `addOnce` take it. */
// biome-ignore lint/suspicious/noExplicitAny: as BullMQ's data
export interface ShardedJob<DataType = any> {
  readonly name: string
  readonly data: DataType
  readonly opts?: BulkJobOptions & JobTerms & Pick<ShapedJobsOptions, 'group'>
}

/**
 * One logical queue in several BullMQ queues, each in a slot of its own of a Redis Cluster. Their rates and places are
 * leased to them out of one shape, and are together never above it.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Queue
export class ShardedQueue<DataType = any, ResultType = any> extends EventEmitter<ShardedQueueEvents> {
  readonly name: string
  readonly #options: ShapedQueueOptions
  readonly #declared: number
  readonly #placeBy: PlaceBy | undefined
  readonly #head: ShapedQueue
  readonly #queues: ShapedQueue<DataType, ResultType>[] = []
  readonly #coordinator: Coordinator
  #shards: Shards
  #turn = Math.floor(Math.random() * 1000)

  /**
   * @throws InvalidInputError, InvalidShapeError, InvalidRateError, UnsupportedOptionError; ClusterPrefixError never: the
   * shards have hash tags of their own
   */
  constructor(name: string, options: ShardedQueueOptions) {
    super()
    const { shards, placeBy, ...opts } = options
    this.#declared = checkShards(shards)
    checkPlaceBy(placeBy)
    this.name = name
    this.#options = opts
    this.#placeBy = placeBy
    this.#shards = { count: shards, placed: shards, from: shards }
    this.#head = this.#relayed(openHead(name, opts, opts.shape, shards))
    this.#head.on('shape', (shape, before) => this.emit('shape', shape, before))
    this.#head.on('shapeConflict', (conflict) => this.emit('shapeConflict', conflict))
    this.#coordinator = new Coordinator(
      {
        head: partOf(this.#head.backend.store),
        parts: (count) => this.#upTo(count).map((queue) => partOf(queue.backend.store)),
        onShards: (found) => this.#follow(found),
        onError: (error) => this.#fails(error),
      },
      shards,
    )
  }

  /** How many shards there are, and which take new jobs. */
  get shards(): Shards {
    return this.#shards
  }

  /** The queue of each shard, for what concerns a shard alone. Changes of its shape belong to the whole. */
  get each(): readonly ShapedQueue<DataType, ResultType>[] {
    return this.#all
  }

  /** Resolves once the shards have places and rates. */
  async waitUntilReady(): Promise<void> {
    await this.#coordinator.started
  }

  /**
   * Adds a job to the shard of its group or key, or to any that has a place.
   * @throws QueueFullError if no shard that it may be in has a place, and what {@link ShapedQueue.add} throws
   */
  async add(name: string, data: DataType, opts: ShapedJobsOptions = {}): Promise<Job<DataType, ResultType>> {
    return this.#try((queue, own) => queue.add(name as never, data as never, own) as never, { name, data, opts })
  }

  /** Like {@link add}, but a refusal is returned, not thrown. */
  async offer(name: string, data: DataType, opts: ShapedJobsOptions = {}): Promise<Offer<Job<DataType, ResultType>>> {
    try {
      return await this.#try(
        async (queue, own) => {
          const offer = await queue.offer(name as never, data as never, own)
          if (!offer.accepted) throw new Refused(offer)
          return offer as never
        },
        { name, data, opts },
      )
    } catch (error) {
      if (error instanceof Refused) return error.offer as { accepted: false } & Refusal
      throw error
    }
  }

  /**
   * Adds jobs, all or none of those of one shard. Jobs without group or key stay together in one shard.
   * @throws as {@link add}; if an earlier part was added already, the error has the jobs of it in `added`
   */
  async addBulk(jobs: readonly ShardedJob<DataType>[]): Promise<Job<DataType, ResultType>[]> {
    await this.#coordinator.started
    const parts = new Map<number, number[]>()
    const free = this.#nextTurn()
    for (const [i, job] of jobs.entries()) {
      const shard = (await this.#shardFor({ opts: {}, ...job })) ?? free
      parts.set(shard, [...(parts.get(shard) ?? []), i])
    }
    const added = new Array<Job<DataType, ResultType>>(jobs.length)
    for (const [shard, places] of parts) {
      const own = places.map((i) => withId(jobs[i] as ShardedJob<DataType>, shard))
      const found = await this.#queue(shard)
        .addBulk(own as never)
        .catch((error: Error) => {
          throw Object.assign(error, { added: added.filter(Boolean) })
        })
      for (const [at, i] of places.entries()) added[i] = found[at] as never
    }
    return added
  }

  /**
   * Adds jobs once per key, all or none: they share the shard of the key, or of the group of the first one.
   * @throws InvalidInputError if a job belongs into another shard, and what {@link ShapedQueue.addOnce} throws
   */
  async addOnce(jobs: readonly ShardedJob<DataType>[], options: OnceOptions): Promise<AddedOnce> {
    await this.#coordinator.started
    const [first] = jobs
    const found = first && (await this.#shardFor({ opts: {}, ...first }))
    const shard = found ?? shardOf(String(options?.key), this.#shards.placed)
    for (const job of jobs.slice(1)) {
      const other = (await this.#shardFor({ opts: {}, ...job })) ?? shard
      if (other === shard) continue
      throw new InvalidInputError(
        `addOnce of queue "${this.name}" adds its jobs to one shard; "${job.name}" belongs into another than "${first?.name}"`,
      )
    }
    return this.#queue(shard).addOnce(jobs as never, options)
  }

  /** The job with this id, from the shard that it names; an id of the caller's own is looked for in all. */
  async getJob(jobId: string): Promise<Job<DataType, ResultType> | undefined> {
    return (await this.#find(jobId))?.job
  }

  /** Numbers of jobs by state, over all shards. */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    const counts = await Promise.all(this.#all.map((queue) => queue.getJobCounts(...types)))
    const sums: Record<string, number> = {}
    for (const one of counts) for (const [type, n] of Object.entries(one)) sums[type] = (sums[type] ?? 0) + n
    return sums
  }

  /** Jobs that wait, are delayed or wait for children, over all shards. */
  async count(): Promise<number> {
    const counts = await Promise.all(this.#all.map((queue) => queue.count()))
    return counts.reduce((sum, n) => sum + n, 0)
  }

  /** The whole, and each of the shards. */
  async meter(): Promise<ShardedState> {
    const [shape, ...each] = await Promise.all([this.#head.getShape(), ...this.#all.map((queue) => queue.meter())])
    const sum = (field: 'depth' | 'waiting' | 'delayed' | 'waitingChildren' | 'active') =>
      each.reduce((total, state) => total + state[field], 0)
    return {
      shape,
      shards: this.#shards,
      depth: sum('depth'),
      waiting: sum('waiting'),
      delayed: sum('delayed'),
      waitingChildren: sum('waitingChildren'),
      active: sum('active'),
      each,
    }
  }

  /** The shape of the whole. */
  async getShape(): Promise<EffectiveShape | undefined> {
    return this.#head.getShape()
  }

  /** Why a job has not started and when it may, by its shard; undefined where there is no such job. */
  async explain(jobId: string): Promise<(Explanation & { readonly shard: number }) | undefined> {
    const found = await this.#find(jobId)
    if (!found) return undefined
    const { queue, shard } = found
    const inspector = new Inspector({
      connection: (await queue.backend.client) as never,
      prefix: queue.opts.prefix as string,
    })
    const explanation = await inspector.explain(this.name, jobId)
    return explanation && { ...explanation, shard }
  }

  /**
   * Overrides fields of the shape for the whole queue. It resolves once all shards that answer obey: what is lower then
   * holds, and a shard that does not answer has lost its lease.
   * @throws InvalidShapeError, InvalidRateError, InvalidInputError, UnsupportedOptionError
   */
  async setShape(override: ShapeOverride, change: ShapeChange): Promise<void> {
    const { whole, each } = splitOverride(override, this.#shards.count)
    await this.#checkPaced(override)
    await this.#head.setShape(whole, change)
    if (Object.keys(each).length > 0) await this.#inAll((queue) => queue.setShape(each, change))
    await this.#coordinator.settle()
  }

  /** Lifts overrides of the given fields, or all. */
  async clearShape(clearing: Clearing<ShapeField> = {}): Promise<void> {
    await this.#head.clearShape(clearing)
    const shape = await this.#head.getShape()
    const fields = ownFields(clearing.fields ?? (Object.keys(shape?.declared ?? {}) as ShapeField[])).filter(
      (field) => field !== 'horizonMs' && field !== 'onStateLoss',
    )
    if (fields.length > 0) await this.#inAll((queue) => queue.clearShape({ ...clearing, fields }))
    await this.#coordinator.settle()
  }

  /** BullMQ's pause, in all shards. */
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

  /** The shard in which the jobs of a group are, for what concerns a group alone. */
  async queueOfGroup(id: string): Promise<ShapedQueue<DataType, ResultType>> {
    return this.#queue((await this.#shardFor({ name: '', data: undefined, opts: { group: { id } } })) as number)
  }

  /**
   * Changes the number of shards. More: groups and keys that belong to a new one go there once their old one has none of
   * their jobs. Fewer: the last shards take no new jobs, and are gone once they have none. Resolves when that is done; if
   * it is broken off, another call goes on.
   * @throws InvalidInputError, and the signal's reason if it is aborted
   */
  async reshard(shards: number, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    checkShards(shards)
    checkReshard(options)
    await this.#coordinator.started
    const queues = () => this.#all as readonly ShapedQueue[]
    await new Resharding(this.#head.backend.store, this.#coordinator, queues, shards, options.signal).run(this.#shards)
  }

  /** Removes all jobs and everything of the queue. */
  async obliterate(options?: { force?: boolean; count?: number }): Promise<void> {
    await this.#coordinator.close()
    await this.#inAll((queue) => queue.obliterate(options))
    await this.#head.obliterate(options)
  }

  async close(): Promise<void> {
    await this.#coordinator.close()
    await Promise.all([this.#head, ...this.#queues].map((queue) => queue.close()))
  }

  /** All shards that there are. */
  get #all(): readonly ShapedQueue<DataType, ResultType>[] {
    return this.#upTo(this.#shards.count)
  }

  #queue(shard: number): ShapedQueue<DataType, ResultType> {
    return this.#upTo(shard + 1)[shard] as ShapedQueue<DataType, ResultType>
  }

  #upTo(count: number): ShapedQueue<DataType, ResultType>[] {
    for (let shard = this.#queues.length; shard < count; shard++) {
      const options = shardOptions(this.name, this.#options, this.#options.shape, shard, this.#declared)
      this.#queues.push(this.#relayed(new ShapedQueue<DataType, ResultType>(this.name, options)))
    }
    return this.#queues.slice(0, count)
  }

  #relayed<Q extends ShapedQueue>(queue: Q): Q {
    queue.on('error', (error) => this.#fails(error))
    queue.on('stateLoss', (loss) => this.emit('stateLoss', loss))
    return queue
  }

  /** As BullMQ does: an error without a listener does not end the program. */
  #fails(error: Error): void {
    if (this.listenerCount('error') > 0) this.emit('error', error)
    else console.error(error)
  }

  #follow(found: Shards): void {
    const before = this.#shards
    if (found.count === before.count && found.placed === before.placed && found.from === before.from) return
    this.#shards = found
    this.emit('shards', found, before)
  }

  async #inAll(act: (queue: ShapedQueue) => Promise<unknown>): Promise<void> {
    await this.#coordinator.started
    await Promise.all(this.#all.map((queue) => act(queue as ShapedQueue)))
  }

  /** Without a declared rate the shards hold nothing when their leases end. */
  async #checkPaced({ rate }: ShapeOverride): Promise<void> {
    if (rate === undefined || rate === null) return
    if ((await this.#head.getShape())?.declared.rate) return
    throw new InvalidShapeError(
      `queue "${this.name}" declares no rate: declare shape.rate, then it can be changed at run time; got ${JSON.stringify(rate)}`,
    )
  }

  /** The shard of a job, undefined if any will do. */
  async #shardFor(job: { name: string; data: unknown; opts: ShapedJobsOptions }): Promise<number | undefined> {
    const { group } = job.opts
    const key = group ? placeKey(job.opts) : (this.#placeBy?.(job as never) ?? placeKey(job.opts))
    if (key === undefined) return undefined
    const { placed, from } = this.#shards
    const shard = shardOf(key, placed)
    if (from === placed || !group) return shard
    const before = shardOf(key, from)
    return before !== shard && (await this.#hasGroup(before, group.id)) ? before : shard
  }

  async #hasGroup(shard: number, id: string): Promise<boolean> {
    const { waiting, active = 0 } = await this.#queue(shard).getGroup(id)
    return waiting > 0 || active > 0
  }

  #nextTurn(): number {
    this.#turn += 1
    return this.#turn % this.#shards.placed
  }

  /** Calls with the shard of a job; if any will do, with one after the other until one has a place. */
  async #try<T>(
    add: (queue: ShapedQueue<DataType, ResultType>, opts: ShapedJobsOptions) => Promise<T>,
    job: { name: string; data: DataType; opts: ShapedJobsOptions },
  ): Promise<T> {
    await this.#coordinator.started
    const fixed = await this.#shardFor(job)
    const first = fixed ?? this.#nextTurn()
    const { placed } = this.#shards
    const shards = fixed === undefined ? Array.from({ length: placed }, (_, i) => (first + i) % placed) : [fixed]
    const refusals: (Error & Partial<Refusal>)[] = []
    for (const shard of shards) {
      try {
        return await add(this.#queue(shard), withId(job, shard).opts)
      } catch (error) {
        if (!isRefusal(error) && !(error instanceof Refused)) throw error
        refusals.push(error as Error)
      }
    }
    throw this.#refused(refusals)
  }

  #refused(refusals: readonly Error[]): Error {
    this.#coordinator.nudge()
    const error = soonest(this.name, refusals)
    this.emit('refused', error instanceof Refused ? (error.offer as Refusal) : (error as Error & Refusal))
    return error
  }

  async #find(jobId: string) {
    const named = shardNamedBy(jobId)
    const shards = named !== undefined && named < this.#shards.count ? [named] : this.#all.map((_, shard) => shard)
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

/** A refusal that `offer` returned. */
class Refused extends Error {
  readonly offer: { readonly accepted: false } & Refusal

  constructor(offer: { readonly accepted: false } & Refusal) {
    super('refused')
    this.offer = offer
  }
}

/** A job without an id of its own gets one that names its shard. */
function withId<J extends { readonly opts?: ShapedJobsOptions | BulkJobOptions }>(job: J, shard: number) {
  const { opts = {} } = job
  return { ...job, opts: opts.jobId === undefined ? { ...opts, jobId: jobIdIn(shard) } : opts }
}

/** Of the refusals of several shards the one with the earliest retry; all were full together. */
function soonest(name: string, refusals: readonly Error[]): Error {
  const [first, ...rest] = refusals as [Error, ...Error[]]
  if (rest.length === 0) return first
  const offers = refusals.map((one) => (one instanceof Refused ? one.offer : (one as Error & Refusal)))
  const sum = (field: 'depth' | 'capacity') => offers.reduce((total, offer) => total + (offer[field] ?? 0), 0)
  const whole = {
    retryAfterMs: Math.min(...offers.map(({ retryAfterMs }) => retryAfterMs)),
    depth: sum('depth'),
    capacity: sum('capacity'),
    paused: offers.every(({ paused }) => paused),
  }
  if (first instanceof Refused) return new Refused({ accepted: false, ...whole })
  return first instanceof QueueFullError ? new QueueFullError(name, whole) : first
}
