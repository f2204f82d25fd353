/** Scripts by purpose: `bullmq:` is BullMQ's own text, others are ours or composed. */
const bullmq = (...names: string[]) => names.map((name) => `bullmq:${name}`)

/** Adds jobs, singly, in bulk and as flows, and maintains schedulers. */
export const ADD = [
  ...['add', 'add-bulk', 'add-flow', 'claim-places', 'find-new', 'report', 'removeJobScheduler', 'charge-limit'],
  ...bullmq('releaseParentIfNoPendingDependencies', 'getJobScheduler', 'removeJobScheduler', 'removeDeduplicationKey'),
]

/**
 * Stores the shape that a program declares, and restores what a program remembers after Redis has lost it; divides a
 * sharded queue among its shards.
 */
export const DECLARE = ['declare-shape', 'restore-shape', 'apply-lease', 'grant-leases', 'claim-shards']

/** Reports the state of a queue and its jobs. */
export const LOOK = [
  'view',
  ...bullmq('getState', 'getStateV2', 'getCounts', 'getCountsPerPriority', 'isFinished', 'isMaxed', 'isJobInList'),
  ...bullmq('getRateLimitTtl', 'getRanges', 'getJobs', 'getMetrics', 'getDependencyCounts', 'paginate'),
]

/** Cancels a job. */
export const CANCEL = ['cancel-job']

/** Binds ids of jobs to the caller that added them. */
export const BIND = ['caller-secret']

/** Starts and ends jobs, and does all that happens in between. */
export const RUN = [
  ...['exchange', 'dead-letter', 'give-back', 'settle-cost'],
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
    'moveToWaitingChildren',
    'moveJobFromActiveToWait',
    'removeUnprocessedChildren',
    'removeChildDependency',
    'set-group',
  ],
  ...bullmq('moveToWaitingChildren', 'moveJobFromActiveToWait'),
  ...bullmq('releaseLock', 'saveStacktrace', 'updateData', 'updateProgress', 'addLog'),
  ...bullmq('getRateLimitTtl', 'isMaxed', 'getDependencyCounts', 'paginate'),
  ...bullmq('removeChildDependency', 'removeUnprocessedChildren', 'moveToFinished', 'moveToDelayed', 'moveToActive'),
]

/** Changes shapes, and does the manual operations on jobs. */
export const MANAGE = [
  ...['override-shape', 'set-group', 'set-limit', 'note-history', 'redrive', 'drain-part'],
  ...['cancel-job', 'cancel-part'],
  ...['retry-failed', 'remove-failed', 'dead-letter-failed'],
  ...['promote', 'reprocessJob', 'moveJobsToWait', 'removeJob', 'cleanJobsInSet', 'changePriority', 'obliterate'],
  'removeOrphanedJobs',
  ...bullmq('pause', 'promote', 'reprocessJob', 'moveJobsToWait', 'changePriority', 'removeJob', 'drain'),
  ...bullmq('cleanJobsInSet', 'obliterate', 'removeOrphanedJobs'),
]

/** Decides by limits of sluice/limits. */
export const LIMIT = [
  ...['decide', 'define-limit', 'set-limit-mode', 'settle-limit', 'block-key', 'reset-key', 'reserve'],
  ...['cancel-reservation', 'extend-lease', 'release-lease'],
]
