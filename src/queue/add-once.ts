import { ONCE_JOBS } from '../admission/bulk-parts.ts'
import {
  checkOnceOptions,
  DEFAULT_KEY_TTL_MS,
  markOf,
  newCallId,
  ONCE,
  type OnceAnswer,
  type OnceCall,
  type OnceOptions,
  onceJobId,
  recordName,
  STEM,
} from '../admission/idempotency-key.ts'
import { checkJobList, checkJobOptions, type ShapedJobsOptions } from '../admission/job-options.ts'
import type { AdmissionEstimate } from '../admission/reply.ts'
import {
  IdempotencyInFlightError,
  InvalidDeadlineError,
  InvalidInputError,
  InvalidJobIdError,
  TooLargeError,
} from '../errors.ts'

/** The result of {@link ShapedQueue.addOnce}. */
export interface AddedOnce {
  /** The ids of the jobs, in the order given. */
  readonly ids: string[]
  /** Whether an earlier call with this key had added them. */
  readonly replayed: boolean
  /** The current position of the first job. */
  readonly estimate: AdmissionEstimate
}

interface GivenJob {
  readonly opts?: object
}

/** The call in flight needs time for its round trip; an earlier retry would fail the same way. */
const IN_FLIGHT_RETRY_MS = 100

/** Calls of one queue object, by idempotency key. */
export class OnceCalls {
  readonly #queueName: string
  readonly #base: string
  /** Records with a call in flight. */
  readonly #inFlight = new Set<string>()

  constructor(queueName: string, base: string) {
    this.#queueName = queueName
    this.#base = base
  }

  /** @param add adds jobs in bulk, and throws if it cannot */
  async add<J extends GivenJob>(
    jobs: readonly J[],
    options: OnceOptions & { readonly [STEM]?: string },
    add: (jobs: J[]) => Promise<readonly { id?: string | undefined }[]>,
  ): Promise<AddedOnce> {
    checkOnceOptions(options)
    checkJobList('addOnce', jobs)
    this.#checkCount(jobs.length)
    const { checked, refusal } = checkJobs(jobs)
    const record = recordName(options.key)
    const mark = markOf(this.#base, options, jobs.length)
    if (this.#inFlight.has(record)) throw new IdempotencyInFlightError(this.#queueName, IN_FLIGHT_RETRY_MS)
    let answered: OnceAnswer | undefined
    const answer = (found: OnceAnswer) => {
      answered = found
    }
    const { ttlMs = DEFAULT_KEY_TTL_MS, [STEM]: stem } = options
    const once: OnceCall = { record, mark, call: newCallId(), stem, ttlMs, refusal, answer }
    this.#inFlight.add(record)
    try {
      const added = await add(checked.map((job, i) => withOnce(job, i, once)))
      return { ids: added.map(({ id }) => id as string), ...(answered as unknown as OnceAnswer) }
    } finally {
      this.#inFlight.delete(record)
    }
  }

  #checkCount(jobs: number): void {
    if (jobs === 0) throw new InvalidInputError('addOnce needs at least one job; got none')
    if (jobs > ONCE_JOBS) throw new TooLargeError(this.#queueName, jobs, ONCE_JOBS, { method: 'addOnce' })
  }
}

/**
 * Checks options as `add` does. A passed deadline may have been fine when the jobs were added: that refusal is thrown
 * only once it is known that they were not.
 */
function checkJobs<J extends GivenJob>(jobs: readonly J[]): { checked: readonly J[]; refusal: Error | undefined } {
  let refusal: Error | undefined
  const checked = jobs.map((job) => {
    const opts = job.opts as ShapedJobsOptions | undefined
    if (opts?.jobId) {
      throw new InvalidJobIdError('addOnce makes the ids of its jobs from its key; leave jobId out')
    }
    try {
      return { ...job, opts: checkJobOptions(opts) }
    } catch (error) {
      if (!(error instanceof InvalidDeadlineError)) throw error
      refusal ??= error
      return job
    }
  })
  return { checked, refusal }
}

function withOnce<J extends GivenJob>(job: J, index: number, once: OnceCall): J {
  const jobId = onceJobId(once.stem ?? once.mark, index)
  return { ...job, opts: { ...job.opts, jobId, ...(index === 0 ? { [ONCE]: once } : {}) } }
}
