import type { Job } from 'bullmq'
import { DatabaseError, type Pool } from 'pg'
import { effectId } from 'sluice/internal'
import { DestinationRefusedError, InvalidPayloadError } from 'sluice-programs'
import { unrecoverable } from '../unrecoverable.ts'
import { type Write, type WriteResult, writeBatchOnce, writeOnce } from './ledger.ts'
import { bindStatement, type DatabaseWrite, type StatementCatalog } from './statements.ts'

export interface DatabaseWriteProcessorOptions {
  readonly statements: StatementCatalog
  /** The ledger's table, `table` or `schema.table`; it must exist (`ensureLedger`). */
  readonly ledgerTable: string
  /** Redis key prefix of the queue: part of the ledger key. */
  readonly prefix: string
}

/** The part of a BullMQ job that a write needs. */
export type DatabaseWriteJob = Pick<Job<DatabaseWrite, WriteResult>, 'id' | 'queueName' | 'timestamp' | 'data'>

/** Builds the processor of single database writes, which ends as {@link writeJobs} says. */
export function createDatabaseWriteProcessor(pool: Pool, options: DatabaseWriteProcessorOptions) {
  return async (job: DatabaseWriteJob): Promise<WriteResult> => {
    const [end] = (await writeJobs(pool, options, [job])) as [End]
    if (end.status === 'rejected') throw end.reason
    return end.value
  }
}

/**
 * Writes several jobs, those of one statement with a `batchSql` together, and the others alone. A second delivery of a job
 * has no second effect.
 *
 * A job is rejected with BullMQ's `UnrecoverableError` for data that fits no configured statement (cause
 * `InvalidPayloadError`) and for what PostgreSQL permanently refuses (cause `DestinationRefusedError`), and with any other
 * error to be retried by its `attempts` and `backoff`.
 * @returns the end of each, in their order
 */
export async function writeJobs(
  pool: Pool,
  options: DatabaseWriteProcessorOptions,
  jobs: readonly DatabaseWriteJob[],
): Promise<readonly End[]> {
  const writes = jobs.map((job) => writeOf(job, options))
  const lists = listsOf(writes.filter((write): write is Write => !(write instanceof Error)))
  const ends = await Promise.all(lists.map((list) => writeList(pool, options.ledgerTable, list)))
  const endOf = new Map(ends.flat())
  return writes.map((write) => (write instanceof Error ? rejected(write) : (endOf.get(write) as End)))
}

type End = PromiseSettledResult<WriteResult>

/** Writes that are one transaction: those of a statement with a `batchSql`, and each other one by itself. */
function listsOf(writes: readonly Write[]): readonly (readonly Write[])[] {
  const alone: Write[][] = []
  const together = new Map<string, Write[]>()
  for (const write of writes) {
    const { name, batchSql } = write.statement
    const list = together.get(name)
    if (batchSql === undefined) alone.push([write])
    else if (list) list.push(write)
    else together.set(name, [write])
  }
  return [...alone, ...together.values()]
}

/**
 * Each write has its own end: when PostgreSQL refuses a transaction of several because of its data, each of them runs
 * alone, so that only the invalid ones fail.
 */
async function writeList(
  pool: Pool,
  table: string,
  list: readonly Write[],
): Promise<readonly (readonly [Write, End])[]> {
  const sorted = list.toSorted((a, b) => (a.entry.effectId < b.entry.effectId ? -1 : 1))
  if (sorted.length > 1) {
    try {
      const results = await writeBatchOnce(pool, table, sorted)
      return sorted.map((write, i) => [write, { status: 'fulfilled', value: results[i] as WriteResult }])
    } catch (error) {
      if (!isAboutData(error)) return sorted.map((write) => [write, rejected(error)])
    }
  }
  const ends = await Promise.allSettled(sorted.map(({ entry, statement }) => writeOnce(pool, table, entry, statement)))
  return sorted.map((write, i) => {
    const end = ends[i] as End
    return [write, end.status === 'fulfilled' ? end : rejected(end.reason)]
  })
}

function rejected(error: unknown): PromiseRejectedResult {
  return { status: 'rejected', reason: isPermanent(error) ? unrecoverable(refusal(error)) : error }
}

/** @returns an error for data that fits no statement */
function writeOf(job: DatabaseWriteJob, { statements, prefix }: DatabaseWriteProcessorOptions): Write | Error {
  try {
    const { id: jobId = '', queueName, timestamp } = job
    const entry = { effectId: effectId({ prefix, queueName, jobId, timestamp }), queueName, jobId }
    return { entry, statement: bindStatement(statements, job.data) }
  } catch (error) {
    return error instanceof InvalidPayloadError ? unrecoverable(error) : (error as Error)
  }
}

interface SqlError extends Error {
  code: string
}

// SQLSTATE classes about the statement and its data: 22 data exception, 23 integrity constraint, 42 syntax or access.
// All others are temporary: 08 connection, 40 rollback (deadlock, serialization), 53 resources, 57 intervention.
const PERMANENT_SQLSTATE = /^(22|23|42)[\dA-Z]{3}$/

function isAboutData(error: unknown): boolean {
  return error instanceof DatabaseError && /^2[23]/.test(error.code ?? '')
}

function isPermanent(error: unknown): error is SqlError {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return false
  return PERMANENT_SQLSTATE.test(error.code)
}

function refusal(error: SqlError): DestinationRefusedError {
  // Data exceptions quote the value; a job's data must not end up in its failure reason.
  const answer = error.code.startsWith('22') ? error.message.replaceAll(/"[^"]*"/g, '"…"') : error.message
  return new DestinationRefusedError('PostgreSQL', error.code, answer, error)
}
