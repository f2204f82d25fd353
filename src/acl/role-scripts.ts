/** Scripts by what they are for: `bullmq:` is BullMQ's own text, `limit:` one of sluice/limits, else ours or a composed one. */
const bullmq = (...names: string[]) => names.map((name) => `bullmq:${name}`)

/** Adds jobs, alone, in bulks and as flows, and keeps schedulers. */
export const ADD = [
  ...['addStandardJob', 'addPrioritizedJob', 'addDelayedJob', 'addParentJob', 'addJobScheduler'],
  ...['admit-bulk', 'admit-flow', 'claim-places', 'report'],
  ...bullmq('releaseParentIfNoPendingDependencies', 'getJobScheduler', 'removeJobScheduler', 'removeDeduplicationKey'),
]

/** Stores the shape that a program declares, and what a program remembers when Redis has lost it. */
export const DECLARE = ['declare-shape', 'restore-shape']

/** Answers how a queue and its jobs are. */
export const LOOK = [
  ...['read-meter', 'locate-job'],
  ...bullmq('getState', 'getStateV2', 'getCounts', 'getCountsPerPriority', 'isFinished', 'isMaxed', 'isJobInList'),
  ...bullmq('getRateLimitTtl', 'getRanges', 'getJobs', 'getMetrics', 'getDependencyCounts', 'paginate'),
]

/** Takes a job back that has not started. */
export const TAKE_BACK = ['remove-waiting']

/** Binds ids of jobs to who brought them. */
export const BIND = ['caller-secret']

/** Starts and ends jobs, and all that happens between. */
export const RUN = [
  ...['moveToActive', 'moveToFinished', 'moveToDelayed', 'finish-batch', 'dead-letter', 'give-back', 'settle-cost'],
  ...[
    'apply-feedback',
    'pause-meter',
    'report',
    'shed',
    'extendLock',
    'extendLocks',
    'moveStalledJobsToWait',
    'retryJob',
    'changeDelay',
    'updateJobScheduler',
  ],
  ...bullmq('moveToWaitingChildren', 'moveJobFromActiveToWait'),
  ...bullmq('releaseLock', 'saveStacktrace', 'updateData', 'updateProgress', 'addLog'),
  ...bullmq('getRateLimitTtl', 'isMaxed', 'getDependencyCounts', 'paginate'),
  ...bullmq('removeChildDependency', 'removeUnprocessedChildren', 'moveToFinished', 'moveToDelayed', 'moveToActive'),
]

/** Changes shapes, and does to jobs what people do by hand. */
export const MANAGE = [
  ...['override-shape', 'note-history', 'redrive', 'drain-part'],
  ...bullmq('pause', 'promote', 'reprocessJob', 'moveJobsToWait', 'changePriority', 'removeJob', 'drain'),
  ...bullmq('cleanJobsInSet', 'obliterate', 'removeOrphanedJobs'),
]

/** Decides by limits of sluice/limits. */
export const LIMIT = [
  ...['decide', 'define-limit', 'set-limit-mode', 'settle-limit', 'block-key', 'reset-key', 'reserve'],
  ...['cancel-reservation', 'extend-lease', 'release-lease'],
].map((name) => `limit:${name}`)
