export type { AddedOnce } from './add-once.ts'
export type { AdmissionEstimate } from './admission-reply.ts'
export type { JobVerdict } from './attempts.ts'
export { ShapedBackend } from './backend.ts'
export { createShapedBackend } from './backend-factory.ts'
export type { DeadLetter } from './dead-letters.ts'
export {
  CannotStartInTimeError,
  ClusterPrefixError,
  CostTooHighError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidLimitError,
  InvalidRateError,
  InvalidShapeError,
  type LateStart,
  LimitConflictError,
  NoShapeError,
  PauseQueueError,
  QueueFullError,
  QueueUnavailableError,
  type Refusal,
  SluiceError,
  TooLargeError,
  UncertainClockError,
  UnsupportedOptionError,
  UnsupportedVersionError,
  WaitTimeoutError,
} from './errors.ts'
export type { AdaptOptions, FeedbackOptions } from './feedback/feedback-options.ts'
export type { FeedbackChange } from './feedback/feedback-request.ts'
export type { AnswerTime, CallOutcome, FeedbackSource, Found } from './feedback/feedback-source.ts'
export type { FeedbackInput } from './feedback/job-feedback.ts'
export { type ShapedFlowJob, ShapedFlowProducer, type ShapedFlowProducerOptions } from './flow-producer.ts'
export type { OnceOptions } from './idempotency-key.ts'
export type { ShapedJobsOptions } from './job-options.ts'
export type { QueueLimit } from './limits/queue-limits.ts'
export type { FeedbackState, MeterState, RateCause } from './meter-state.ts'
export { ShapedQueue } from './queue.ts'
export type { Offer, ShapeChange, ShapedQueueListener, ShapedQueueOptions } from './queue-options.ts'
export { formatRate, intervalUs, parseRate, type Rate, type RateInput } from './rate.ts'
export type { RedriveOptions, RedriveResult } from './redrive.ts'
export type { ReservedPlaces } from './reserved-places.ts'
export type { Overflow, Shape, ShapeField, ShapeOverride, ShapeValue } from './shape.ts'
export type { ShapeMode } from './shape-mode.ts'
export type { Attribution, ShapeConflict, StateLoss } from './shape-store.ts'
export { ShapedJob } from './shaped-job.ts'
export { type Sizing, type SizingInput, sizeShape } from './sizing.ts'
export type { DeclaredEntry, EffectiveShape, OverrideEntry } from './stored-shape.ts'
export { ShapedWorker } from './worker.ts'
export type { Departure, ShapedProcessor, ShapedWorkerListener, ShapedWorkerOptions } from './worker-options.ts'
