import type { Job } from 'bullmq'
import type { Pool } from 'pg'
import { effectId } from 'sluice/internal'
import { DestinationRefusedError, InvalidPayloadError } from 'sluice-programs'
import { unrecoverable } from '../unrecoverable.ts'
import { Batches } from './batches.ts'
import { type WriteResult, writeBatchOnce, writeOnce } from './ledger.ts'
import { type BoundStatement, bindStatement, type DatabaseWrite, type StatementCatalog } from './statements.ts'

export interface DatabaseWriteProcessorOptions {
  readonly statements: StatementCatalog
  /** The ledger's table, `table` or `schema.table`; it must exist (`ensureLedger`). */
  readonly ledgerTable: string
  /**
   * Concurrent writes of one statement are gathered into batches of at most this size, where the statement has a
   * `batchSql`.
   */
  readonly batchRows: number
  /** How long the first of them waits for others, ms. */
  readonly batchWaitMs: number
  /** Redis key prefix of the queue: part of the ledger key. */
  readonly prefix: string
}

/** The part of a BullMQ job that a write needs. */
export type DatabaseWriteJob = Pick<Job<DatabaseWrite, WriteResult>, 'id' | 'queueName' | 'timestamp' | 'data'>

/**
 * Builds the processor of database writes. A second delivery of a job has no second effect.
 *
 * It throws BullMQ's `UnrecoverableError` for data that fits no configured statement (cause `InvalidPayloadError`) and
 * for what PostgreSQL permanently refuses (cause `DestinationRefusedError`); any other error is rethrown, to be retried
 * by the job's `attempts` and `backoff`.
 */
export function createDatabaseWriteProcessor(pool: Pool, options: DatabaseWriteProcessorOptions) {
  const { ledgerTable, batchRows, batchWaitMs } = options
  const batches = new Batches(
    { rows: batchRows, waitMs: batchWaitMs },
    {
      together: (writes) => writeBatchOnce(pool, ledgerTable, writes),
      alone: ({ entry, statement }) => writeOnce(pool, ledgerTable, entry, statement),
    },
  )
  return async (job: DatabaseWriteJob): Promise<WriteResult> => {
    const statement = bindJob(job, options.statements)
    const jobId = job.id ?? ''
    const id = effectId({ prefix: options.prefix, queueName: job.queueName, jobId, timestamp: job.timestamp })
    const entry = { effectId: id, queueName: job.queueName, jobId }
    try {
      return await batches.run({ entry, statement })
    } catch (error) {
      throw isPermanent(error) ? unrecoverable(refusal(error)) : error
    }
  }
}

function bindJob(job: DatabaseWriteJob, statements: StatementCatalog): BoundStatement {
  try {
    return bindStatement(statements, job.data)
  } catch (error) {
    throw error instanceof InvalidPayloadError ? unrecoverable(error) : error
  }
}

interface SqlError extends Error {
  code: string
}

// SQLSTATE classes about the statement and its data: 22 data exception, 23 integrity constraint, 42 syntax or access.
// All others are temporary: 08 connection, 40 rollback (deadlock, serialization), 53 resources, 57 intervention.
const PERMANENT_SQLSTATE = /^(22|23|42)[\dA-Z]{3}$/

function isPermanent(error: unknown): error is SqlError {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return false
  return PERMANENT_SQLSTATE.test(error.code)
}

function refusal(error: SqlError): DestinationRefusedError {
  // Data exceptions quote the value; a job's data must not end up in its failure reason.
  const answer = error.code.startsWith('22') ? error.message.replaceAll(/"[^"]*"/g, '"…"') : error.message
  return new DestinationRefusedError('PostgreSQL', error.code, answer, error)
}
