import { countText } from './plain-text.ts'

/** Base class of every error that Sluice throws; `name` is the class's name, also across copies of the package. */
export class SluiceError extends Error {
  override name = this.constructor.name
  /**
   * If a bulk that was sent in parts failed in the middle: for each of its jobs, in their order, the id if it was
   * added, undefined if it was not, null if unknown.
   */
  declare readonly addedIds?: readonly (string | null | undefined)[]
}

/** Input that can never work: a caller's mistake. Nothing was changed. */
export class InvalidInputError extends SluiceError {}

/** Thrown for a rate in none of the forms of {@link parseRate}. */
export class InvalidRateError extends InvalidInputError {}

/** Thrown if a field of a shape has a wrong type or value; names the field, the expected value and the given one. */
export class InvalidShapeError extends InvalidInputError {}

/** Thrown for a job id that is one of BullMQ's own key names, or contains a colon. */
export class InvalidJobIdError extends InvalidInputError {}

/** Thrown for a `cost` that is not a positive number. */
export class InvalidCostError extends InvalidInputError {}

/** Thrown for a `mustStartBefore` that is not a time, is in the past, or is before the end of the job's delay. */
export class InvalidDeadlineError extends InvalidInputError {}

/**
 * Thrown for a job's `group` that is not `{ id, priority }`, or is combined with an option that it replaces, and for
 * wrong `keys` of a job.
 */
export class InvalidGroupError extends InvalidInputError {}

/** Thrown for a job of a group, or a call about one, if the shape of its queue has no `groups`. */
export class NoGroupsError extends InvalidGroupError {
  constructor(readonly queueName: string) {
    super(`queue "${queueName}" has no groups; declare shape.groups first, e.g. groups: {}`)
  }
}

/** Thrown by a process whose `shards` differs from the queue's number of shards. Nothing was changed. */
export class ShardCountError extends InvalidInputError {
  constructor(
    readonly queueName: string,
    /** The number of shards that the queue has. */
    readonly expected: number,
    /** The number that this process declares. */
    readonly given: number,
  ) {
    super(`queue "${queueName}" has ${countText(expected, 'shard')}: shards must be ${expected}; got ${given}`)
  }
}

/** Thrown for an option of BullMQ that a shape replaces; names the replacement. */
export class UnsupportedOptionError extends InvalidInputError {}

/** Thrown if a cost exceeds the size of a bucket: the burst of a queue, group or limit, the limit of a window. */
export class CostTooHighError extends InvalidInputError {
  /**
   * @param shards of a queue, each of which has that burst
   * @param instead what else than a higher burst would admit it
   */
  constructor(
    readonly cost: number,
    /** Size of the bucket. */
    readonly burst: number,
    /** The limit that cannot be met; undefined for the rate of a queue. */
    readonly limitName: string | undefined = undefined,
    /** The group with that burst; undefined for the burst of the queue or of a limit. */
    readonly groupId: string | undefined = undefined,
    shards = 1,
    instead = '',
  ) {
    super((shards > 1 ? shardCostText(cost, burst, shards) : costText(cost, burst, limitName, groupId)) + instead)
  }
}

function shardCostText(cost: number, burst: number, shards: number): string {
  const needed = Math.ceil(cost) * shards
  return `cost ${cost} exceeds burst ${burst}, the part of each of ${shards} shards: declare a burst of at least ${needed}`
}

function costText(cost: number, burst: number, limitName?: string, groupId?: string): string {
  if (limitName !== undefined) {
    return `cost ${cost} exceeds what limit "${limitName}" allows at once, ${burst}: raise it to at least ${cost}`
  }
  if (groupId === undefined) return `cost ${cost} exceeds burst ${burst}: set burst to at least ${cost}`
  return `cost ${cost} exceeds burst ${burst} of group "${groupId}": set the burst of groups, or of this one, to at least ${cost}`
}

/** Thrown for a job that lacks a key that a limit with `missing: 'refuse'` counts. Nothing was added. */
export class MissingKeyError extends InvalidGroupError {
  constructor(
    readonly limitName: string,
    /** A name in the job's `keys`, or `group`. */
    readonly key: string,
  ) {
    const what = key === 'group' ? 'a group' : `keys.${key}`
    super(`limit "${limitName}" counts by ${key}, and takes no job without it: give the job ${what}`)
  }
}

/**
 * Thrown for a job with new values if a limit of its queue has its maximum number of values in use (`maxKeys`). Nothing
 * was added.
 */
