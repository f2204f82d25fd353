export {
  CostTooHighError,
  InvalidCostError,
  InvalidInputError,
  InvalidKeyError,
  InvalidLimitError,
  InvalidRateError,
  LimitConflictError,
  LimitExceededError,
  LimiterUnavailableError,
  SluiceError,
} from '../errors.ts'
export type { CombinedAnswer, LimitAnswer } from './answer.ts'
export { type CombinedKeys, type CombinedLimiter, type CombinedTakeOptions, combine } from './combine.ts'
export type { Algorithm, BucketAlgorithm, LimitRule, TierRule, WindowAlgorithm, WindowAlign } from './definition.ts'
export type { Lease } from './lease.ts'
export type { LimitRedis } from './limit-client.ts'
export type { LimitKey } from './limit-keys.ts'
export { createLimiter, type Limiter, type TakeOptions } from './limiter.ts'
export type { LimiterOptions, OnError, TierOf } from './limiter-options.ts'
export type { LocalLimiting, LocalOptions, MitigationOptions, SyncOptions } from './local-options.ts'
export type { WaitOptions } from './waiting.ts'
