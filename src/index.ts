export type { OnceOptions } from './admission/idempotency-key.ts'
export type { JobGroup, ShapedJobsOptions } from './admission/job-options.ts'
export type { AdmissionEstimate } from './admission/reply.ts'
export type { DeadLetter } from './backend/dead-letters.ts'
export { createShapedBackend } from './backend/factory.ts'
export type { Departure } from './departure/departure.ts'
export {
  CannotStartInTimeError,
  CloseTimeoutError,
  ClusterPrefixError,
  CostTooHighError,
  GroupFullError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidGroupError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidLimitError,
  InvalidRateError,
  InvalidShapeError,
  KeyInUseError,
  type LateStart,
  LimitConflictError,
  MissingKeyError,
  MoveError,
  type MoveStop,
  NoGroupsError,
  NoShapeError,
  NotReplicatedError,
  PauseQueueError,
  QueueFullError,
  QueueUnavailableError,
  type Refusal,
  RunTimeoutError,
  ScheduleClosedError,
  ShardCountError,
  ShardsUnavailableError,
  SluiceError,
  TooLargeError,
  TooManyKeysError,
  UncertainClockError,
  type Unreplicated,
  UnsupportedOptionError,
  UnsupportedVersionError,
  WaitTimeoutError,
} from './errors.ts'
export type { FeedbackInput } from './feedback/job-feedback.ts'
export type { AdaptOptions, FeedbackOptions, FeedbackScope } from './feedback/options.ts'
export type { FeedbackChange } from './feedback/request.ts'
export type { AnswerTime, CallOutcome, FeedbackSource, Found } from './feedback/source.ts'
export type { LimitHolds, LimitOverride, LimitValues } from './limits/own-values.ts'
export type { QueueLimit } from './limits/queue-limits.ts'
export { type SafeShape, safeShape, type TokenBucketProvider, type WindowProvider } from './limits/safe-shape.ts'
export type { RateSchedule, ScheduledRate } from './limits/schedule.ts'
export type { WarmUp, WarmUpDay } from './limits/warm-up.ts'
export type { ShapeMode } from './mode.ts'
export type { AddedOnce } from './queue/add-once.ts'
export type { CancelCounts, CancelFilter, CancelManyOptions, CancelOptions, CancelOutcome } from './queue/cancel.ts'
export { type ShapedFlowJob, ShapedFlowProducer, type ShapedFlowProducerOptions } from './queue/flow-producer.ts'
export type { GroupBound, GroupState, GroupStatus } from './queue/groups.ts'
export type { LimitState, LimitValueKey } from './queue/limits.ts'
export type { FeedbackState, MeterState, RateCause } from './queue/meter-state.ts'
export type { Clearing, Offer, ShapeChange, ShapedQueueListener, ShapedQueueOptions } from './queue/options.ts'
export { ShapedQueue } from './queue/queue.ts'
export { ShapedQueueEvents, type ShapedQueueEventsListener } from './queue/queue-events.ts'
export type { RedriveOptions, RedriveResult } from './queue/redrive.ts'
export { formatRate, intervalUs, parseRate, type Rate, type RateInput } from './rate.ts'
export type { Durability } from './shape/durability.ts'
export type { GroupDefaults, GroupFields, GroupOverride, GroupShare } from './shape/groups.ts'
export type { ReservedPlaces } from './shape/reserved-places.ts'
export type { Overflow, RampUp, Shape, ShapeField, ShapeOverride, ShapeValue } from './shape/shape.ts'
export { type Sizing, type SizingInput, sizeShape } from './shape/sizing.ts'
export type { Attribution, ShapeConflict, StateLoss } from './shape/store.ts'
export type { DeclaredEntry, EffectiveShape, OverrideEntry } from './shape/stored.ts'
export type { BatchOptions } from './worker/batch-options.ts'
export type { JobVerdict, ShapedProcessor, ShapedWorkerListener, ShapedWorkerOptions } from './worker/options.ts'
export { ShapedJob } from './worker/shaped-job.ts'
export { ShapedWorker } from './worker/worker.ts'
