/** Every error that Sluice throws is one of these; `name` is the class's name, also across copies of the package. */
export class SluiceError extends Error {
  override name = this.constructor.name
}

/** Input that can never work: a caller's mistake. Nothing was changed. */
export class InvalidInputError extends SluiceError {}

/** Thrown where a rate is not of the forms of {@link parseRate}. */
export class InvalidRateError extends InvalidInputError {}

/** Thrown where a field of a shape has a wrong type or value; says which, what was expected and what came. */
export class InvalidShapeError extends InvalidInputError {}

/** Thrown for a job id that is one of BullMQ's own key names, or holds a colon. */
export class InvalidJobIdError extends InvalidInputError {}

/** Thrown for a `cost` that is not a positive number. */
export class InvalidCostError extends InvalidInputError {}

/** Thrown for a `mustStartBefore` that is no time, lies in the past, or ends before the job's delay does. */
export class InvalidDeadlineError extends InvalidInputError {}

/** Thrown for an option of BullMQ that a shape takes the place of; names what to use instead. */
export class UnsupportedOptionError extends InvalidInputError {}

/** Thrown when something costs more than a bucket ever holds: the burst of a queue or limit, the limit of a window. */
export class CostTooHighError extends InvalidInputError {
  readonly cost: number
  /** What the bucket holds. */
  readonly burst: number
  /** The limit that can not be met; undefined for the rate of a queue. */
  readonly limitName: string | undefined

  constructor(cost: number, burst: number, limitName?: string) {
    super(
      limitName === undefined
        ? `cost ${cost} exceeds burst ${burst}: set burst to at least ${cost}`
        : `cost ${cost} exceeds what limit "${limitName}" allows at once, ${burst}: raise it to at least ${cost}`,
    )
    this.cost = cost
    this.burst = burst
    this.limitName = limitName
  }
}

/** Thrown when more jobs come at once than the queue can ever hold. */
export class TooLargeError extends InvalidInputError {
  readonly jobs: number
  readonly capacity: number
  readonly queueName: string

  /** @param method whose one call holds no more than `capacity`; else it is the queue */
  constructor(queueName: string, jobs: number, capacity: number, method?: string) {
    const into = method === undefined ? `queue "${queueName}"` : `one ${method} of queue "${queueName}"`
    super(`${jobs} jobs at once do not fit into ${into}, which holds ${capacity}: add them in smaller parts`)
    this.queueName = queueName
    this.jobs = jobs
    this.capacity = capacity
  }
}

/** Thrown by `addOnce` where its key stands for another request: one with another fingerprint. Nothing was stored. */
export class IdempotencyConflictError extends InvalidInputError {
  readonly queueName: string

  constructor(queueName: string) {
    super(`The idempotency key stands for another request to queue "${queueName}": use a new key for each request`)
    this.queueName = queueName
  }
}

/** Thrown by `addOnce` while an earlier call with its key waits for its answer. */
export class IdempotencyInFlightError extends SluiceError {
  readonly queueName: string
  /** When to try again, whole ms, at least 1. */
  readonly retryAfterMs: number

  constructor(queueName: string, retryAfterMs: number) {
    super(
      `A call with the same idempotency key to queue "${queueName}" is not answered yet; try again in ${retryAfterMs} ms`,
    )
    this.queueName = queueName
    this.retryAfterMs = retryAfterMs
  }
}

/** What a refusal says. */
export interface Refusal {
  /** When to try again, whole ms, at least 1. */
  readonly retryAfterMs: number
  /** Jobs that hold a place now. */
  readonly depth: number
  /**
   * The places that jobs like this one may take: less than the queue's where some are reserved for others. Undefined
   * where there is no bound, and the job was refused because it could not start in time.
   */
  readonly capacity: number | undefined
  /** Whether the queue is paused, by BullMQ or by the meter. */
  readonly paused: boolean
  /** When it would have started, where it was refused because that is too late. An estimate. */
  readonly startsAt?: Date
}

/** Thrown when a queue has no place left. Nothing was added. */
export class QueueFullError extends SluiceError implements Refusal {
  readonly queueName: string
  readonly retryAfterMs: number
  readonly depth: number
  readonly capacity: number
  readonly paused: boolean
  /** Places that the call needs, all at once: 1 for one job; of a bulk or a flow its new jobs that the queue has to hold. */
  readonly needed: number