export class TooManyKeysError extends SluiceError {
  constructor(
    readonly queueName: string,
    readonly limitName: string,
    /** The job's keys that the limit counts, including `group` if it does. */
    readonly keys: Readonly<Record<string, string>>,
    readonly maxKeys: number,
  ) {
    super(
      `limit "${limitName}" of queue "${queueName}" has its ${maxKeys} keys in use, and takes no job of another ` +
        `(${JSON.stringify(keys)}): try again once one of them is idle, or raise maxKeys`,
    )
  }
}

/**
 * Thrown for a job under a limit that takes one at a time (`onConflict`), if another one with the same values has not
 * ended, or is added by the same call. Nothing was added.
 */
export class KeyInUseError extends SluiceError {
  constructor(
    readonly queueName: string,
    readonly limitName: string,
    /** The job's keys that the limit counts, including `group` if it does. */
    readonly keys: Readonly<Record<string, string>>,
    /** The unended job; undefined if it belongs to the same call. */
    readonly jobId: string | undefined = undefined,
  ) {
    const why = jobId === undefined ? 'this call has several' : `job ${jobId} has not ended`
    super(`limit "${limitName}" of queue "${queueName}" takes one job of ${JSON.stringify(keys)} at a time: ${why}`)
  }
}

/** Thrown if more jobs are added at once than the queue can ever hold. */
export class TooLargeError extends InvalidInputError {
  /** The group with that capacity; undefined if it is the queue's. */
  readonly groupId: string | undefined

  /** @param what the holder of that capacity, if it is not the queue */
  constructor(
    readonly queueName: string,
    readonly jobs: number,
    readonly capacity: number,
    what: { readonly method?: string; readonly groupId?: string } = {},
  ) {
    const { method, groupId } = what
    const part = groupId === undefined ? method && `one ${method}` : `group "${groupId}"`
    const into = part ? `${part} of queue "${queueName}"` : `queue "${queueName}"`
    super(`${jobs} jobs at once do not fit into ${into}, which holds ${capacity}: add them in smaller parts`)
    this.groupId = groupId
  }
}

/** Thrown by `addOnce` if its key was used for another request: one with another fingerprint. Nothing was stored. */
export class IdempotencyConflictError extends InvalidInputError {
  constructor(readonly queueName: string) {
    super(`the idempotency key was used for another request to queue "${queueName}": use a new key for each request`)
  }
}

/** Thrown by `addOnce` while an earlier call with its key is in flight. */
export class IdempotencyInFlightError extends SluiceError {
  constructor(
    readonly queueName: string,
    /** When to retry, whole ms, at least 1. */
    readonly retryAfterMs: number,
  ) {
    super(`another call with this idempotency key is in flight on queue "${queueName}"; retry in ${retryAfterMs} ms`)
  }
}

/** Details of a refusal. */
export interface Refusal {
  /** When to retry, whole ms, at least 1. */
  readonly retryAfterMs: number
  /** Jobs that hold a place now. */
  readonly depth: number
  /**
   * The places that jobs like this one may take: fewer than the queue's if some are reserved for others. Undefined if
   * the queue is unbounded; the job was then refused because it could not start in time.
   */
  readonly capacity: number | undefined
  /** Whether the queue is paused, by BullMQ or by the meter. */
  readonly paused: boolean
  /** When it would have started, if it was refused for that. An estimate. */
  readonly startsAt?: Date
  /** When the schedule opens, if it was refused while that is closed (`onClosed`). */
  readonly opensAt?: Date
}

/** Thrown if a queue has no place left. Nothing was added. */
export class QueueFullError extends SluiceError implements Refusal {
  readonly retryAfterMs: number
  readonly depth: number
  readonly capacity: number
  readonly paused: boolean
  /**
   * Places that the call needs, all at once: 1 for one job; for a bulk or a flow, its new jobs that the queue must
   * hold.
   */
  readonly needed: number

  /** @param what is full, if it is not the whole queue */
  constructor(
    readonly queueName: string,
    refusal: Refusal & { readonly capacity: number; readonly needed?: number },
    what = `queue "${queueName}"`,
  ) {
    const { depth, capacity, retryAfterMs, needed = 1 } = refusal
    const places = needed > 1 ? `${depth} of ${capacity}, ${needed} needed` : `${depth} of ${capacity}`
    super(`${what} is full (${places}): try again in ${retryAfterMs} ms`)
    this.retryAfterMs = retryAfterMs
    this.depth = depth
    this.capacity = capacity
    this.paused = refusal.paused
    this.needed = needed
  }
}

/**
 * Thrown if a group has no place left, although its queue may have some. `depth`: places that the group holds;
 * `capacity`: places that it may hold now, which depends on other groups with `groups.share`. Nothing was added.
 */
