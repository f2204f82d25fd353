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

/** What is published when a queue was obliterated: nobody is to put its shape back. */
export const OBLITERATED = 'obliterated'

/** Matches every key of Sluice in a queue. */
export function ownKeysPattern(base: string): string {
  return `${base.replace(/[*?[\]\\]/g, '\\$&')}meta:*`
}

/** The queue's key prefix, out of the `…:meta` key that scripts of BullMQ are called with. */
export function baseOfMetaKey(metaKey: string): string {
  return metaKey.slice(0, -'meta'.length)
}

/** The name of the queue, out of its key prefix with the colon. */
export function queueNameOf(base: string): string {
  return base.split(':').at(-2) ?? ''
}
