import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { uniqueId } from '../redis/ids.ts'

/** What decides the shard of a job; undefined: any will do. */
export type PlaceBy = (job: {
  readonly name: string
  readonly data: unknown
  readonly opts: ShapedJobsOptions
}) => string | undefined

/** The shard of a key by rendezvous hashing (Thaler and Ravishankar 1998). */
export function shardOf(key: string, shards: number): number {
  const hashed = hash(key)
  let [best, most] = [0, -1]
  for (let shard = 0; shard < shards; shard++) {
    const score = mix(hashed ^ mix(shard + 1))
    if (score > most) [best, most] = [shard, score]
  }
  return best
}

/**
 * The key by which a job is placed: its group, since the limits of a group are kept by its shard; else its own id or
 * that of its deduplication, since only its shard knows whether it has that already.
 */
export function placeKey({ group, jobId, deduplication }: ShapedJobsOptions): string | undefined {
  if (group) return `group:${group.id}`
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

/** FNV-1a over UTF-16 units, 32 bits. */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193)
  return value >>> 0
}

/** Spreads 32 bits: the end of MurmurHash3. */
function mix(bits: number): number {
  let value = bits
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35)
  return (value ^ (value >>> 16)) >>> 0
}
