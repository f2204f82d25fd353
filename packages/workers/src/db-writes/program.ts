import { readFileSync } from 'node:fs'
import { type ClientBase, Pool } from 'pg'
import { profiles } from 'sluice/egress'
import {
  createErrorLog,
  hostOf,
  readBy,
  reasonOf,
  type SettingsOf,
  type SettingTable,
  StartError,
  textLike,
  urlWith,
  wholeNumber,
} from 'sluice-programs'
import { commonTable } from '../common-settings.ts'
import type { WorkerProgram } from '../worker-program.ts'
import { ensureLedger } from './ledger.ts'
import { createDatabaseWriteProcessor, writeJobs } from './processor.ts'
import { querySingle } from './single-statement.ts'
import { parseStatements, type StatementCatalog } from './statements.ts'

const databaseTable = {
  ...commonTable('db-writes'),
  databaseUrl: {
    variable: 'DATABASE_URL',
    expected: 'a postgres:// or postgresql:// URL',
    schema: urlWith(['postgres:', 'postgresql:']),
    secret: true,
  },
  statements: {
    variable: 'STATEMENTS',
    expected: 'a JSON file: {"statements": {"name": {"sql": "…", "parameters": [{"name": "…", "type": "…"}]}}}',
    schema: readBy(readStatements),
  },
  poolSize: {
    variable: 'POOL_SIZE',
    expected: 'a whole number from 1: database connections, never more than CONCURRENCY',
    schema: wholeNumber(1, 1000),
    fallback: '10',
  },
  statementTimeoutMs: {
    variable: 'STATEMENT_TIMEOUT_MS',
    expected: 'milliseconds from 100: PostgreSQL cancels a statement after this time',
    schema: wholeNumber(100, 600_000),
    fallback: '10000',
  },
  batchRows: {
    variable: 'BATCH_ROWS',
    expected:
      'a whole number from 1 to 1000: jobs per batch (CONCURRENCY counts each one); writes with batchSql run as one statement',
    schema: wholeNumber(1, 1000),
    fallback: '1',
  },
  batchWaitMs: {
    variable: 'BATCH_WAIT_MS',
    expected: 'milliseconds from 0: how long the first job of a batch waits for others',
    schema: wholeNumber(0, 60_000),
    fallback: '5',
  },
  ledgerTable: {
    variable: 'LEDGER_TABLE',
    expected: 'a table name, or schema.table: lower-case letters, digits and underscores',
    schema: textLike(/^([a-z_][a-z\d_]{0,62}\.)?[a-z_][a-z\d_]{0,62}$/),
    fallback: 'sluice_ledger',
  },
} as const satisfies SettingTable

/** Runs each job of a queue as one configured statement against PostgreSQL, once. */
export const databaseWritesProgram: WorkerProgram<SettingsOf<typeof databaseTable>> = {
  name: 'db-writes',
  purpose: 'Runs each job of a queue as one configured PostgreSQL statement, at the rate of the queue and only once.',
  jobFormat: '{ statement: name of a configured statement, parameters: { name: value } }',
  settings: databaseTable,
  async open(settings, log) {
    const pool = createDatabasePool({
      url: settings.databaseUrl,
      size: Math.min(settings.poolSize, settings.concurrency),
      statementTimeoutMs: settings.statementTimeoutMs,
      onError: createErrorLog(log),
    })
    try {
      await prepareDatabase(pool, settings.ledgerTable, settings.statements)
    } catch (error) {
      await pool.end()
      if (error instanceof StartError) throw error
      throw new StartError(`cannot use PostgreSQL at ${hostOf(settings.databaseUrl)}`, error)
    }
    return {
      process: createDatabaseWriteProcessor(pool, settings),
      ...(settings.batchRows > 1 && {
        batches: { ...batchOf(settings), process: (jobs) => writeJobs(pool, settings, jobs) },
      }),
      feedback: profiles.postgres,
      close: () => pool.end(),
    }
  },
}

function batchOf({ batchRows: size, batchWaitMs: timeoutMs }: { batchRows: number; batchWaitMs: number }) {
  return { size, ...(timeoutMs > 0 && { minSize: size, timeoutMs }) }
}

async function prepareDatabase(pool: Pool, ledgerTable: string, statements: StatementCatalog): Promise<void> {
  const client = await pool.connect()
  try {
    await ensureLedger(client, ledgerTable)
    await checkStatements(client, statements)
  } finally {
    client.release()
  }
}

function readStatements(path: string): StatementCatalog {
  try {
    return parseStatements(readFileSync(path, 'utf8'))
  } catch (error) {
    // One line for each problem in the file, or one line if the file cannot be read.
    const lines = error instanceof Error ? error.message.split('\n') : [reasonOf(error)]
    throw new Error(lines.map((line) => `${path}: ${line}`).join('\n'))
  }
}

/**
 * Has PostgreSQL parse every statement without running it, so that a misspelt table fails the start rather than every
 * job.
 * @throws StartError naming the first statement that PostgreSQL does not accept.
 */
export async function checkStatements(client: ClientBase, statements: StatementCatalog): Promise<void> {
  for (const [name, { sql, batchSql }] of statements) {
    for (const text of batchSql === undefined ? [sql] : [sql, batchSql]) {
      try {
        await querySingle(client, `prepare sluice_check as ${text}`)
      } catch (error) {
        throw new StartError(`statement "${name}" is not accepted by PostgreSQL`, error)
      }
      await client.query('deallocate sluice_check')
    }
  }
}

interface DatabasePoolOptions {
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
