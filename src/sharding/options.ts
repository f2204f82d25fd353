import { checkDeadLetterQueue } from '../backend/dead-letters.ts'
import { checkArgument, gotText, nearName } from '../call-options.ts'
import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import { checkFeedbackOptions } from '../feedback/options.ts'
import { checkField, wholeWithin } from '../field-check.ts'
import type { MeterState } from '../queue/meter-state.ts'
import type { ShapedQueueOptions } from '../queue/options.ts'
import { checkAdmitTimeout } from '../queue/unavailable.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { checkWorkerOptions, type ShapedWorkerOptions } from '../worker/options.ts'
import type { PlaceBy } from './placement.ts'

/** More shards than this would leave each too little, and each process too many connections. */
const SHARDS = wholeWithin(1, 64)

export interface ShardingOptions {
  /** Number of shards: set by the first process that declares the queue, the same in all. */
  readonly shards: number
}

/** Options of a {@link ShardedQueue}: those of a ShapedQueue with the shape of the whole queue, and the shards. */
export interface ShardedQueueOptions extends ShapedQueueOptions, ShardingOptions {
  /**
   * What the jobs of one shard have in common. Default: their group, otherwise their `jobId` or the id of their
   * `deduplication`; jobs with neither are dealt out in turn. The jobs of a group always share a shard.
   */
  readonly placeBy?: PlaceBy
}

/** Options of a {@link ShardedWorker}: those of a ShapedWorker without `batch`, and the shards. */
export interface ShardedWorkerOptions extends Omit<ShapedWorkerOptions, 'batch'>, ShardingOptions {
  /** Jobs that run at once over all shards: at least as many as there are shards. */
  readonly concurrency: number
}

/** The state of the whole queue and of its shards, with the sums of their jobs. */
export interface ShardedState extends Pick<MeterState, 'depth' | 'waiting' | 'delayed' | 'waitingChildren' | 'active'> {
  /** The shape of the whole queue; undefined if none is stored. */
  readonly shape: EffectiveShape | undefined
  readonly shards: number
  /** Each shard: its `rate` and `capacity` are the leased ones. */
  readonly each: readonly MeterState[]
}

/** @throws InvalidInputError */
export function checkShardedQueue(options: ShardedQueueOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new InvalidInputError(`a queue needs options, such as { connection, shards, shape }; got ${gotText(options)}`)
  }
  checkShared(options)
  const { placeBy } = options
  checkArgument(placeBy === undefined || typeof placeBy === 'function', 'placeBy', 'a function of a job', placeBy)
  checkAdmitTimeout(options.admitTimeoutMs)
}

/** Queues and workers are often created with the same object, so each accepts the other's options. */
const OWN = ['shards', 'placeBy']

/** @throws InvalidInputError; also for a name that almost matches one of ours, and would be ignored */
function checkShared(options: ShardingOptions & { readonly prefix?: string | undefined }): void {
  for (const name in options) {
    const meant = OWN.includes(name) ? undefined : nearName(name, OWN)
    if (meant === undefined) continue
    throw new InvalidInputError(`there is no option '${name}' of a queue with shards: did you mean '${meant}'?`)
  }
  const { shards, prefix } = options
  checkField('shards', shards, SHARDS, InvalidInputError)
  checkArgument(prefix === undefined || typeof prefix === 'string', 'prefix', 'a string', prefix)
}

/**
 * Refuses what the workers of the shards would refuse, before any of them is opened.
 * @throws InvalidInputError, InvalidRateError, UnsupportedOptionError
 */
export function checkShardedWorker(name: string, processor: unknown, options: ShardedWorkerOptions): void {
  checkWorkerOptions(options)
  checkShared(options)
  checkConcurrency(options.concurrency, options.shards)
  checkDeadLetterQueue(options.deadLetter, name)
  checkFeedbackOptions(options)
  if (typeof processor !== 'function' && typeof processor !== 'string' && !(processor instanceof URL)) {
    throw new InvalidInputError(
      `a worker needs a processor: a function, or the path or URL of a file; got ${gotText(processor)}`,
    )
  }
  if ((options as ShapedWorkerOptions).batch !== undefined) {
    throw new UnsupportedOptionError('batch is not supported by a worker of shards: its jobs run one by one')
  }
  if (options.autorun === false) {
    throw new UnsupportedOptionError('autorun: false is not supported by a worker of shards: pause it instead')
  }
}

/** @throws InvalidInputError if a worker has too few places to ask each shard for a job */
function checkConcurrency(concurrency: unknown, shards: number): void {
  const isEnough = Number.isSafeInteger(concurrency) && (concurrency as number) >= shards
  checkArgument(isEnough, 'concurrency', `a whole number of at least ${shards}, one for each shard`, concurrency)
}
