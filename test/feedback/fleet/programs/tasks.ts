import type { Job } from 'bullmq'
import { createDatabaseWriteProcessor } from '../../../../packages/workers/src/db-writes/processor.ts'
import { createDatabasePool } from '../../../../packages/workers/src/db-writes/program.ts'
import { parseStatements } from '../../../../packages/workers/src/db-writes/statements.ts'
import { createEmailProcessor } from '../../../../packages/workers/src/email/processor.ts'
import { createMailTransport } from '../../../../packages/workers/src/email/transport.ts'
import type { Task } from '../support/messages.ts'
import { callHttp } from './http-call.ts'

/** What runs jobs. */
export interface Caller {
  call(job: Job): Promise<unknown>
  close(): Promise<unknown>
}

/** @param slotOf the slot with which a job departed last, µs on Redis's clock */
export function openTask(task: Task, prefix: string, slotOf: (jobId: string) => number): Caller {
  if (task.kind === 'http') return { call: (job) => callHttp(task, job, slotOf(job.id ?? '')), close: async () => {} }
  return task.kind === 'email' ? openMail(task.url, prefix) : openDatabase(task, prefix)
}

function openMail(url: string, prefix: string): Caller {
  const transport = createMailTransport({ url, timeoutMs: 10_000 })
  const call = createEmailProcessor(transport, { prefix, allowMultipleRecipients: false })
  return { call, close: async () => transport.close() }
}

function openDatabase({ url, poolSize, sql }: Extract<Task, { kind: 'write' }>, prefix: string): Caller {
  const statement = { sql, parameters: [{ name: 'id', type: 'string' }] }
  const pool = createDatabasePool({ url, size: poolSize, statementTimeoutMs: 10_000, onError: () => {} })
  const call = createDatabaseWriteProcessor(pool, {
    statements: parseStatements(JSON.stringify({ statements: { write: statement } })),
    ...{ ledgerTable: 'sluice_ledger', prefix },
  })
  return { call, close: () => pool.end() }
}
