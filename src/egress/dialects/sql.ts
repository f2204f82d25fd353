import type { Feedback, Pause } from '../../feedback/feedback.ts'
import type { OtherAnswer, SqlAnswer } from '../answer.ts'
import { type Because, fatal, pauseMs, pauseUnknown, retryJob, slowDown } from './build-feedback.ts'
import { connectionFailure, unreachable } from './connection.ts'
import type { Dialect } from './dialect.ts'

/** One kind of failure and its feedback. The first that matches counts. */
interface Failure {
  readonly matches: (answer: SqlAnswer) => boolean
  readonly means: string
  readonly asks: (why: Because) => readonly Feedback[]
}

/** Connections become free as statements end. */
const NO_CONNECTION_MS = 2000
/** Full, or closed to this client: every probe gets the same answer. */
const REFUSED_MS = 5000

const state =
  (pattern: RegExp) =>
  ({ sqlstate }: SqlAnswer) =>
    sqlstate !== undefined && pattern.test(sqlstate)

/** Messages of the pool (`pg`), and of PgBouncer, which come as 08P01. */
const NO_CONNECTION = /timeout exceeded when trying to connect|no more connections allowed|query_wait_timeout/

const NOT_CONNECTED = /^timeout expired$|^Connection terminated due to connection timeout$|\bSSL connections?$/
const CONNECTION_LOST = /^Connection terminated|^Client has encountered a connection error/

/** mysql2: MySQL sends the first three with SQLSTATEs of other meanings, and ER_LOCK_WAIT_TIMEOUT with HY000. */
const MYSQL_CONNECTIONS = new Set(['ER_CON_COUNT_ERROR', 'ER_TOO_MANY_USER_CONNECTIONS', 'ER_USER_LIMIT_REACHED'])
const MYSQL_CONFLICT = new Set(['ER_LOCK_WAIT_TIMEOUT', 'ER_LOCK_DEADLOCK'])

/**
 * PostgreSQL's SQLSTATEs (appendix A of its manual). Left out on purpose: 42xxx (a wrong statement or grant is the
 * deployment's fault: the jobs are good once it is fixed), 28xxx and 3Dxxx (login and database, likewise), XXxxx.
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
  // Two transactions conflicted; the manual says to retry, and the rate need not fall.
  { means: 'transaction conflict', matches: state(/^(?:40...|55P03)$/), asks: (why) => [retryJob(why)] },
  // The server refuses connections: it is full, or closed to this client.
  { means: 'connection refused', matches: state(/^08004$/), asks: (why) => [pauseMs(REFUSED_MS, why)] },
  { means: 'no connection', matches: isUnconnected, asks: (why) => [unreachable(why)] },
  { means: 'connection lost', matches: isLost, asks: (why) => [lost(why)] },
  // About the row itself: a retry would get the same answer.
  { means: 'data refused', matches: state(/^2[23]/), asks: (why) => [fatal(why)] },
  // Without an SQLSTATE, only a message of `pg` about an unanswered query is left.
  { means: 'no answer', matches: ({ sqlstate }) => sqlstate === undefined, asks: (why) => [retryJob(why)] },
]

/** 08001, and the messages of `pg` and its pool when they give up connecting, or if the server has no TLS. */
function isUnconnected({ sqlstate, text }: SqlAnswer): boolean {
  return sqlstate === '08001' || (sqlstate === undefined && NOT_CONNECTED.test(text))
}

function isLost({ sqlstate = '', text }: SqlAnswer): boolean {
  return /^08(?!P01)/.test(sqlstate) || (sqlstate === '' && CONNECTION_LOST.test(text))
}

/**
 * A transaction whose connection breaks is rolled back, except between its commit and the confirmation: so the job is
 * retried, even if it allows only one attempt.
 */
function lost(why: Because): Pause {
  return pauseUnknown(why, true)
}

/**
 * PostgreSQL, and MySQL as far as its errors differ. No code implies how many jobs may run at once; for that, see
 * `Gradient2Limit`. Reasons name SQLSTATEs and never the server's message, which quotes data.
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