export class GroupFullError extends QueueFullError {
  constructor(
    queueName: string,
    readonly groupId: string,
    refusal: Refusal & { readonly capacity: number; readonly needed: number },
  ) {
    super(queueName, refusal, `group "${groupId}" of queue "${queueName}"`)
  }
}

/** Details of a {@link CannotStartInTimeError}, apart from the queue's name. */
export interface LateStart extends Refusal {
  readonly startsAt: Date
  readonly maxWaitMs?: number | undefined
  readonly mustStartBefore?: Date | undefined
}

/** Thrown if a job could not start in time, by the estimate of the drain schedule. Nothing was added. */
export class CannotStartInTimeError extends SluiceError implements LateStart {
  /** When it would start. */
  readonly startsAt: Date
  /**
   * When to retry: by then, enough jobs have departed for a job like this, allowed the same wait, to start in time.
   * Whole ms, at least 1.
   */
  readonly retryAfterMs: number
  /** The queue's `shape.maxWaitMs`, if that bound is not met. */
  readonly maxWaitMs: number | undefined
  /** The job's own deadline, if that bound is not met. */
  readonly mustStartBefore: Date | undefined
  readonly depth: number
  readonly capacity: number | undefined
  readonly paused: boolean

  /** @param message replaces the message about its bound */
  constructor(
    readonly queueName: string,
    late: LateStart,
    message?: string,
  ) {
    const { startsAt, retryAfterMs, maxWaitMs, mustStartBefore } = late
    const bound = mustStartBefore ? `its deadline is ${mustStartBefore.toISOString()}` : `jobs may wait ${maxWaitMs} ms`
    super(message ?? `a job for queue "${queueName}" would start at ${startsAt.toISOString()}, but ${bound}`)
    this.startsAt = startsAt
    this.retryAfterMs = retryAfterMs
    this.maxWaitMs = maxWaitMs
    this.mustStartBefore = mustStartBefore
    this.depth = late.depth
    this.capacity = late.capacity
    this.paused = late.paused
  }
}

/**
 * Thrown with `onClosed: 'refuse'` while the schedule of the queue's rate, of the group's or of one of the job's limits
 * lets nothing depart. Nothing was added.
 */
export class ScheduleClosedError extends CannotStartInTimeError {
  /** When it lets jobs depart again. */
  readonly opensAt: Date

  constructor(
    queueName: string,
    refusal: LateStart,
    /** The group whose schedule is closed, if any. */
    readonly groupId: string | undefined = undefined,
    /** The limit whose schedule is closed, if any. */
    readonly limitName: string | undefined = undefined,
  ) {
    const { startsAt, retryAfterMs } = refusal
    const ofLimit = limitName === undefined ? '' : `limit "${limitName}" of `
    const what = `${groupId === undefined ? ofLimit : `group "${groupId}" of `}queue "${queueName}"`
    super(queueName, refusal, `${what} is closed until ${startsAt.toISOString()}: try again in ${retryAfterMs} ms`)
    this.opensAt = startsAt
  }
}

/** Thrown if Redis does not answer, or answers that it cannot serve now. */
export class QueueUnavailableError extends SluiceError {
  constructor(
    readonly queueName: string,
    reason: string,
    /** Whether the job may be stored nevertheless: it was sent, but no reply came. */
    readonly mayBeStored: boolean,
    options?: ErrorOptions,
  ) {
    const stored = mayBeStored ? 'the job may have been stored' : 'nothing was stored'
    super(`queue "${queueName}" is unavailable: ${reason}; ${stored}`, options)
  }
}

/**
 * Thrown by a read if nothing of its answer has arrived for `timeoutMs`: Redis, or a node of a cluster, is unavailable
 * or silent.
 */
export class ReadTimeoutError extends SluiceError {
  /** @param what did not answer */
  constructor(
    what: string,
    readonly timeoutMs: number,
  ) {
    super(`Command timed out: ${what} has not answered within ${timeoutMs} ms`)
  }
}

/**
 * Emitted as a worker's `error`: while it closed, Redis did not answer, and its connections were cut. Jobs whose ends
 * could not be stored run again once their locks expire, elsewhere.
 */
export class CloseTimeoutError extends SluiceError {
  constructor(
    readonly queueName: string,
    readonly timeoutMs: number,
  ) {
    super(
      `worker of queue "${queueName}" closed without Redis, which did not let it end within ${timeoutMs} ms: ` +
        'jobs whose ends are not stored run again',
    )
  }
}

