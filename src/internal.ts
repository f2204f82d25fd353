// Exports for our own packages. Nothing here loads BullMQ, and none of it is public: it may change in any release.

export { ESTIMATE, POSITION } from './admission/add-call.ts'
export { ONCE_JOBS } from './admission/bulk-parts.ts'
export { onceJobId, STEM } from './admission/idempotency-key.ts'
export { checkCosts, checkJobOptions, checkKeys, checkTierName, MAX_COST, NO_KEYS } from './admission/job-options.ts'
export type { Gap } from './audit/audit.ts'
export { type Audit, audit, changesUs, type GroupsAudit } from './audit/audit.ts'
export { type AuditedWindow, TOLERANCE_US } from './audit/bucket-window.ts'
export type { LimitAudit } from './audit/limit-audit.ts'
export { checkDeadLetterQueue, readDeadLetter } from './backend/dead-letters.ts'
export { checkArgument, checkCallOptions, gotText } from './call-options.ts'
export { HOLD_CAUSES, mapCauses } from './departure/departure.ts'
export { effectId } from './effect-id.ts'
export { throttled } from './egress/dialects/http.ts'
export { waitOfQuotas } from './egress/dialects/quota-feedback.ts'
export { type HttpSignals, readHttpSignals } from './egress/signals/http-signals.ts'
export type { QuotaSignal } from './egress/signals/quota-signal.ts'
export {
  CannotStartInTimeError,
  CostTooHighError,
  GroupFullError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidGroupError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidKeyError,
  InvalidShapeError,
  isRefusal,
  KeyInUseError,
  LimitExceededError,
  LimiterUnavailableError,
  NoGroupsError,
  NotReplicatedError,
  QueueFullError,
  QueueUnavailableError,
  ReadTimeoutError,
  ScheduleClosedError,
  SluiceError,
  TooLargeError,
  TooManyKeysError,
  UnsupportedOptionError,
  UnsupportedVersionError,
  WaitTimeoutError,
} from './errors.ts'
export { MAX_PAUSE_MS, oneLine } from './feedback/feedback.ts'
export { checkFields, type FieldCheck, numberFrom, wholeFrom } from './field-check.ts'
export { urgencyOf } from './inspect/conditions.ts'
export { compareFillLevels } from './inspect/fill-level.ts'
export { keysText } from './inspect/keys-text.ts'
export { HIGH_MEMORY, type InfoFields, infoFields, readRedisState, shareOf } from './inspect/redis-state.ts'
export { compareIds } from './inspect/stream.ts'
export { addedCounts } from './inspect/whole.ts'
export type { Limit } from './limits/limit.ts'
export { encodeKey, LIMIT_NAME, ONE_FOR_ALL } from './limits/limit-keys.ts'
export { LIMIT_VALUES } from './limits/own-values.ts'
export { costUnder, isSubject, mostUnder, onFirstDay } from './limits/queue-limits.ts'
export { encodeRate } from './limits/schedule.ts'
export type { Block, StoredLimit } from './limits/stored-limits.ts'
export { type ListeningServer, listenAt } from './listening-server.ts'
export { MAX_TIMER_MS } from './max-timer.ts'
export { bytesText, countText, formatDuration, plainJson, plainText } from './plain-text.ts'
export { PlaceLine } from './queue/add-when-free.ts'
export { CANCELLED } from './queue/cancel.ts'
export { dropDeadLetter, dropDeadLetters, findDeadLetter } from './queue/dead-letters.ts'
export { changeFailed, changeMatching, type FailedChange, type Unchanged } from './queue/failed-jobs.ts'
export type { GroupCounts } from './queue/groups.ts'
export { concurrencyText } from './queue/meter-state.ts'
export { AdmitTimeout } from './queue/unavailable.ts'
export { gridIntervalUs, intervalUs, parseRate, unitsPerSecond } from './rate.ts'
export { untilKnown } from './redis/commands.ts'
export { orLate, withinMs } from './redis/deadlines.ts'
export { failureKind, isDenied, isPassing } from './redis/failures.ts'
export { type Library, obstacleOf } from './redis/functions.ts'
export { shapeKey, shardedQueuesKey } from './redis/keys.ts'
export {
  deleteLibrary,
  functionsBytes,
  isForged,
  isLibraryName,
  type LoadedLibrary,
  loadedLibraries,
  loadLibrary,
  mastersOf,
} from './redis/libraries.ts'
export { commandsOfRole, lackedRights, neededCommands, ROLES } from './redis/rights.ts'
export type { Role } from './redis/role-commands.ts'
export type { ScriptSet } from './redis/scripts.ts'
export { groupKey, shardOf, shardPrefix } from './redis/shards.ts'
export { TESTED_BULLMQ } from './redis/tested-bullmq.ts'
export { unusableText } from './redis/unusable.ts'
export { LoopLoad, type LoopUse } from './reports/loop-load.ts'
export { clientText, unreportedClients } from './reports/queue-clients.ts'
export { createSecretMask } from './secret-mask.ts'
export { decodeDurability, encodeDurability } from './shape/durability.ts'
export { checkGroupField, checkGroupId, encodeGroupOverride, GROUP_FIELDS } from './shape/groups.ts'
export { ServiceCurve } from './shape/service-curve.ts'
export {
  decodeField,
  encodeOverride,
  encodeShape,
  formatValue,
  SETTABLE_FIELDS,
  type StoredValue,
} from './shape/shape.ts'
export { sizeShape } from './shape/sizing.ts'
export type { StoredShape } from './shape/stored.ts'
export { VERSION } from './version.ts'
