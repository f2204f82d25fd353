import type { JobJson } from 'bullmq'
import type { JobTerms } from './job-options.ts'

/** Set to true for a job that another shard is asked for next: here, a refusal is not the last word, and not counted. */
export const ASKED_ELSEWHERE = Symbol('sluice.asked-elsewhere')

/** The format of `lua/admission/new-job.lua`: '' if there are none, else place, priority, delay and deadline (ms). */
export type JobTermsText = string

/** The place of a new job in its queue, and its deadline. */
export function termsOf(job: Pick<JobJson, 'opts'>): JobTermsText {
  const opts = job.opts as JobJson['opts'] & JobTerms & { [ASKED_ELSEWHERE]?: boolean }
  const { priority, lifo, delay, mustStartBefore, [ASKED_ELSEWHERE]: isAsked } = opts
  if (!priority && !lifo && !delay && !isAsked && mustStartBefore === undefined) return ''
  const delayMs = delay ? Math.max(0, Math.ceil(delay)) : 0
  // A stock queue does not check deadlines.
  const deadline = Number.isSafeInteger(mustStartBefore) ? Math.max(0, mustStartBefore as number) : ''
  return `${isAsked ? 'a' : ''}${lifo ? 'l' : ''},${priority || ''},${delayMs || ''},${deadline}`
}

export function hasDeadline(terms: JobTermsText): boolean {
  return terms !== '' && !terms.endsWith(',')
}

/** A job that waits for its children: its start cannot be estimated. */
export function waitsForChildren(terms: JobTermsText): JobTermsText {
  const [, priority = ''] = terms.split(',')
  return `w,${priority},,`
}
