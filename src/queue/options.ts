import type { Job, QueueListener, QueueOptions } from 'bullmq'
import type { JobCosts } from '../admission/job-options.ts'
import type { AdmissionEstimate } from '../admission/reply.ts'
import type { Refusal } from '../errors.ts'
import type { Shape } from '../shape/shape.ts'
import type { ShapeConflict, StateLoss } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'

/** Options of a {@link ShapedQueue}: BullMQ's, and the shape. */
export interface ShapedQueueOptions extends QueueOptions {
  /** BullMQ's, and default costs. */
  defaultJobOptions?: NonNullable<QueueOptions['defaultJobOptions']> & JobCosts
  /** The shape that this program declares for the queue. Without it the stored one is obeyed. */
  shape?: Shape
  /** How long an admission may take before it fails with QueueUnavailableError. ms, default 5000. */
  admitTimeoutMs?: number
  /** Who declares the shape, for people. Default: host and process id. */
  declarer?: string
}

/** Who changes a shape at run time, why, and for how long. */
export interface ShapeChange {
  by: string
  reason: string
  /** ms after which what was declared holds again. Default: until it is cleared. */
  ttlMs?: number
}

/** What {@link ShapedQueue.offer} answers. */
export type Offer<J> = ({ accepted: true; job: J } & AdmissionEstimate) | ({ accepted: false } & Refusal)

export interface ShapedQueueListener<J extends Job = Job> extends QueueListener<J> {
  /** A job was refused here. QueueEvents tells of all refusals, once a second. */
  refused: (refusal: Refusal) => void
  /** The stored shape changed. */
  shape: (shape: EffectiveShape, before: EffectiveShape | undefined) => void
  /** Another live program declares another value. */
  shapeConflict: (conflict: ShapeConflict) => void
  /** Redis had lost the shape; this process put it back. */
  stateLoss: (loss: StateLoss) => void
}
