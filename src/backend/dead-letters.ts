import type { Job, JobJson, JobsOptions } from 'bullmq'
import { effectId } from '../effect-id.ts'
import { InvalidInputError } from '../errors.ts'

/** A finally failed job, as stored in its dead letter: the data of a job in the dead-letter queue. */
export interface DeadLetter {
  /** The queue in which it failed, and its id there. */
  readonly prefix: string
  readonly queueName: string
  readonly id: string
  readonly name: string
  readonly data: unknown
  readonly opts: JobsOptions
  readonly failedReason: string
  /** One entry for each failed attempt, as far as BullMQ keeps them. */
  readonly stacktrace: readonly string[]
  /** Attempts that ended and attempts that started; `stalledCounter` is how often its worker died. */
  readonly attemptsMade: number
  readonly attemptsStarted: number
  readonly stalledCounter: number
  /** How often the downstream throttled it: attempts that did not count towards `attempts`. */
  readonly throttled: number
  /** The progress that its processor stored with `updateProgress`; omitted if nothing, or 0. */
  readonly progress?: unknown
  /** When it was added, when its last attempt began, and when it failed: ms since 1970. */
  readonly timestamp: number
  readonly processedOn?: number
  readonly finishedOn: number
  /** How often it was redriven before. */
  readonly redriven: number
}

/** Redriven jobs carry the number of redrives in their options. */
export interface RedrivenOptions extends JobsOptions {
  readonly redriven?: number
}

/**
 * @throws InvalidInputError
 */
export function checkDeadLetterQueue(deadLetter: unknown, queueName: string): void {
  if (deadLetter === undefined) return
  if (typeof deadLetter !== 'string' || deadLetter === '' || deadLetter.includes(':')) {
    throw new InvalidInputError(
      `deadLetter must be the name of a queue, without ':'; got ${JSON.stringify(deadLetter) ?? String(deadLetter)}`,
    )
  }
  if (deadLetter === queueName) {
    throw new InvalidInputError(`deadLetter must name a queue other than the worker's own, "${queueName}"`)
  }
}

/** The fields of a dead letter that a job about to fail lacks. */
type Failure = Pick<DeadLetter, 'prefix' | 'queueName' | 'failedReason' | 'finishedOn' | 'throttled' | 'attemptsMade'>

export function deadLetterOf(job: object, failure: Failure): DeadLetter {
  const { id, name, data, opts, timestamp, processedOn, ...rest } = job as Job
  return {
    ...failure,
    id: id as string,
    name,
    data,
    opts,
    stacktrace: rest.stacktrace ?? [],
    attemptsStarted: rest.attemptsStarted,
    stalledCounter: rest.stalledCounter,
    ...(rest.progress ? { progress: rest.progress } : {}),
    timestamp,
    ...(processedOn === undefined ? {} : { processedOn }),
    redriven: (opts as RedrivenOptions).redriven ?? 0,
  }
}

/** The id of a dead letter: that of the job's effect, and the number of redrives. Adding it twice keeps one. */
export function deadLetterId({ prefix, queueName, id, timestamp, redriven }: DeadLetter): string {
  const effect = effectId({ prefix, queueName, jobId: id, timestamp })
  return redriven === 0 ? effect : `${effect}-${redriven}`
}

/** The job that carries a dead letter. */
export function deadLetterJob(letter: DeadLetter): JobJson {
  return newJob(letter.name, JSON.stringify(letter), {}, letter.finishedOn, deadLetterId(letter))
}

/** Options of the original add, or of one start: the job returns as a plain waiting job. */
const LEFT_BEHIND = [
  'delay',
  'deduplication',
  'debounce',
  'repeat',
  'repeatJobKey',
  'prevMillis',
  'parent',
  'timestamp',
]

/**
 * The job to put back: the same id, timestamp, data and progress, with all its attempts. A passed deadline is dropped.
 */
export function redrivenJob(letter: DeadLetter, nowMs: number): JobJson {
  const kept = Object.entries(letter.opts).filter(([name]) => !LEFT_BEHIND.includes(name))
  const opts: RedrivenOptions & { mustStartBefore?: number } = Object.fromEntries(kept)
  if (opts.mustStartBefore !== undefined && opts.mustStartBefore <= nowMs) delete opts.mustStartBefore
  const again = { ...opts, redriven: letter.redriven + 1 } as JobsOptions
  return newJob(letter.name, JSON.stringify(letter.data ?? {}), again, letter.timestamp, letter.id)
}

/** The dead letter in a job's data (JSON), or undefined if there is none. */
export function readDeadLetter(data: string): DeadLetter | undefined {
  const letter = JSON.parse(data) as Partial<DeadLetter> | null
  const isDeadLetter =
    typeof letter?.id === 'string' && typeof letter.queueName === 'string' && typeof letter.redriven === 'number'
  return isDeadLetter ? (letter as DeadLetter) : undefined
}

function newJob(name: string, data: string, opts: JobsOptions, timestamp: number, id: string): JobJson {
  const unstarted = { progress: 0, attemptsMade: 0, attemptsStarted: 0, stalledCounter: 0 }
  return { id, name, data, opts, timestamp, ...unstarted, failedReason: '', returnvalue: '' }
}