/** Jobs that too few replicas have, as far as known. */
export interface Unreplicated {
  readonly jobIds: readonly string[]
  /** How many replicas must have them, by `shape.durability`. */
  readonly replicas: number
  /** How many confirmed it in time; 0 if the connection was lost. */
  readonly acknowledged: number
  readonly timeoutMs: number
}

/**
 * Thrown if jobs were accepted, but too few replicas confirmed in time that they have them (`shape.durability`). The
 * jobs are in the queue and will run, unless another server takes over that does not have them.
 */
export class NotReplicatedError extends QueueUnavailableError implements Unreplicated {
  readonly jobIds: readonly string[]
  readonly replicas: number
  readonly acknowledged: number
  readonly timeoutMs: number

  constructor(queueName: string, known: Unreplicated, options?: ErrorOptions) {
    super(queueName, 'too few replicas', true, options)
    const { jobIds, replicas, acknowledged, timeoutMs } = known
    const [what, they, them] =
      jobIds.length === 1 ? [`job ${jobIds[0]}`, 'it', 'it'] : [`${jobIds.length} jobs`, 'they', 'them']
    this.message =
      `queue "${queueName}" accepted ${what}, but ${acknowledged} of ${replicas} replicas confirmed ${them} within ` +
      `${timeoutMs} ms: ${they} will run, unless a server takes over that does not have ${them}`
    this.jobIds = jobIds
    this.replicas = replicas
    this.acknowledged = acknowledged
    this.timeoutMs = timeoutMs
  }
}

/** Thrown if a change reached only some shards of a sharded queue. Repeating it when all answer completes it. */
export class ShardsUnavailableError extends QueueUnavailableError {
  /** @param options its cause: the error of the first failed shard */
  constructor(
    queueName: string,
    /** The shards that have the change, and those that may not. */
    readonly done: readonly number[],
    readonly failed: readonly number[],
    options: { cause: Error },
  ) {
    super(queueName, 'shards did not answer', true, options)
    const those = (shards: readonly number[]) => `${shards.length === 1 ? 'shard' : 'shards'} ${shards.join(', ')}`
    const have = done.length === 1 ? 'has' : 'have'
    const known = done.length === 0 ? 'no shard is known to have the change' : `${those(done)} ${have} the change`
    this.message =
      `queue "${queueName}" is unavailable in part: ${known}, but ${those(failed)} did not confirm it ` +
      `(${options.cause.message}): repeat the call when all answer`
  }
}

/** Why a move between sharded queues does not begin or continue. */
export type MoveStop =
  | 'missing'
  | 'not empty'
  | 'other move'
  | 'paused'
  | 'resumed'
  | 'shape'
  | 'schedulers'
  | 'workers'
  | 'timeout'

/**
 * Thrown by `moveShardedQueue` if a move cannot begin or continue. Unless `stop` is `resumed` or `timeout`, or the old
 * queue was to be removed, nothing was changed. Repeating the call continues the move.
 */
export class MoveError extends SluiceError {
  constructor(
    /** The queue that the message is about. */
    readonly queueName: string,
    readonly stop: MoveStop,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`queue "${queueName}" ${message}`, options)
  }
}

/** Passed to a worker's `error` listeners if no shape is known for its queue: the worker waits for one. */
export class NoShapeError extends SluiceError {
  constructor(queueName: string) {
    super(
      `queue "${queueName}" has no shape, and nothing leaves it until one is set: declare one (shape: { rate: '50/s' }) ` +
        'or pass allowUnshaped: true to run it without a rate',
    )
  }
}

/** Thrown if the installed BullMQ has scripts of a layout that this version of Sluice does not know. */
export class UnsupportedVersionError extends SluiceError {
  constructor(
    readonly bullmqVersion: string,
    readonly testedVersions: readonly string[],
    differences: readonly string[],
  ) {
    super(
      `bullmq ${bullmqVersion} is not supported: its scripts differ from those of ${testedVersions.join(', ')}, which this ` +
        `version of sluice was tested with (${differences.join('; ')}). Install a tested version of bullmq, or a newer sluice`,
    )
  }
}

/** Thrown on a Redis Cluster for a prefix without a hash tag: the keys of a queue would be on several nodes. */
export class ClusterPrefixError extends SluiceError {
  constructor(prefix: string) {
    super(
      `on a Redis Cluster the keys of a queue must share a hash tag: use prefix: '{${prefix}}' instead of '${prefix}'`,
    )
  }
}

