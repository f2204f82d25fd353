// testing/: the bucket reimplemented in plain TypeScript, and what users' tests check departures with. It must not know
// Redis or BullMQ.

import type { Shape } from '../shape/shape.ts'

export { type ExpectPacedOptions, expectPaced } from './expect-paced.ts'
export { type BucketFields, ReferenceBucket, type ReferenceGrant } from './reference-bucket.ts'
export { type Start, type Window, worstWindow } from './worst-window.ts'

/** Options that switch Sluice off for one queue. */
export interface UnshapedOptions {
  shape: Pick<Shape, 'mode'>
  allowUnshaped: true
}

/**
 * Options for tests of your own code, in which pacing would only cost time: nothing is refused and nothing waits for a
 * slot, whatever shape the rest of the code declares. Pass them last, to the queue and to the worker:
 *
 * ```ts
 * const queue = new ShapedQueue('emails', { ...options, ...unshaped() })
 * const worker = new ShapedWorker('emails', send, { ...options, ...unshaped() })
 * ```
 * They declare the mode `off`, which applies to all users of the queue in that Redis: use a separate prefix for the
 * test, never the Redis of a running system.
 */
export function unshaped(): UnshapedOptions {
  return { shape: { mode: 'off' }, allowUnshaped: true }
}