  constructor(queueName: string, refusal: Refusal & { readonly capacity: number; readonly needed?: number }) {
    const { depth, capacity, retryAfterMs, needed = 1 } = refusal
    const places = needed > 1 ? `${depth} of ${capacity}, ${needed} needed` : `${depth} of ${capacity}`
    super(`Queue "${queueName}" is full (${places}): try again in ${retryAfterMs} ms`)
    this.queueName = queueName
    this.retryAfterMs = retryAfterMs
    this.depth = depth
    this.capacity = capacity
    this.paused = refusal.paused
    this.needed = needed
  }
}

/** What a {@link CannotStartInTimeError} says, beside the queue's name. */
export interface LateStart extends Refusal {
  readonly startsAt: Date
  readonly maxWaitMs?: number | undefined
  readonly mustStartBefore?: Date | undefined
}

/** Thrown when a job could not start in time, as the drain schedule estimates it. Nothing was added. */
export class CannotStartInTimeError extends SluiceError implements LateStart {
  readonly queueName: string
  /** When it would start. */
  readonly startsAt: Date
  /** When so much has left that a job like this one, with as much time, would start in time. Whole ms, at least 1. */
  readonly retryAfterMs: number
  /** The queue's `shape.maxWaitMs`, where it is that which is not met. */
  readonly maxWaitMs: number | undefined
  /** The job's own deadline, where it is that which is not met. */
  readonly mustStartBefore: Date | undefined
  readonly depth: number
  readonly capacity: number | undefined
  readonly paused: boolean

  constructor(queueName: string, late: LateStart) {
    const { startsAt, retryAfterMs, maxWaitMs, mustStartBefore } = late
    const bound = mustStartBefore ? `its deadline is ${mustStartBefore.toISOString()}` : `jobs may wait ${maxWaitMs} ms`
    super(`A job for queue "${queueName}" would start at ${startsAt.toISOString()}, but ${bound}`)
    this.queueName = queueName
    this.startsAt = startsAt
    this.retryAfterMs = retryAfterMs
    this.maxWaitMs = maxWaitMs
    this.mustStartBefore = mustStartBefore
    this.depth = late.depth
    this.capacity = late.capacity
    this.paused = late.paused
  }
}

/** Thrown when Redis does not answer, or answers that it can not serve now. */
export class QueueUnavailableError extends SluiceError {
  readonly queueName: string
  /** Whether the job may be stored nevertheless: it was sent, and no answer came. */
  readonly mayBeStored: boolean

  constructor(queueName: string, reason: string, mayBeStored: boolean, options?: ErrorOptions) {
    const stored = mayBeStored ? 'the job may have been stored' : 'nothing was stored'
    super(`Queue "${queueName}" is unavailable: ${reason}; ${stored}`, options)
    this.queueName = queueName
    this.mayBeStored = mayBeStored
  }
}

/** Given to a worker's `error` listeners when no shape is known for its queue: it waits for one. */
export class NoShapeError extends SluiceError {
  constructor(queueName: string) {
    super(
      `Queue "${queueName}" has no shape, and nothing leaves it until one is set: declare one (shape: { rate: '50/s' }) ` +
        'or pass allowUnshaped: true to run it without a rate',
    )
  }
}

/** Thrown when the installed BullMQ has scripts of a layout that this version of Sluice does not know. */
export class UnsupportedVersionError extends SluiceError {
  readonly bullmqVersion: string
  readonly testedVersions: readonly string[]

  constructor(bullmqVersion: string, testedVersions: readonly string[], differences: readonly string[]) {
    super(
      `bullmq ${bullmqVersion} is not supported: its scripts differ from those of ${testedVersions.join(', ')}, which this ` +
        `version of sluice was tested with (${differences.join('; ')}). Install a tested version of bullmq, or a newer sluice`,
    )
    this.bullmqVersion = bullmqVersion
    this.testedVersions = testedVersions
  }
}

