import type { JobJson } from 'bullmq'
import type { JobTerms } from './job-options.ts'

/** What `lua/lib/terms.lua` reads: '' where there is nothing, else place, priority, delay and deadline (ms). */
export type JobTermsText = string

/** Where a new job will stand in its queue, and when it must have started. */
export function termsOf(job: Pick<JobJson, 'opts'>): JobTermsText {
  const { priority, lifo, delay, mustStartBefore } = job.opts as JobJson['opts'] & JobTerms
  if (!priority && !lifo && !delay && mustStartBefore === undefined) return ''
  const delayMs = delay ? Math.max(0, Math.ceil(delay)) : 0
  // A stock queue checks no deadline.
  const deadline = Number.isSafeInteger(mustStartBefore) ? Math.max(0, mustStartBefore as number) : ''
  return `${lifo ? 'l' : ''},${priority || ''},${delayMs || ''},${deadline}`
}

export function hasDeadline(terms: JobTermsText): boolean {
  return terms !== '' && !terms.endsWith(',')
}

/** A job that waits for its children: nobody knows when it could start. */
export function waitsForChildren(terms: JobTermsText): JobTermsText {
  const [, priority = ''] = terms.split(',')
  return `w,${priority},,`
}
