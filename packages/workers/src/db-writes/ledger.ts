import { type ClientBase, DatabaseError, type Pool, type PoolClient } from 'pg'
import { querySingle } from './single-statement.ts'
import type { BoundStatement } from './statements.ts'

// Any fixed number. The lock keeps workers that start together from creating the table at the same time.
const CREATE_LOCK = 7_208_352

/** What the ledger stores of one effect. */
export interface LedgerEntry {
  readonly effectId: string
  readonly queueName: string
  readonly jobId: string
}

export interface WriteResult {
  readonly effectId: string
  readonly statement: string
  /** Rows that the statement affected in this delivery (in a batch, the mean per write); 0 for a duplicate. */
  readonly rows: number
  /** An earlier delivery of the same job had already been committed: nothing was written. */
  readonly duplicate: boolean
}

/** Creates the ledger table if it is missing. A role that may not create tables needs an existing one. */
export async function ensureLedger(client: ClientBase, table: string): Promise<void> {
  if (await tableExists(client, table)) return
  await client.query('begin')
  try {
    await client.query('select pg_advisory_xact_lock($1)', [CREATE_LOCK])
    await client.query(`create table if not exists ${quoteTable(table)} (
      effect_id text primary key,
      queue text not null,
      job_id text not null,
      statement text not null,
      applied_at timestamptz not null default clock_timestamp()
    )`)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
}

/**
 * Runs a statement once for all deliveries of a job: the ledger row and the effect are one transaction.
 *
 * A concurrent delivery waits on the ledger row until the first one ends: if that commits, this one is a duplicate; if
 * that rolls back, this one does the work. If the reply to a commit is lost, the next delivery finds the ledger row.
 */
export function writeOnce(
  pool: Pool,
  table: string,
  entry: LedgerEntry,
  statement: BoundStatement,
): Promise<WriteResult> {
  return inTransaction(pool, (client) => runStatement(client, table, entry, statement))
}

/**
 * The same for several jobs of one statement, in one transaction: jobs that were already written are left out.
 * @param writes in the order of their effect ids, so that two batches with the same jobs do not wait for each other
 * @returns the result of each, in that order
 */
export function writeBatchOnce(pool: Pool, table: string, writes: readonly Write[]): Promise<readonly WriteResult[]> {
  return inTransaction(pool, async (client) => {
    const columns = [
      writes.map(({ entry }) => entry.effectId),
      writes.map(({ entry }) => entry.queueName),
      writes.map(({ entry }) => entry.jobId),
      writes.map(({ statement }) => statement.name),
    ]
    const claimed = await client.query<{ effect_id: string }>(
      `insert into ${quoteTable(table)} (effect_id, queue, job_id, statement)
        select * from unnest($1::text[], $2::text[], $3::text[], $4::text[]) on conflict do nothing returning effect_id`,
      columns,
    )
    const unwritten = new Set(claimed.rows.map(({ effect_id }) => effect_id))
    // Of two deliveries of one job, the first writes.
    const fresh = writes.filter(({ entry }) => unwritten.delete(entry.effectId))
    const [first] = fresh
    const { batchSql = '', values = [] } = first?.statement ?? {}
    const arrays = values.map((_, i) => fresh.map(({ statement }) => statement.values[i]))
    const rows = first ? (await querySingle(client, batchSql, arrays)).rowCount : 0
    return writes.map((write) => {
      const { entry, statement } = write
      const duplicate = !fresh.includes(write)
      return {
        effectId: entry.effectId,
        statement: statement.name,
        rows: duplicate ? 0 : (rows ?? 0) / fresh.length,
        duplicate,
      }
    })
  })
}

export interface Write {
  readonly entry: LedgerEntry
  readonly statement: BoundStatement
}

async function inTransaction<T>(pool: Pool, run: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  let broken: Error | undefined
  const onError = (error: Error) => {
    broken = error
  }
  // A connection that breaks between two queries emits here; without a listener the process would exit.
  client.on('error', onError)
  try {
    await client.query('begin')
    const result = await run(client)
    await client.query('commit')
    return result
  } catch (error) {
    broken ??= await rollBack(client, error)
    throw isUnanswered(error) ? connectionLost() : error
  } finally {
    client.off('error', onError)
    // A connection in an unknown state is destroyed rather than reused.
    client.release(broken)
  }
}

/** The error of `pg` after `query_timeout`. */
function isUnanswered(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}

/**
 * PostgreSQL ends a statement that is slow well before `query_timeout`. So where no answer comes, it or the network is
 * gone: that says nothing about the job, which is retried as after a connection that was closed. Profiles read causes
 * too: the time-out is none.
 */
function connectionLost(): Error {
  return Object.assign(new Error('PostgreSQL did not answer: the connection was given up'), { code: 'ECONNRESET' })
}

/** Resolves to an error if the connection must not be reused; the server then rolls back its transaction. */
async function rollBack(client: PoolClient, reason: unknown): Promise<Error | undefined> {
  // An error without an SQLSTATE is not from the server: the connection may still be busy with the query.
  if (!(reason instanceof DatabaseError)) return reason instanceof Error ? reason : new Error(String(reason))
  try {
    await client.query('rollback')
    return undefined
  } catch (error) {
    return error as Error
  }
}

async function runStatement(
  client: PoolClient,
  table: string,
  { effectId, queueName, jobId }: LedgerEntry,
  { name, sql, values }: BoundStatement,
): Promise<WriteResult> {
  const claim = await client.query(
    `insert into ${quoteTable(table)} (effect_id, queue, job_id, statement) values ($1, $2, $3, $4) on conflict do nothing`,
    [effectId, queueName, jobId, name],
  )
  const duplicate = claim.rowCount === 0
  const written = duplicate ? undefined : await querySingle(client, sql, values)
  return { effectId, statement: name, rows: written?.rowCount ?? 0, duplicate }
}

async function tableExists(client: ClientBase, table: string): Promise<boolean> {
  const { rows } = await client.query<{ present: boolean }>('select to_regclass($1) is not null as present', [
    quoteTable(table),
  ])
  return rows[0]?.present ?? false
}

/** `schema.table` or `table`, quoted part by part. */
function quoteTable(table: string): string {
  return table
    .split('.')
    .map((part) => `"${part.replaceAll('"', '""')}"`)
    .join('.')
}