/** Thrown on a Redis Cluster for a prefix without a hash tag: the keys of a queue would lie on several nodes. */
export class ClusterPrefixError extends SluiceError {
  constructor(prefix: string) {
    super(
      `On a Redis Cluster the keys of a queue must share a hash tag: use prefix: '{${prefix}}' instead of '${prefix}'`,
    )
  }
}

/** Thrown by `addWhenFree` when no place became free in time. */
export class WaitTimeoutError extends SluiceError {
  readonly queueName: string
  readonly timeoutMs: number

  constructor(queueName: string, timeoutMs: number, options?: ErrorOptions) {
    super(`Queue "${queueName}" had no place within ${timeoutMs} ms`, options)
    this.queueName = queueName
    this.timeoutMs = timeoutMs
  }
}

/** Thrown where a limit can never be met, or a field of it has a wrong type or value; says what was expected and what came. */
export class InvalidLimitError extends InvalidInputError {}

/** Thrown for a key of a limit that is no string, number or array of these, or is empty or too long. */
export class InvalidKeyError extends InvalidInputError {}

/** Thrown where a name already stands for another limit. Both are named. */
export class LimitConflictError extends InvalidInputError {
  readonly limitName: string
  /** What was given, and what is stored: JSON. */
  readonly given: string
  readonly stored: string

  constructor(limitName: string, given: string, stored: string) {
    const isSpread = [given, stored].map((definition) => definition.includes('"spread":"key"'))
    super(
      `limit "${limitName}" is already defined as ${stored}; got ${given}: ` +
        (isSpread[0] === isSpread[1]
          ? 'use another name, or a higher version to change it for all'
          : 'use another name, as what is spread stays so'),
    )
    this.limitName = limitName
    this.given = given
    this.stored = stored
  }
}

/** Thrown by a limiter when Redis does not answer in time, or answers that it can not serve now. */
export class LimiterUnavailableError extends SluiceError {
  readonly limitName: string

  constructor(limitName: string, reason: string, options?: ErrorOptions) {
    super(`Limit "${limitName}" is unavailable: ${reason}`, options)
    this.limitName = limitName
  }
}

/** Thrown by `limiter.wait` when its turn would come too late, or too many wait already. Nothing was charged. */
export class LimitExceededError extends SluiceError {
  readonly limitName: string
  /** When to try again, whole ms, at least 1. */
  readonly retryAfterMs: number
  /** The same as a time, on Redis's clock; undefined where it is not known. */
  readonly retryAt: Date | undefined

  constructor(limitName: string, reason: string, retryAfterMs: number, retryAt?: Date) {
    super(`Limit "${limitName}": ${reason}; try again in ${retryAfterMs} ms`)
    this.limitName = limitName
    this.retryAt = retryAt
    this.retryAfterMs = retryAfterMs
  }
}

/**
 * Told by the `error` event of a worker: with what it knows of Redis's clock no job starts within `maxLatenessMs` for certain.
 * Its jobs go back, and it asks for one every two seconds.
 */
export class UncertainClockError extends SluiceError {
  /** By how much Redis's clock may be ahead of what the worker takes it for: its fastest round trip, ms. */
  readonly clockErrorMs: number
  readonly maxLatenessMs: number

  constructor(clockErrorMs: number, maxLatenessMs: number) {
    super(
      `Redis's clock is known to ${clockErrorMs.toFixed(1)} ms, expected less than maxLatenessMs, which is ${maxLatenessMs}: ` +
        'run the worker nearer to Redis, or raise maxLatenessMs',
    )
    this.clockErrorMs = clockErrorMs
    this.maxLatenessMs = maxLatenessMs
  }
}

/**
 * A processor throws it where the other side wants to be left alone: the whole queue pauses, and the job goes back to its
 * head without having used up an attempt.
 */
export class PauseQueueError extends SluiceError {
  /** How long, ms; undefined: as long as pauses without a time last, a second first, doubling. */
  readonly retryAfterMs: number | undefined
  /** One job probes before the others follow. */
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
    super(reason ?? 'the other side wants to be left alone')
    this.retryAfterMs = retryAfterMs
    this.hard = hard
  }
}

/** Whether a job was refused for what else waits: the same job may be taken later. */
export function isRefusal(error: unknown): error is Error & Refusal {
  return error instanceof QueueFullError || error instanceof CannotStartInTimeError
}
