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

/** A worker of a shard asks for jobs at most this far ahead of their slots, ms: its lease ends. @internal */
export const MAX_HORIZON = Symbol('maxHorizonMs')

/** Number of worker deaths that a job survives: the third is final. BullMQ fails a job that stalls more often. */
export const DEFAULT_MAX_STALLED_COUNT = 2

/** Options of a ShapedWorker: BullMQ's without `limiter`, and the shape. `maxStalledCount` defaults to 2. */
export interface ShapedWorkerOptions extends Omit<WorkerOptions, 'limiter'>, FeedbackOptions {
  /** The shape that this program declares. Default: none, so the stored shape applies. */
  shape?: Shape
  /** Starts jobs without a rate if no shape is stored. Default false: the worker waits for one. */
  allowUnshaped?: boolean
  /** One processor call handles up to `size` jobs; `concurrency` counts batches. */
  batch?: BatchOptions
  /** The name under which operators see the declared shape. Default: host and process id. */
  declarer?: string
  /** The queue that gets each permanently failed job as a `DeadLetter`. */
  deadLetter?: string
  /** No jobs are fetched above this event loop utilisation, 0 to 1. Default: no limit. */
  maxLoopUtilisation?: number
  /** Whether the worker registers itself and reports its starts in Redis, for views and metrics. Default true. */
  report?: boolean
  /** Whether scripts run as Redis Functions: `auto` (default) or `never`. */
  functions?: FunctionsOption
}

/** BullMQ's processor, with jobs that can settle their costs. */
export type ShapedProcessor<D, R, N extends string> = (
  job: ShapedJob<D, R, N>,
  ...rest: Parameters<Processor<D, R, N>> extends [unknown, ...infer Rest] ? Rest : never
) => ReturnType<Processor<D, R, N>>

/** The decision of a downstream answer about one job alone. */
export interface JobVerdict {
  /**
   * `retryJob`: it is retried, after `afterMs` without using up an attempt, or by its attempts and its backoff;
   * `fatal`: it fails finally; `givenUp`: it fails because it was throttled for `giveUpAfterMs`.
   */
  readonly kind: 'retryJob' | 'fatal' | 'givenUp'
  /** One line: the part of the answer behind the verdict. */
  readonly reason: string
  readonly afterMs?: number
}

export interface ShapedWorkerListener<D, R, N extends string> extends WorkerListener<D, R, N> {
  /** The processor is about to be called. */
  departed: (job: Job<D, R, N>, departure: Departure) => void
  /** The job was too late for its slot and went back. */
  late: (job: Job<D, R, N>, lateness: { latenessUs: number; clockErrorUs: number }) => void
  /** The job could not start before its `mustStartBefore`. */
  expired: (job: Job<D, R, N>, expiry: { deadline: Date }) => void
  /** An answer from the downstream changed the rate, a pause or the concurrency. */
  feedback: (change: FeedbackChange) => void
  /** An answer from the downstream concerns this job alone. */
  verdict: (job: Job<D, R, N>, verdict: JobVerdict) => void
  /** The stored shape changed. */
  shape: (shape: EffectiveShape, before: EffectiveShape | undefined) => void
  /** Another live program declares a different value. */
  shapeConflict: (conflict: ShapeConflict) => void
  /** Redis lost state; this process restored it. */
  stateLoss: (loss: StateLoss) => void
  /** Redis's clock went back, and the bucket was set back with it. */
  clockStep: (step: { backUs: number }) => void
  /** No jobs are fetched until `relieved` (`maxLoopUtilisation`). */
  overloaded: (load: { utilisation: number }) => void
  /** Jobs are fetched again. */
  relieved: (load: { utilisation: number }) => void
  /** A worker without Sluice starts jobs that bypass the meter. */
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
  // BullMQ takes true or a number only among a job's options: with a worker's, its script would fail at the end of a
  // job.
  for (const name of ['removeOnComplete', 'removeOnFail'] as const) {
    const value: unknown = options[name]
    const isRight = value === undefined || (typeof value === 'object' && value !== null)
    checkArgument(isRight, name, 'an object, such as { count: 1000 } or { age: 3600 }', value)
  }
  const { maxLoopUtilisation: max } = options
  const isShare = max === undefined || (typeof max === 'number' && max > 0 && max <= 1)
  checkArgument(isShare, 'maxLoopUtilisation', 'a share > 0 and at most 1', max)
}
