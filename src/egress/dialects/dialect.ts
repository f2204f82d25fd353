import type { Feedback } from '../../feedback/feedback.ts'
import type { Answer, HttpAnswer } from '../answer.ts'

/** The limits of the shape that stand for the quotas of a service: limit by quota. */
export type QuotaLimits = Readonly<Record<string, string>>

/**
 * Reads the answers of one downstream. Never throws, whatever the downstream sent. An entry about the fleet comes
 * first. An empty list means an ordinary failure: the job's `attempts` decide. `quota`: that of the profile.
 */
export type Dialect<A extends Answer = Answer> = (answer: A, quota?: QuotaLimits) => readonly Feedback[]

export type HttpDialect = Dialect<HttpAnswer>
