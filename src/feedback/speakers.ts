import type { Feedback } from '../egress/feedback.ts'

/** Jobs whose processors run here, and where what they say goes. */
export const speakers = new WeakMap<object, (feedback: Feedback) => Promise<void>>()
