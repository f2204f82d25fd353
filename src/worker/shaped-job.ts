import type { Job, JobJson } from 'bullmq'
import { checkUnits, MAX_COST } from '../admission/job-options.ts'
import type { ShapedBackend } from '../backend/backend.ts'
import { GroupedJob } from '../backend/grouped-job.ts'
import { checkArgument } from '../call-options.ts'
import type { Departure } from '../departure/departure.ts'
import { InvalidCostError, InvalidInputError } from '../errors.ts'
import type { Feedback } from '../feedback/feedback.ts'
import { type FeedbackInput, readFeedback } from '../feedback/job-feedback.ts'
import { deferredReason } from './deadline.ts'

/** How long an attempt may be settled again. */
const SETTLED_MS = 86_400_000

/** From now on, `apply` gets feedback by the processor of this job; undefined: it is not accepted. */
export let listen: (job: Job, apply: ((feedback: Feedback) => Promise<void>) | undefined) => void

/** From now on, the job has departed. */
export let departs: (job: Job, departure: Departure) => void

/** The end of a job as set by the processor of a batch. */
export type BatchOutcome = { readonly error: Error } | { readonly result: unknown }

// biome-ignore lint/suspicious/noExplicitAny: a batch has jobs of any kind
export type BatchedJob = ShapedJob<any, any, any>

/** From now on, the job is in a batch of these; undefined: in none. */
export let putInto: (job: BatchedJob, batch: readonly BatchedJob[] | undefined) => void

/** The end that the processor has set for a job of its batch; undefined if none. */
export let outcomeOf: (job: BatchedJob) => BatchOutcome | undefined

/** A job as a processor of a ShapedWorker gets it. Its generics are Job's, in Job's order. */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Job
export class ShapedJob<DataType = any, ResultType = any, NameType extends string = string> extends GroupedJob<
  DataType,
  ResultType,
  NameType
> {
  /** Applies feedback by the job's processor; undefined unless it runs in this process. */
  #apply: ((feedback: Feedback) => Promise<void>) | undefined

  #batch: readonly BatchedJob[] | undefined
  #outcome: BatchOutcome | undefined

  #departure: Departure | undefined

  static {
    departs = (job, departure) => {
      ;(job as ShapedJob).#departure = departure
    }
    listen = (job, apply) => {
      ;(job as ShapedJob).#apply = apply
    }
    putInto = (job, batch) => {
      job.#batch = batch
    }
    outcomeOf = (job) => job.#outcome
  }

  /** A worker fails a job with the reason set here. */
  static override fromJSON<D, R, N extends string>(
    queue: Parameters<typeof Job.fromJSON>[0],
    json: JobJson,
    jobId?: string,
  ): Job<D, R, N> {
    // biome-ignore lint/complexity/noThisInStatic: BullMQ creates the job of this class
    const job: Job<D, R, N> = super.fromJSON(queue, json, jobId)
    const { deferredFailure } = job
    if (deferredFailure) job.deferredFailure = deferredReason(deferredFailure, job.stalledCounter)
    return job
  }

  /** When it departed, and with which members of pools; undefined outside a processor of a ShapedWorker. */
  get departure(): Departure | undefined {
    return this.#departure
  }

  /**
   * Reports the downstream's answer if no profile recognises it: applied at once, for the whole fleet. A processor that
   * throws afterwards counts as throttled: no attempt is used up.
   *
   * ```ts
   * await job.feedback({ kind: 'pause', forMs: 30_000, reason: 'maintenance' })
   * ```
   *
   * @throws InvalidInputError for wrong feedback, or outside a processor of a ShapedWorker
   */
  async feedback(input: FeedbackInput): Promise<void> {
    const feedback = readFeedback(input)
    const apply = this.#apply
    if (!apply) throw new InvalidInputError('job.feedback works while a processor of a ShapedWorker runs the job')
    await apply(feedback)
  }

  /**
   * Replaces the estimated cost of a job with the actual one: the rate and the limits are charged the difference, or
   * refunded as far as they have not refilled since. Grants to other jobs meanwhile do not change. Each attempt is
   * charged by itself; settling the same cost twice changes nothing.
   *
   * ```ts
   * await job.settleCost({ tokens: response.usage.total_tokens })
   * ```
   *
   * @param actual units of cost, or of limits by their units
   * @throws InvalidCostError
   */
  async settleCost(actual: number | Readonly<Record<string, number>>): Promise<void> {
    const costs = typeof actual === 'number' ? { '': actual } : actual
    const entries = Object.entries(checkUnits(costs))
    if (entries.length === 0) throw new InvalidCostError('settleCost needs what the job cost; got nothing')
    for (const [unit, cost] of entries) {
      if (typeof cost === 'number' && cost >= 0 && cost <= MAX_COST) continue
      const what = unit === '' ? 'the cost' : `the cost in ${unit}`
      throw new InvalidCostError(`${what} must be a number from 0 to ${MAX_COST}; got ${JSON.stringify(cost) ?? cost}`)
    }
    const { store } = this.backend as unknown as ShapedBackend
    const args = [this.id, this.attemptsStarted, JSON.stringify(costs), SETTLED_MS]
    const reply = (await store.run('settle-cost', args)) as number | [string]
    if (typeof reply === 'object') throw new InvalidCostError(`no limit of this queue counts '${reply[0]}'`)
  }

  /**
   * @returns the jobs of the batch that the processor runs, including this one; without the option `batch` this one
   * alone
   */
  getBatch(): ShapedJob<DataType, ResultType, NameType>[] {
    return [...(this.#batch ?? [this])]
  }

  /**
   * Makes this job of the batch fail when the processor ends, whatever its outcome: it is retried by its own options.
   * The last call for a job counts. With `Worker.RateLimitError()` it goes back, as with `DelayedError` after
   * `moveToDelayed`.
   * @throws InvalidInputError for a value that is no error, or outside a processor of a ShapedWorker with `batch`
   */
  setAsFailed(error: Error): void {
    const isError = typeof (error as Partial<Error> | null | undefined)?.message === 'string'
    checkArgument(isError, 'setAsFailed: error', 'an Error', error)
    this.#end('setAsFailed', { error })
  }

  /**
   * Makes this job of the batch complete with this result when the processor ends, even if that throws. All others
   * complete with the processor's result.
   * @throws InvalidInputError outside a processor of a ShapedWorker with `batch`
   */
  setAsCompleted(result: ResultType): void {
    this.#end('setAsCompleted', { result })
  }

  #end(call: string, outcome: BatchOutcome): void {
    if (!this.#batch) {
      throw new InvalidInputError(
        `job.${call} works while a processor of a ShapedWorker with the option batch runs the job`,
      )
    }
    this.#outcome = outcome
  }
}
