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
  /** BullMQ's, and a default `cost`, `costs`, `keys` and `tier`. */
  defaultJobOptions?: NonNullable<QueueOptions['defaultJobOptions']> & JobCosts & Pick<JobTerms, 'keys' | 'tier'>
  /** The shape that this program declares for the queue. Without it the stored shape applies. */
  shape?: Shape
  /** How long an admission may take before it fails with QueueUnavailableError. ms, default 5000. */
  admitTimeoutMs?: number
  /** Name under which the shape is declared, for operators. Default: host and process id. */
  declarer?: string
  /**
   * How scripts reach Redis: as functions of a library that the first program loads ('auto'; as texts where Redis has no
   * functions or does not let this user load them), or always as texts ('never'). Default 'auto'. A connection that several
   * objects share uses texts if one of them says 'never'.
   */
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

/** What {@link ShapedQueue.offer} returns. */
export type Offer<J> = ({ accepted: true; job: J } & AdmissionEstimate) | ({ accepted: false } & Refusal)

export interface ShapedQueueListener<J extends Job = Job> extends QueueListener<J> {
  /** A job added by this queue object was refused. QueueEvents reports refusals of the whole fleet, once a second. */
  refused: (refusal: Refusal) => void
  /** The stored shape changed. */
  shape: (shape: EffectiveShape, before: EffectiveShape | undefined) => void
  /** Another live program declares a different value. */
  shapeConflict: (conflict: ShapeConflict) => void
  /** Redis was restarted, failed over or flushed; this process restored what was lost. */
  stateLoss: (loss: StateLoss) => void
}
