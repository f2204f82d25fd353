/**
 * The keys that Sluice writes, all under a suffix that BullMQ knows (`meta`), so that its clean-up of orphaned keys
 * leaves them alone. `base` is the queue's key prefix with its colon, `bull:emails:`. See docs/redis-keys.md.
 */
export function shapeKey(base: string): string {
  return `${base}meta:shape`
}

/** The channel on which changes of a shape are published. */
export function wakeChannel(base: string): string {
  return `${base}meta:wake`
}

/** A list of samples of the queue, one every `seconds`. See lua/reports/series.lua. */
export function seriesKey(base: string, seconds: number): string {
  return `${base}meta:series:${seconds}`
}

/** Written before replicas are asked whether they have the added jobs. */
export function replicatedKey(base: string): string {
  return `${base}meta:replicated`
}

/** The progress of a move to this sharded queue, in its first shard. */
export function moveKey(base: string): string {
  return `${base}meta:move`
}

/** The set of the names of all queues with this prefix that have a shape. */
export function shapedQueuesKey(base: string): string {
  return `${base.slice(0, -`${queueNameOf(base)}:`.length)}shaped-queues`
}

/** A hash of the sharded queues with this prefix: name → number of shards. Their own keys are in other hash slots. */
export function shardedQueuesKey(prefix: string): string {
  return `${prefix}:sharded-queues`
}

/** Published when a queue was obliterated: its shape must not be restored. */
export const OBLITERATED = 'obliterated'

/** The name of the queue, from its key prefix with the colon. */
export function queueNameOf(base: string): string {
  return base.split(':').at(-2) ?? ''
}
