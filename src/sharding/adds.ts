import type { BulkJobOptions, Job } from 'bullmq'
import { ASKED_ELSEWHERE } from '../admission/add-call.ts'
import type { OnceOptions } from '../admission/idempotency-key.ts'
import { checkJobList, checkJobOptions, type JobTerms, type ShapedJobsOptions } from '../admission/job-options.ts'
import {
  CostTooHighError,
  InvalidInputError,
  isRefusal,
  NotReplicatedError,
  QueueFullError,
  QueueUnavailableError,
  type Refusal,
  type SluiceError,
  TooLargeError,
} from '../errors.ts'
import type { AddedOnce } from '../queue/add-once.ts'
import type { Offer } from '../queue/options.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { shardOf } from '../redis/shards.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { jobIdIn, type PlacedJob, type Placement } from './placement.ts'

/** A job for `addBulk` and `addOnce`. */
// biome-ignore lint/suspicious/noExplicitAny: as BullMQ's data
export interface ShardedJob<DataType = any> {
  readonly name: string
  readonly data: DataType
  readonly opts?: (BulkJobOptions & JobTerms & Pick<ShapedJobsOptions, 'group'>) | undefined
}

/** What adding jobs needs from their queue. */
interface AddTerms<DataType, ResultType> {
  readonly name: string
  readonly shards: number
  readonly placement: Placement
  queue(shard: number): ShapedQueue<DataType, ResultType>
  /** Resolves once the shards that answer have leases. */
  started(): Promise<void>
  /** The shape of the whole queue. */
  getShape(): Promise<EffectiveShape | undefined>
  /** A shard lacks places. */
  onFull(): void
  onRefused(refusal: Refusal): void
}

/** A shard that answers has a lease by then, ms. */
const LEASED_MS = 250

/** Adds jobs to the shard they belong to, or to any shard with a free place. */
export class ShardedAdds<DataType, ResultType> {
  readonly #terms: AddTerms<DataType, ResultType>
  #turn = Math.floor(Math.random() * 1000)

  constructor(terms: AddTerms<DataType, ResultType>) {
    this.#terms = terms
  }