/** The error of a run that took longer than its job's `runTimeoutMs`; `cause` is the processor's error. */
export class RunTimeoutError extends SluiceError {
  constructor(
    readonly jobId: string,
    readonly runTimeoutMs: number,
  ) {
    super(`job ${jobId} did not end within its runTimeoutMs of ${runTimeoutMs} ms`)
  }
}

/** Thrown by `addWhenFree` if no place became free in time. */
export class WaitTimeoutError extends SluiceError {
  constructor(
    readonly queueName: string,
    readonly timeoutMs: number,
    options?: ErrorOptions,
  ) {
    super(`queue "${queueName}" had no place within ${timeoutMs} ms`, options)
  }
}

/**
 * Thrown if a limit can never be met, or one of its fields has a wrong type or value; names the expected value and the
 * given one.
 */
export class InvalidLimitError extends InvalidInputError {}

/** Thrown for a key of a limit that is not a string, a number or an array of these, or is empty or too long. */
export class InvalidKeyError extends InvalidInputError {}

/** Thrown if a name is already in use for another limit. Shows both. */
export class LimitConflictError extends InvalidInputError {
  constructor(
    readonly limitName: string,
    /** The given and the stored definition: JSON. */
    readonly given: string,
    readonly stored: string,
  ) {
    const isSpread = [given, stored].map((definition) => definition.includes('"spread":"key"'))
    super(
      `limit "${limitName}" is already defined as ${stored}; got ${given}: ` +
        (isSpread[0] === isSpread[1]
          ? 'use another name, or a higher version to change it for all'
          : "use another name: 'spread' cannot be changed"),
    )
  }
}

/** Thrown by a limiter if Redis does not answer in time, or answers that it cannot serve now. */
export class LimiterUnavailableError extends SluiceError {
  constructor(
    readonly limitName: string,
    reason: string,
    options?: ErrorOptions,
  ) {
    super(`limit "${limitName}" is unavailable: ${reason}`, options)
  }
}

/** Thrown by `limiter.wait` if its turn would come too late, or too many callers wait already. Nothing was charged. */
export class LimitExceededError extends SluiceError {
  constructor(
    readonly limitName: string,
    reason: string,
    /** When to retry, whole ms, at least 1. */
    readonly retryAfterMs: number,
    /** The same as a time on Redis's clock; undefined if unknown. */
    readonly retryAt: Date | undefined = undefined,
  ) {
    super(`limit "${limitName}": ${reason}; try again in ${retryAfterMs} ms`)
  }
}

/**
 * Emitted as a worker's `error`: its estimate of Redis's clock is too imprecise for any job to be certain to start
 * within `maxLatenessMs`. Its jobs go back, and it asks for one every two seconds.
 */
export class UncertainClockError extends SluiceError {
  constructor(
    /** How far Redis's clock may be ahead of the worker's estimate: the fastest round trip, ms. */
    readonly clockErrorMs: number,
    readonly maxLatenessMs: number,
  ) {
    super(
      `Redis's clock is known only to within ${clockErrorMs.toFixed(1)} ms, and maxLatenessMs is ${maxLatenessMs}: ` +
        'run the worker nearer to Redis, or raise maxLatenessMs',
    )
  }
}

/**
 * Thrown by a processor if the downstream asks for a pause: the whole queue pauses, and the job goes back to its head
 * without using up an attempt.
 */
export class PauseQueueError extends SluiceError {
  /** Length of the pause, ms; undefined: as for pauses without a duration, one second at first, then doubling. */
  readonly retryAfterMs: number | undefined
  /** Whether one job probes before the others follow. */
  readonly hard: boolean

  /** @throws InvalidInputError */
  constructor(options: { retryAfterMs?: number; hard?: boolean; reason?: string } = {}) {
    const { retryAfterMs, hard = false, reason, ...others } = options ?? {}
    if (typeof options !== 'object' || options === null || Object.keys(others).length > 0) {
      const came = JSON.stringify(options)
      throw new InvalidInputError(`PauseQueueError takes { retryAfterMs, hard, reason }, all optional; got ${came}`)
    }
    if (retryAfterMs !== undefined && !(Number.isFinite(retryAfterMs) && retryAfterMs >= 0)) {
      throw new InvalidInputError(`retryAfterMs must be a number >= 0; got ${String(retryAfterMs)}`)
    }
    super(reason ?? 'the downstream asked for a pause')
    this.retryAfterMs = retryAfterMs
    this.hard = hard
  }
}

/** Whether a job was refused because of other waiting jobs: the same job may be accepted later. */
export function isRefusal(error: unknown): error is Error & Refusal {
  return error instanceof QueueFullError || error instanceof CannotStartInTimeError
}
