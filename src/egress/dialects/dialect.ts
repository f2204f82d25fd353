import type { Feedback } from '../../feedback/feedback.ts'
import type { Answer, HttpAnswer } from '../answer.ts'

/** The limits of the shape that stand for the quotas of a service: limit by quota. */
export type QuotaLimits = Readonly<Record<string, string>>

/**
 * How the answers of one downstream are read. Never throws, whatever the downstream sent. The first entry is about the
 * fleet, if any is. An empty list means that nothing is known: an ordinary failure, for the job's `attempts` to decide.
 * `quota`: that of the profile.
 */
export type Dialect<A extends Answer = Answer> = (answer: A, quota?: QuotaLimits) => readonly Feedback[]

export type HttpDialect = Dialect<HttpAnswer>
