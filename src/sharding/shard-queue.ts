import type { OnceOptions } from '../admission/idempotency-key.ts'
import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { InvalidGroupError } from '../errors.ts'
import type { ShapedQueueOptions } from '../queue/options.ts'
import { ShapedQueue } from '../queue/queue.ts'
import { groupKey, shardOf } from '../redis/shards.ts'

/** The position of a queue among the shards. */
export interface ShardPlace {
  readonly shard: number
  readonly shards: number
}

/**
 * The queue of one shard. It refuses jobs of groups that belong to another shard: the group would have its rate and its
 * places twice.
 */
export class ShardQueue<DataType, ResultType> extends ShapedQueue<DataType, ResultType> {
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
