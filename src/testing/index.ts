// testing/: the bucket again, in plain TypeScript, and what users' tests compare departures with. It must not know
// Redis or BullMQ.

export type { BucketState, Ticks } from './bucket-state.ts'
export { expectPaced } from './expect-paced.ts'
export { type BucketFields, ReferenceBucket, type ReferenceGrant } from './reference-bucket.ts'
export { type UnshapedOptions, unshaped } from './unshaped.ts'
export { type Start, type Window, worstWindow } from './worst-window.ts'
