import type { JobJson } from 'bullmq'
import type { Argument } from '../redis/commands.ts'
import { baseOfMetaKey } from '../redis/keys.ts'
import { ONCE, type OnceCall } from './idempotency-key.ts'
import type { JobCosts } from './job-options.ts'
import { type JobTermsText, termsOf } from './job-terms.ts'
import type { AdmissionEstimate } from './reply.ts'

/**
 * Under this key the options of a job carry where to put its estimate. A symbol, so that it is neither stored nor seen.
 */
export const ESTIMATE = Symbol('sluice.estimate')
/** The same for the position alone, which costs next to nothing where the job fits for sure. */
export const POSITION = Symbol('sluice.position')

/** One call of a BullMQ add script: its keys and arguments, and what the admission has to know of the job. */
export interface AddCall {
  readonly script: string
  readonly args: readonly Argument[]
  readonly job: AddedJob
}

/** What the admission has to know of a job. */
export interface AddedJob {
  readonly cost: number
  /** In units of limits. */
  readonly costs?: Readonly<Record<string, number>>
  readonly id: string
  readonly deduplicationId: string
  /** Where it stands in the queue and when it must start. */
  readonly terms: JobTermsText
  readonly schedulerId?: string
  readonly estimate?: (estimate: AdmissionEstimate) => void
  /** Told of the jobs that are ahead of it, where that is known. */
  readonly position?: (position: number) => void
  /** Of the first job of a call: all of its jobs are added by this idempotency key. */
  readonly once?: OnceCall
}

/** Where `…:meta` stands among the keys of each add script: the queue's base is read off it. */
const META_KEY_AT: Readonly<Record<string, number>> = {
  addStandardJob: 2,
  addPrioritizedJob: 1,
  addDelayedJob: 1,
  addParentJob: 0,
  addJobScheduler: 4,
}
/** What bulks call the add scripts that they know. */
export const BULK_KIND: Readonly<Record<string, string>> = {
  addStandardJob: 'standard',
  addPrioritizedJob: 'prioritized',
  addDelayedJob: 'delayed',
}

export function addedJob(job: JobJson, jobId: string | undefined): AddedJob {
  const options = job.opts as JobCosts & {
    [ESTIMATE]?: (estimate: AdmissionEstimate) => void
    [POSITION]?: (position: number) => void
    [ONCE]?: OnceCall
  }
  const { [ESTIMATE]: estimate, [POSITION]: position, [ONCE]: once } = options
  return {
    cost: options.cost ?? 1,
    ...(options.costs ? { costs: options.costs } : {}),
    id: jobId ?? '',
    deduplicationId: job.deduplicationId ?? '',
    terms: termsOf(job),
    ...(estimate ? { estimate } : {}),
    ...(position ? { position } : {}),
    ...(once ? { once } : {}),
  }
}

/** Whether a call can be one of a bulk: no estimate is asked for, nothing is to be checked of it beforehand, and it is a kind that bulks know. */
export function fitsBulk({ script, job }: AddCall): boolean {
  return BULK_KIND[script] !== undefined && job.estimate === undefined && job.costs === undefined
}

export function baseOfCall({ script, args }: Pick<AddCall, 'script' | 'args'>): string {
  return baseOfMetaKey(args[META_KEY_AT[script] as number] as string)
}
