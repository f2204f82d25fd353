import { Pool } from 'pg'

export interface DatabasePoolOptions {
  /** `postgres://` URL, credentials included. */
  readonly url: string
  /** Maximum number of connections. */
  readonly size: number
  /** After this many milliseconds, PostgreSQL cancels a statement, or ends a transaction that idles. */
  readonly statementTimeoutMs: number
  /** Called when an idle connection breaks. */
  readonly onError: (error: Error) => void
}

const CONNECT_TIMEOUT_MS = 10_000
// The server's own timeout should fire first, since its error says what happened. This one is for a server that no
// longer answers.
const NO_ANSWER_MARGIN_MS = 5000

/** A pool of PostgreSQL connections on which nothing can hang forever. */
export function createDatabasePool({ url, size, statementTimeoutMs, onError }: DatabasePoolOptions): Pool {
  const pool = new Pool({
    connectionString: url,
    max: size,
    application_name: 'sluice-db-writes',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: statementTimeoutMs,
    query_timeout: statementTimeoutMs + NO_ANSWER_MARGIN_MS,
    keepAlive: true,
  })
  pool.on('error', onError)
  return pool
}
