import type { Feedback } from '../../feedback/feedback.ts'
import type { Answer, HttpAnswer } from '../answer.ts'

/**
 * How one peer's answers are read. Never throws, whatever the peer sent. The first entry is about the fleet, where there
 * is one. An empty list: nothing is known, the job has failed as any job fails and its `attempts` decide.
 */
export type Dialect<A extends Answer = Answer> = (answer: A) => readonly Feedback[]

export type HttpDialect = Dialect<HttpAnswer>
