export { expectPaced } from './expect-paced.ts'
export { type BucketFields, ReferenceBucket, type ReferenceGrant } from './reference-bucket.ts'
export { type UnshapedOptions, unshaped } from './unshaped.ts'
export { type Start, type Window, worstWindow } from './worst-window.ts'
