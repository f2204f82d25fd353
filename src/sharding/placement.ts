import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { uniqueId } from '../redis/ids.ts'
import { groupKey, shardOf } from '../redis/shards.ts'

/**
 * Returns the key that decides the shard of a job; undefined: any will do. `opts` include the queue's
 * `defaultJobOptions`.
 */
export type PlaceBy = (job: {
  readonly name: string
  readonly data: unknown
  readonly opts: ShapedJobsOptions
}) => string | undefined

/**
 * The key by which a job is placed: its group, because a shard keeps the limits of its groups; otherwise its own id or
 * the id of its deduplication, because only its shard knows whether it has that already.
 */
export function placeKey({ group, jobId, deduplication }: ShapedJobsOptions): string | undefined {
  if (group) return groupKey(group.id)
  // BullMQ makes an id if it is empty.
  const id: unknown = jobId || deduplication?.id
  // Untyped programs may pass a number.
  return id === undefined ? undefined : String(id)
}

/** A job to be added. */
export interface PlacedJob {
  readonly name: string
  readonly data: unknown
  readonly opts?: ShapedJobsOptions | undefined
}

/** Which shard each job of a queue belongs to. */
export class Placement {
  readonly #shards: number
  readonly #placeBy: PlaceBy | undefined
  readonly #defaults: ShapedJobsOptions

  constructor(shards: number, placeBy: PlaceBy | undefined, defaults: ShapedJobsOptions = {}) {
    this.#shards = shards
    this.#placeBy = placeBy
    this.#defaults = defaults
  }

  /** The shard of a job; undefined if any will do. @throws InvalidInputError for a wrong result of placeBy */
  shardFor({ name, data, opts: own }: PlacedJob): number | undefined {
    // As BullMQ joins them: a job has no id by default.
    const { jobId: _jobId, ...defaults } = this.#defaults
    const opts: ShapedJobsOptions = { ...defaults, ...own }
    const key = opts.group ? placeKey(opts) : (this.#placedBy({ name, data, opts }) ?? placeKey(opts))
    return key === undefined ? undefined : shardOf(key, this.#shards)
  }

  #placedBy(job: Parameters<PlaceBy>[0]): string | undefined {
    const key: unknown = this.#placeBy?.(job)
    if (key === undefined || typeof key === 'string') return key
    // A number would put all jobs into one shard.
    throw new InvalidInputError(`placeBy must return a string, or undefined; got ${gotText(key)}`)
  }
}

const GENERATED = /^(\d{1,4})-[0-9A-Z]{14,}$/

/** A job id that names its shard. */
export function jobIdIn(shard: number): string {
  return `${shard}-${uniqueId()}`
}

/**
 * The shard that an id names, which may be a caller's own id that looks like a generated one; undefined for all others.
 */
export function shardNamedBy(jobId: string): number | undefined {
  const shard = GENERATED.exec(jobId)?.[1]
  return shard === undefined ? undefined : Number(shard)
}
