import { checkArgument, checkCallOptions } from '../call-options.ts'
import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import { checkFields, wholeFrom, wholeWithin } from '../field-check.ts'

/**
 * Jobs of one processor call, which `job.getBatch()` returns. The names are those of BullMQ Pro, with
 * `timeoutMs` for `timeout`.
 */
export interface BatchOptions {
  /** Maximum number of jobs in a batch: 1 to 1000. */
  readonly size: number
  /**
   * How many jobs a batch waits for, at most `timeoutMs` long. Default 1: a batch has the jobs that may depart at that
   * moment.
   */
  readonly minSize?: number
  /** How long the first job of a batch waits for `minSize` of them, ms. Required with a `minSize` above 1. */
  readonly timeoutMs?: number
  /** Whether a batch has jobs of one group only; jobs without a group then form batches of their own. Default false. */
  readonly groupAffinity?: boolean
}

const FIELDS = ['size', 'minSize', 'timeoutMs', 'groupAffinity'] as const

const MOST_JOBS = 1000

/** @throws UnsupportedOptionError for a processor that cannot get a batch, InvalidInputError */
export function checkBatchOptions(batch: BatchOptions | undefined, processor: unknown): void {
  if (batch === undefined) return
  checkCallOptions('batch', batch, FIELDS)
  checkArgument(batch.size !== undefined, 'batch.size', `a whole number from 1 to ${MOST_JOBS}`, batch.size)
  const within = wholeWithin(1, MOST_JOBS)
  const isFlag = { expected: 'true or false', ok: (value: unknown) => typeof value === 'boolean' }
  checkFields(
    batch,
    { size: within, minSize: within, timeoutMs: wholeFrom(1, 'of ms'), groupAffinity: isFlag },
    InvalidInputError,
    'batch.',
  )
  const { size, minSize = 1, timeoutMs } = batch
  checkArgument(minSize <= size, 'batch.minSize', `at most batch.size, which is ${size}`, minSize)
  if (minSize > 1 && timeoutMs === undefined) {
    throw new InvalidInputError(
      `batch.minSize needs batch.timeoutMs: expected how long a batch waits for ${minSize} jobs, ms; got nothing`,
    )
  }
  if (timeoutMs !== undefined && minSize === 1) {
    throw new InvalidInputError(
      `batch.timeoutMs needs batch.minSize: expected a whole number from 2 to ${size}, without which no batch waits; got ${minSize}`,
    )
  }
  if (typeof processor !== 'function') {
    const got = processor == null ? 'none' : 'a file'
    throw new UnsupportedOptionError(
      `batch needs a processor that is a function; got ${got}: sandboxed processors and getNextJob take jobs one by one`,
    )
  }
}
