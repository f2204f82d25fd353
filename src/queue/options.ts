import type { Job, QueueListener, QueueOptions } from 'bullmq'
import type { JobCosts, JobTerms } from '../admission/job-options.ts'
import type { AdmissionEstimate } from '../admission/reply.ts'
import type { Refusal } from '../errors.ts'
import type { FunctionsOption } from '../redis/functions.ts'
import type { Shape } from '../shape/shape.ts'
import type { Attribution, ShapeConflict, StateLoss } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'

/** Options of a {@link ShapedQueue}: BullMQ's, and the shape. */
export interface ShapedQueueOptions extends QueueOptions {
  /** BullMQ's default job options, and a default `cost`, `costs`, `keys` and `tier`. */
  defaultJobOptions?: NonNullable<QueueOptions['defaultJobOptions']> & JobCosts & Pick<JobTerms, 'keys' | 'tier'>
  /** The shape that this program declares. Default: none, so the stored shape applies. */
  shape?: Shape
  /** An admission that takes longer fails with QueueUnavailableError. ms, default 5000. */
  admitTimeoutMs?: number
  /** The name under which operators see the declared shape. Default: host and process id. */
  declarer?: string
  /** Whether scripts run as Redis Functions: `auto` (default) or `never`. */
  functions?: FunctionsOption
}

/** Attribution, reason and duration of a change of the shape at run time. */
export interface ShapeChange {
  by: string
  reason: string
  /** ms until the declared value applies again. Default: until cleared. */
  ttlMs?: number
}

/** Which overrides end, and attribution and reason for the history. */
export interface Clearing<F extends string> extends Attribution {
  /** Default: all. */
  readonly fields?: readonly F[] | undefined
}

/** The result of {@link ShapedQueue.offer}. */
export type Offer<J> = ({ accepted: true; job: J } & AdmissionEstimate) | ({ accepted: false } & Refusal)

export interface ShapedQueueListener<J extends Job = Job> extends QueueListener<J> {
  /** A job added through this queue object was refused. */
  refused: (refusal: Refusal) => void
  /** The stored shape changed. */
  shape: (shape: EffectiveShape, before: EffectiveShape | undefined) => void
  /** Another live program declares a different value. */
  shapeConflict: (conflict: ShapeConflict) => void
  /** Redis lost state; this process restored it. */
  stateLoss: (loss: StateLoss) => void
}
