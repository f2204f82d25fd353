import type { Feedback, Pause } from '../../feedback/feedback.ts'
import type { OtherAnswer, SqlAnswer } from '../answer.ts'
import { connectionFailure, unreachable } from './connection.ts'
import type { Dialect } from './dialect.ts'
import { type Because, fatal, pauseMs, pauseUnknown, retryJob, slowDown } from './said.ts'

/** One kind of failure and what it asks for. The first that matches counts. */
interface Failure {
  readonly matches: (answer: SqlAnswer) => boolean
  readonly means: string
  readonly asks: (why: Because) => readonly Feedback[]
}

/** Connections come back as statements end. */
const NO_CONNECTION_MS = 2000
/** Full, or not for this client: every probe says so again. */
const REFUSED_MS = 5000

const state =
  (pattern: RegExp) =>
  ({ sqlstate }: SqlAnswer) =>
    sqlstate !== undefined && pattern.test(sqlstate)

/** The pool's own (`pg`), and PgBouncer's, which come as 08P01. */
const NO_CONNECTION = /timeout exceeded when trying to connect|no more connections allowed|query_wait_timeout/

const NOT_CONNECTED = /^timeout expired$|^Connection terminated due to connection timeout$|\bSSL connections?$/
const CONNECTION_LOST = /^Connection terminated|^Client has encountered a connection error/

/** mysql2: MySQL sends the first three with SQLSTATEs of other meanings, and the fourth with HY000. */
const MYSQL_CONNECTIONS = new Set(['ER_CON_COUNT_ERROR', 'ER_TOO_MANY_USER_CONNECTIONS', 'ER_USER_LIMIT_REACHED'])
const MYSQL_CONFLICT = new Set(['ER_LOCK_WAIT_TIMEOUT', 'ER_LOCK_DEADLOCK'])

/**
 * PostgreSQL's SQLSTATEs (appendix A of its manual). Left out on purpose: 42xxx (a statement or a grant that is wrong is
 * the deployment's fault: the jobs are good once it is mended), 28xxx and 3Dxxx (login and database, likewise), XXxxx.
 */
const FAILURES: readonly Failure[] = [
  {
    means: 'no connection free',
    matches: (answer) =>
      answer.sqlstate === '53300' || MYSQL_CONNECTIONS.has(answer.code) || NO_CONNECTION.test(answer.text),
    asks: (why) => [{ ...pauseMs(NO_CONNECTION_MS, why), hard: false }, slowDown(why)],
  },
  { means: 'lock conflict', matches: ({ code }) => MYSQL_CONFLICT.has(code), asks: (why) => [retryJob(why)] },
  // Disk full, out of memory: no lower rate helps.
  { means: 'out of resources', matches: state(/^53/), asks: (why) => [pauseUnknown(why, true)] },
  { means: 'statement cancelled', matches: state(/^57014$/), asks: (why) => [slowDown(why), retryJob(why)] },
  { means: 'server goes down or comes up', matches: state(/^57P0[123]$/), asks: (why) => [unreachable(why)] },
  // Two transactions met; the manual says to try again, and nothing has to leave more slowly for it.
  { means: 'transaction conflict', matches: state(/^(?:40...|55P03)$/), asks: (why) => [retryJob(why)] },
  // The server refuses connections: it is full, or not for this client.
  { means: 'connection refused', matches: state(/^08004$/), asks: (why) => [pauseMs(REFUSED_MS, why)] },
  { means: 'no connection', matches: isUnconnected, asks: (why) => [unreachable(why)] },
  { means: 'connection lost', matches: isLost, asks: (why) => [lost(why)] },
  // About the row itself: asking again would get the same answer.
  { means: 'data refused', matches: state(/^2[23]/), asks: (why) => [fatal(why)] },
  // A text of `pg` about a query that was not answered is all that is left without an SQLSTATE.
  { means: 'no answer', matches: ({ sqlstate }) => sqlstate === undefined, asks: (why) => [retryJob(why)] },
]

/** 08001, and what `pg` and its pool say when they gave up connecting, or the server has no TLS for them. */
function isUnconnected({ sqlstate, text }: SqlAnswer): boolean {
  return sqlstate === '08001' || (sqlstate === undefined && NOT_CONNECTED.test(text))
}

function isLost({ sqlstate = '', text }: SqlAnswer): boolean {
  return /^08(?!P01)/.test(sqlstate) || (sqlstate === '' && CONNECTION_LOST.test(text))
}

/**
 * A transaction whose connection breaks is rolled back, but for the moment between its commit and the word of it: so the
 * job comes again, also where it may be tried only once.
 */
function lost(why: Because): Pause {
  return pauseUnknown(why, true)
}

/**
 * PostgreSQL, and MySQL as far as its errors differ. How many jobs may run at once is not said by any code; for that, see
 * `Gradient2Limit`. Reasons name SQLSTATEs and never the server's text, which quotes the data.
 */
export const sqlDialect: Dialect = (answer) => {
  if (answer.protocol === 'other') return feedbackOfSystem(answer)
  if (answer.protocol !== 'sql' || !answer.failed) return []
  const failure = FAILURES.find(({ matches }) => matches(answer))
  return failure?.asks({ reason: `SQL: ${failure.means}${codeOf(answer)}`, source: 'sqlstate' }) ?? []
}

function feedbackOfSystem(answer: OtherAnswer): readonly Feedback[] {
  const because = (means: string) => ({ reason: `SQL: ${means} (${answer.code})`, source: 'error' }) as const
  const failure = connectionFailure(answer)
  if (failure === 'none') return [unreachable(because('no connection'))]
  if (failure === 'broken') return [lost(because('connection lost'))]
  return answer.code === 'ETIMEDOUT' ? [retryJob(because('no answer'))] : []
}

function codeOf({ sqlstate, code }: SqlAnswer): string {
  if (sqlstate === undefined) return ''
  return code === '' || code === sqlstate ? ` (${sqlstate})` : ` (${sqlstate}, ${code})`
}