  /** As `ShardedQueue.add`. */
  add(job: PlacedJob): Promise<Job<DataType, ResultType>> {
    return this.#try(async (queue, own) => {
      const added = await queue.add(job.name as never, job.data as never, own)
      unmark(added)
      return added as never
    }, job)
  }

  /** Like {@link add}, but a refusal is returned, not thrown. */
  async offer(job: PlacedJob): Promise<Offer<Job<DataType, ResultType>>> {
    try {
      return await this.#try(async (queue, own) => {
        const offer = await queue.offer(job.name as never, job.data as never, own)
        if (!offer.accepted) throw new Refused(offer)
        unmark(offer.job)
        return offer as never
      }, job)
    } catch (error) {
      if (error instanceof Refused) return error.offer as { accepted: false } & Refusal
      throw error
    }
  }

  /** As `ShardedQueue.addBulk`. */
  async addBulk(jobs: readonly ShardedJob<DataType>[]): Promise<Job<DataType, ResultType>[]> {
    // If any job is invalid, nothing is added to any shard.
    checkJobList('addBulk', jobs)
    for (const { opts } of jobs) checkJobOptions(opts)
    await this.#terms.started()
    const parts = new Map<number, number[]>()
    const free = this.#nextTurn()
    for (const [i, job] of jobs.entries()) {
      const shard = this.#terms.placement.shardFor(job) ?? free
      const places = parts.get(shard)
      if (places) places.push(i)
      else parts.set(shard, [i])
    }
    const bulk = new ShardedBulk<Job<DataType, ResultType>>(this.#terms.name, jobs.length)
    for (const [shard, places] of parts) {
      const own = places.map((i) => withId(jobs[i] as ShardedJob<DataType>, shard))
      try {
        bulk.added(places, (await this.#terms.queue(shard).addBulk(own as never)) as never)
      } catch (error) {
        if (bulk.failed(places, error as SluiceError)) continue
        throw bulk.errorOf(await this.#failed(shard, error as Error))
      }
    }
    return bulk.all()
  }

  /** As `ShardedQueue.addOnce`. */
  async addOnce(jobs: readonly ShardedJob<DataType>[], options: OnceOptions): Promise<AddedOnce> {
    checkJobList('addOnce', jobs)
    await this.#terms.started()
    const [first] = jobs
    const found = first && this.#terms.placement.shardFor(first)
    const shard = found ?? shardOf(String(options?.key), this.#terms.shards)
    for (const job of jobs.slice(1)) {
      const other = this.#terms.placement.shardFor(job) ?? shard
      if (other === shard) continue
      throw new InvalidInputError(
        `addOnce of queue "${this.#terms.name}": all jobs must map to one shard, but "${first?.name}" and "${job.name}" map to different ones`,
      )
    }
    return this.#terms
      .queue(shard)
      .addOnce(jobs as never, options)
      .catch(async (error: Error) => {
        throw await this.#failed(shard, error)
      })
  }

  #nextTurn(): number {
    this.#turn += 1
    return this.#turn % this.#terms.shards
  }

  /** Calls with the shard of a job; if any will do, with one after the other until one has a place. */
  async #try<T>(
    add: (queue: ShapedQueue<DataType, ResultType>, opts: ShapedJobsOptions) => Promise<T>,
    job: PlacedJob,
  ): Promise<T> {
    await this.#terms.started()
    const fixed = this.#terms.placement.shardFor(job)
    const first = fixed ?? this.#nextTurn()
    const count = fixed === undefined ? this.#terms.shards : 1
    const shards = Array.from({ length: count }, (_, i) => (first + i) % this.#terms.shards)
    const refusals: (Error & Partial<Refusal>)[] = []
    for (const [i, shard] of shards.entries()) {
      try {
        const { opts } = withId(job, shard)
        const isLast = i === shards.length - 1
        return await add(this.#terms.queue(shard), isLast ? opts : marked(opts))
      } catch (error) {
        if (!isRefusal(error) && !(error instanceof Refused)) throw this.#ofWhole(error as Error)
        refusals.push(error as Error)
      }
    }
    throw this.#refused(refusals)
  }

  #refused(refusals: readonly Error[]): Error {
    this.#terms.onFull()
    const error = soonest(this.#terms.name, refusals)
    this.#terms.onRefused(error instanceof Refused ? error.offer : (error as Error & Refusal))
    return error
  }

  /** Why several jobs were not added. */
  async #failed(shard: number, error: Error): Promise<Error> {
    const failed = await this.#orFull(shard, this.#ofWhole(error))
    if (isRefusal(failed)) this.#terms.onRefused(failed)
    return failed
  }

  /** A shard does not know that its burst is only a part of the queue's. */
  #ofWhole(error: Error): Error {
    if (!(error instanceof CostTooHighError) || error.limitName !== undefined || error.groupId !== undefined)
      return error
    return new CostTooHighError(error.cost, error.burst, undefined, undefined, this.#terms.shards)
  }

  /**
   * A shard without a lease holds a single job. More are too large for it, but not for the places that its lease will
   * give it.
   */
  async #orFull(shard: number, error: Error): Promise<Error> {
    if (!(error instanceof TooLargeError) || error.groupId !== undefined) return error
    const whole = await this.#terms.getShape().catch(() => undefined)
    const part = Math.floor((whole?.capacity ?? 0) / this.#terms.shards)
    if (error.capacity >= part || error.jobs > part) return error
    this.#terms.onFull()
    const seen = await this.#terms
      .queue(shard)
      .meter()
      .catch(() => undefined)
    if (!seen) return error
    const { depth, paused } = seen
    const { capacity, jobs: needed } = error
    return new QueueFullError(this.#terms.name, { depth, capacity, paused, needed, retryAfterMs: LEASED_MS })
  }
}

/** A refusal returned by `offer`. */
class Refused extends Error {
  readonly offer: { readonly accepted: false } & Refusal

  constructor(offer: { readonly accepted: false } & Refusal) {
    super('refused')
    this.offer = offer
  }
}

/** A job without an id of its own gets one that names its shard. */
function withId<J extends { readonly opts?: ShapedJobsOptions | BulkJobOptions | undefined }>(job: J, shard: number) {
  const { opts } = job
  return { ...job, opts: opts?.jobId ? opts : { ...opts, jobId: jobIdIn(shard) } }
}

function marked(opts: ShapedJobsOptions): ShapedJobsOptions {
  return { ...opts, [ASKED_ELSEWHERE]: true } as ShapedJobsOptions
}

function unmark(job: { readonly opts: object }): void {
  delete (job.opts as { [ASKED_ELSEWHERE]?: true })[ASKED_ELSEWHERE]
}

/** The refusal with the earliest retry among several shards; all were full together. */
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

type AddedIds = NonNullable<SluiceError['addedIds']>

/** Results of a bulk whose shards are tried one after the other. */
class ShardedBulk<J extends { readonly id?: string | undefined }> {
  readonly #queueName: string
  readonly #jobs: (J | undefined)[]
  readonly #ids: (AddedIds[number] | undefined)[]
  readonly #unconfirmed: NotReplicatedError[] = []

  constructor(queueName: string, count: number) {
    this.#queueName = queueName
    this.#jobs = new Array(count).fill(undefined)
    this.#ids = new Array(count).fill(undefined)
  }

  /** @param places the positions of a shard's jobs in the bulk */
  added(places: readonly number[], jobs: readonly J[]): void {
    for (const [at, i] of places.entries()) {
      this.#jobs[i] = jobs[at]
      this.#ids[i] = jobs[at]?.id
    }
  }

  /** @returns whether the shard has its jobs nevertheless, so that the other shards should get theirs */
  failed(places: readonly number[], error: SluiceError): boolean {
    const isIn = error instanceof NotReplicatedError
    const unsaid = error instanceof QueueUnavailableError && error.mayBeStored ? null : undefined
    const ids = isIn ? error.jobIds : error.addedIds
    for (const [at, i] of places.entries()) this.#ids[i] = ids ? ids[at] : unsaid
    if (isIn) this.#unconfirmed.push(error)
    return isIn
  }

  /** The error of a shard, as an error of the whole bulk. */
  errorOf(error: Error): Error {
    const added = this.#jobs.filter((job) => job !== undefined)
    return Object.assign(error, { added, addedIds: this.#ids })
  }

  /** @throws NotReplicatedError if too few replicas have the jobs of some shard */
  all(): J[] {
    const [first] = this.#unconfirmed
    if (!first) return this.#jobs as J[]
    const jobIds = this.#unconfirmed.flatMap((error) => error.jobIds)
    const acknowledged = Math.min(...this.#unconfirmed.map((error) => error.acknowledged))
    const { replicas, timeoutMs } = first
    const known = { jobIds, acknowledged, replicas, timeoutMs }
    throw this.errorOf(new NotReplicatedError(this.#queueName, known, { cause: first }))
  }
}
