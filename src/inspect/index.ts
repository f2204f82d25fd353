export { ReadTimeoutError } from '../errors.ts'
export type { GroupHolder } from './group-holders.ts'
export type {
  GroupCounts,
  GroupDetail,
  GroupRow,
  GroupsView,
} from './groups.ts'
export type { HistoryOptions } from './history.ts'
export { Inspector, type InspectorConnection, type InspectorOptions } from './inspector.ts'
export type { JobDetail, JobDetailOptions } from './job-detail.ts'
export type { FailedMatches, FailedReason, FailedReasons, JobRow, JobState, JobsOptions } from './jobs.ts'
export type {
  LimitSettings,
  LimitUse,
  LimitValueDetail,
  LimitValueRow,
  LimitValuesView,
} from './limit-values.ts'
export type {
  AuditEntry,
  Bypass,
  Condition,
  ConditionName,
  EndCounts,
  Explanation,
  Failing,
  HeldMs,
  HistoryEntry,
  Hold,
  HoldCause,
  LanePlace,
  QueueClient,
  QueueStatus,
  ReasonCount,
  Sample,
  ShardStatus,
  StartTotals,
  WorkerStatus,
} from './queue-status.ts'
export type { RedisMemory, RedisReplica, RedisState } from './redis-state.ts'
export type { Resolution, SeriesOptions } from './series.ts'
