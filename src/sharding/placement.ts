import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { uniqueId } from '../redis/ids.ts'
import { groupKey } from '../redis/shards.ts'

/** What decides the shard of a job; undefined: any will do. */
export type PlaceBy = (job: {
  readonly name: string
  readonly data: unknown
  readonly opts: ShapedJobsOptions
}) => string | undefined

/**
 * The key by which a job is placed: its group, since the limits of a group are kept by its shard; else its own id or
 * that of its deduplication, since only its shard knows whether it has that already.
 */
export function placeKey({ group, jobId, deduplication }: ShapedJobsOptions): string | undefined {
  if (group) return groupKey(group.id)
  return jobId === undefined ? deduplication?.id : jobId
}

const GENERATED = /^(\d{1,4})-[0-9A-Z]{14,}$/

/** A job id that names its shard. */
export function jobIdIn(shard: number): string {
  return `${shard}-${uniqueId()}`
}

/** The shard that an id names; undefined for an id of the caller's own. */
export function shardNamedBy(jobId: string): number | undefined {
  const shard = GENERATED.exec(jobId)?.[1]
  return shard === undefined ? undefined : Number(shard)
}
