import type { SqlAnswer } from '../answer.ts'
import type { Feedback } from '../feedback.ts'
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
/** A server that restarts is back in seconds; while it is not, every probe says so again. */
const RESTART_MS = 5000

const state =
  (pattern: RegExp) =>
  ({ sqlstate }: SqlAnswer) =>
    sqlstate !== undefined && pattern.test(sqlstate)

/** The pool's own (`pg`), and PgBouncer's, which come as 08P01. */
const NO_CONNECTION = /timeout exceeded when trying to connect|no more connections allowed|query_wait_timeout/

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
  {
    means: 'server goes down or comes up',
    matches: state(/^57P0[123]$/),
    asks: (why) => [pauseMs(RESTART_MS, why)],
  },
  // Two transactions met; the manual says to try again, and nothing has to leave more slowly for it.
  { means: 'transaction conflict', matches: state(/^(?:40...|55P03)$/), asks: (why) => [retryJob(why)] },
  // The server refuses connections: it is full, or not for this client.
  { means: 'connection refused', matches: state(/^08004$/), asks: (why) => [pauseMs(RESTART_MS, why)] },
  { means: 'connection lost', matches: state(/^08(?!P01)/), asks: (why) => [retryJob(why)] },
  // About the row itself: asking again would get the same answer.
  { means: 'data refused', matches: state(/^2[23]/), asks: (why) => [fatal(why)] },
  // A text of `pg` about a connection is all that comes without an SQLSTATE.
  { means: 'connection lost', matches: ({ sqlstate }) => sqlstate === undefined, asks: (why) => [retryJob(why)] },
]

/** Failures of the way to the server, as the system names them. */
const BROKEN_CONNECTION = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN'],
])

/**
 * PostgreSQL, and MySQL as far as its errors differ. How many jobs may run at once is not said by any code; for that, see
 * `Gradient2Limit`. Reasons name SQLSTATEs and never the server's text, which quotes the data.
 */
export const sqlDialect: Dialect = (answer) => {
  if (answer.protocol === 'other' && BROKEN_CONNECTION.has(answer.code)) {
    return [retryJob({ reason: `SQL: connection lost (${answer.code})`, source: 'error' })]
  }
  if (answer.protocol !== 'sql' || !answer.failed) return []
  const failure = FAILURES.find(({ matches }) => matches(answer))
  return failure?.asks({ reason: `SQL: ${failure.means}${codeOf(answer)}`, source: 'sqlstate' }) ?? []
}

function codeOf({ sqlstate, code }: SqlAnswer): string {
  if (sqlstate === undefined) return ''
  return code === '' || code === sqlstate ? ` (${sqlstate})` : ` (${sqlstate}, ${code})`
}
