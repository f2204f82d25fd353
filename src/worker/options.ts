import type { Job, Processor, WorkerListener, WorkerOptions } from 'bullmq'
import { checkOptionNames } from '../admission/option-names.ts'
import { checkArgument, gotText } from '../call-options.ts'
import type { Departure } from '../departure/departure.ts'
import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import type { FeedbackOptions } from '../feedback/options.ts'
import type { FeedbackChange } from '../feedback/request.ts'
import type { FunctionsOption } from '../redis/functions.ts'
import type { Shape } from '../shape/shape.ts'
import type { ShapeConflict, StateLoss } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import type { BatchOptions } from './batch-options.ts'
import type { ShapedJob } from './shaped-job.ts'

/** How far ahead of their slots a worker of a shard asks for jobs at most, ms: its lease ends. @internal */
export const MAX_HORIZON = Symbol('maxHorizonMs')

/** Worker deaths that a job survives: the third is final. BullMQ fails a job that stalls more often. */
export const DEFAULT_MAX_STALLED_COUNT = 2

/** Options of a ShapedWorker: BullMQ's without `limiter`, and the shape. `maxStalledCount` defaults to 2. */
export interface ShapedWorkerOptions extends Omit<WorkerOptions, 'limiter'>, FeedbackOptions {
  /** The shape that this program declares for the queue. Without it the stored shape applies. */
  shape?: Shape
  /**
   * Start jobs without a rate if no shape is stored. Default false: the worker waits for a shape and reports an error.
   */
  allowUnshaped?: boolean
  /**
   * One call of the processor runs up to `size` jobs, `job.getBatch()`: each departs at its own slot and ends by itself.
   * `concurrency` then counts batches. Default: the processor gets one job.
   */
  batch?: BatchOptions
  /** Name under which the shape is declared, for operators. Default: host and process id. */
  declarer?: string
  /** The queue, with the same prefix, that keeps each job that failed for good as a `DeadLetter`. Default: none. */
  deadLetter?: string
  /**
   * Above this event loop utilisation of the process over the last second, 0 to 1, no jobs are fetched, and held jobs
   * go back to the queue; below 0.8 of it the worker resumes. Running jobs are not touched. Sandboxed processors do not
   * count. Default: it always fetches.
   */
  maxLoopUtilisation?: number
  /**
   * Whether this worker reports itself and its starts to Redis, at most once every two seconds: for `sluice top`, the
   * dashboard, metrics and `explain`. Default true.
   */
  report?: boolean
  /**
   * How scripts reach Redis: as functions of a library that the first program loads ('auto'; as texts where Redis has no
   * functions or does not let this user load them), or always as texts ('never'). Default 'auto'. A connection that several
   * objects share uses texts if one of them says 'never'.
   */
  functions?: FunctionsOption
}

/** BullMQ's processor, with jobs that can settle their costs. */
export type ShapedProcessor<D, R, N extends string> = (
  job: ShapedJob<D, R, N>,
  ...rest: Parameters<Processor<D, R, N>> extends [unknown, ...infer Rest] ? Rest : never
) => ReturnType<Processor<D, R, N>>

/** What a downstream answer decides about one job alone. */
export interface JobVerdict {
  /**
   * `retryJob`: it is retried, after `afterMs` without using up an attempt, or by its attempts and its backoff;
   * `fatal`: it fails for good; `givenUp`: it fails because it was throttled for `giveUpAfterMs`.
   */
  readonly kind: 'retryJob' | 'fatal' | 'givenUp'
  /** One line: the part of the answer that the verdict is based on. */
  readonly reason: string
  readonly afterMs?: number
}

export interface ShapedWorkerListener<D, R, N extends string> extends WorkerListener<D, R, N> {
  /** A job's processor is about to be called. */
  departed: (job: Job<D, R, N>, departure: Departure) => void
  /**
   * A job was too late for its slot, or possibly so within the error of Redis's clock, and went back to get a new slot.
   */
  late: (job: Job<D, R, N>, lateness: { latenessUs: number; clockErrorUs: number }) => void
  /** A job could not start before its `mustStartBefore` and failed. */
  expired: (job: Job<D, R, N>, expiry: { deadline: Date }) => void
  /** An answer that this worker got from the downstream changed the rate, the pause or the concurrency of the queue. */
  feedback: (change: FeedbackChange) => void
  /** An answer of the downstream concerns this job alone: it is retried, or fails. */
  verdict: (job: Job<D, R, N>, verdict: JobVerdict) => void
  /** The stored shape changed. */
  shape: (shape: EffectiveShape, before: EffectiveShape | undefined) => void
  /** Another live program declares a different value. */
  shapeConflict: (conflict: ShapeConflict) => void
  /** Redis was restarted, failed over or flushed; this process restored what was lost. */
  stateLoss: (loss: StateLoss) => void
  /** Redis's clock went back; the bucket was moved with it. */
  clockStep: (step: { backUs: number }) => void
  /** The event loop is overloaded: no jobs are fetched until `relieved`. See `maxLoopUtilisation`. */
  overloaded: (load: { utilisation: number }) => void
  /** The event loop has room again: jobs are fetched. */
  relieved: (load: { utilisation: number }) => void
  /** A worker without Sluice takes jobs from this queue, bypassing the meter. */
  foreignWorker: (found: { jobId: string }) => void
}

/** @throws InvalidInputError; a text is the file of a sandboxed processor */
export function checkProcessor(processor: unknown): void {
  const isRight = processor == null || ['function', 'string'].includes(typeof processor) || processor instanceof URL
  checkArgument(isRight, 'the processor', 'a function, or the path or URL of its file', processor)
}

/** @throws UnsupportedOptionError for `limiter` and options of BullMQ Pro, InvalidInputError */
export function checkWorkerOptions(options: ShapedWorkerOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new InvalidInputError(`a worker needs options, such as { connection, shape }; got ${gotText(options)}`)
  }
  if (!options.connection) {
    // Without their values: a password may be among them.
    const names = Object.keys(options).join(', ') || 'none'
    throw new InvalidInputError(`Worker requires a connection: expected { connection }; got the options ${names}`)
  }
  const { limiter } = options as WorkerOptions
  if (limiter) {
    throw new UnsupportedOptionError(
      `limiter is BullMQ's own and would let bursts through; use shape: { rate: { limit: ${limiter.max}, ` +
        `period: ${limiter.duration} } } instead`,
    )
  }
  checkOptionNames('worker', options)
  for (const name of ['report', 'allowUnshaped'] as const) {
    const value: unknown = options[name]
    checkArgument(value === undefined || typeof value === 'boolean', name, 'true or false', value)
  }
  // BullMQ takes true or a number of a job's options only: of a worker's, its script would fail at the end of a job.
  for (const name of ['removeOnComplete', 'removeOnFail'] as const) {
    const value: unknown = options[name]
    const isRight = value === undefined || (typeof value === 'object' && value !== null)
    checkArgument(isRight, name, 'an object, such as { count: 1000 } or { age: 3600 }', value)
  }
  const { maxLoopUtilisation: max } = options
  const isShare = max === undefined || (typeof max === 'number' && max > 0 && max <= 1)
  checkArgument(isShare, 'maxLoopUtilisation', 'a share > 0 and at most 1', max)
}
