import type { Shape } from '../shape/shape.ts'

export { type ExpectPacedOptions, expectPaced } from './expect-paced.ts'
export { type BucketFields, ReferenceBucket, type ReferenceGrant } from './reference-bucket.ts'
export { type Start, type Window, worstWindow } from './worst-window.ts'

/** Options that switch the pacing of one queue off. */
export interface UnshapedOptions {
  shape: Omit<Shape, 'mode' | 'durability'> & { readonly mode: 'off' }
  allowUnshaped: true
}

/**
 * Options for tests of your own code, in which pacing would only cost time: nothing is refused and nothing waits for a
 * slot. Give it the shape of the code under test: what jobs may name stays (groups, units of limits), and only the
 * `mode` becomes `off`; `durability` is left out, since the Redis of a test has no replicas. For the queue and for its
 * worker:
 *
 * ```ts
 * const queue = new ShapedQueue('emails', { connection, ...unshaped(shape) })
 * const worker = new ShapedWorker('emails', send, { connection, ...unshaped(shape) })
 * ```
 * The mode applies to all users of the queue in that Redis: use a prefix of the test's own, never the Redis of a running
 * system.
 */
export function unshaped(shape: Shape = {}): UnshapedOptions {
  const { durability: _, ...kept } = shape
  return { shape: { ...kept, mode: 'off' }, allowUnshaped: true }
}
