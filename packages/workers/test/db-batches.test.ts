import { UnrecoverableError } from 'bullmq'
import type { Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { eventsOf, Workshop } from '../../../test/worker/support.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { ensureLedger, type WriteResult } from '../src/db-writes/ledger.ts'
import { type DatabaseWriteJob, writeJobs } from '../src/db-writes/processor.ts'
import { createDatabasePool } from '../src/db-writes/program.ts'
import { parseStatements } from '../src/db-writes/statements.ts'
import { processing } from '../src/running-worker.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const LEDGER = 'batch_ledger'
const parameters = [
  { name: 'id', type: 'string' },
  { name: 'amount', type: 'integer', nullable: true },
  { name: 'details', type: 'json' },
]
const statements = parseStatements(
  JSON.stringify({
    statements: {
      order: {
        sql: 'insert into orders (id, amount, details) values ($1, $2, $3)',
        batchSql:
          'insert into orders (id, amount, details) select * from unnest($1::text[], $2::integer[], $3::jsonb[])',
        parameters,
      },
      visit: {
        sql: 'insert into visits (id) values ($1)',
        batchSql: 'insert into visits (id) select * from unnest($1::text[])',
        parameters: parameters.slice(0, 1),
      },
      single: { sql: 'insert into orders (id, amount, details) values ($1, $2, $3)', parameters },
    },
  }),
)

let server: PostgresService
let pool: Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = createDatabasePool({
    url: server.url,
    size: 2,
    statementTimeoutMs: 5000,
    onError: (error) => {
      throw error
    },
  })
})
afterAll(async () => {
  await pool.end()
  await server.stop()
})
beforeEach(async () => {
  await pool.query(`drop table if exists orders, visits, ${LEDGER}`)
  await pool.query('create table visits (id text not null)')
  // xmin tells which transaction wrote a row.
  await pool.query(
    'create table orders (id text primary key, amount integer check (amount > 0), details jsonb not null)',
  )
  const client = await pool.connect()
  await ensureLedger(client, LEDGER)
  client.release()
})

const job = (id: string, over: object = {}, statement = 'order') => ({
  id,
  queueName: 'writes',
  timestamp: 1,
  data: { statement, parameters: { id, amount: 1, details: { note: `"${id}", {x}` }, ...over } },
})

const write = (...jobs: readonly DatabaseWriteJob[]) =>
  writeJobs(pool, { statements, ledgerTable: LEDGER, prefix: 'p' }, jobs)

/** The results of jobs none of which may fail. */
async function results(...jobs: readonly DatabaseWriteJob[]): Promise<readonly WriteResult[]> {
  const ends = await write(...jobs)
  return ends.map((end) => {
    if (end.status === 'rejected') throw end.reason
    return end.value
  })
}

async function transactions(): Promise<number> {
  const { rows } = await pool.query<{ count: string }>('select count(distinct xmin::text) from orders')
  return Number(rows[0]?.count)
}

test('the writes of a batch are one statement, each with its own outcome', async () => {
  const all = await results(...['a', 'b', 'c', 'd', 'e'].map((id) => job(id, id === 'b' ? { amount: null } : {})))
  expect(all.map(({ rows, duplicate }) => ({ rows, duplicate }))).toEqual(Array(5).fill({ rows: 1, duplicate: false }))
  expect(new Set(all.map(({ effectId }) => effectId)).size).toBe(5)
  expect(await transactions()).toBe(1)
  const { rows } = await pool.query('select id, amount, details from orders order by id')
  expect(rows[0]).toEqual({ id: 'a', amount: 1, details: { note: '"a", {x}' } })
  expect(rows[1]).toMatchObject({ id: 'b', amount: null })
})

test('what PostgreSQL refuses fails for itself, and the others are written', async () => {
  const ends = await write(job('a'), job('b', { amount: -1 }), job('c'), job('d'))
  expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
  expect((ends[1] as PromiseRejectedResult).reason).toBeInstanceOf(UnrecoverableError)
  const { rows } = await pool.query('select id from orders order by id')
  expect(rows.map(({ id }) => id)).toEqual(['a', 'c', 'd'])
})

test('data that fits no statement fails for itself, and never reaches the database', async () => {
  const ends = await write(job('a', { amount: 'many' }), job('b'), job('c', {}, 'unknown'))
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected'])
  expect((await pool.query('select id from orders')).rows).toEqual([{ id: 'b' }])
})

test('of two deliveries of one job in one batch, the first writes', async () => {
  const visit = (id: string) => ({ ...job(id), data: { statement: 'visit', parameters: { id } } })
  const all = await results(visit('a'), visit('a'), visit('b'))
  expect(all.map(({ rows, duplicate }) => ({ rows, duplicate }))).toEqual([
    { rows: 1, duplicate: false },
    { rows: 0, duplicate: true },
    { rows: 1, duplicate: false },
  ])
  expect((await pool.query('select id from visits order by id')).rows).toEqual([{ id: 'a' }, { id: 'b' }])
})

test('a second delivery in a batch writes nothing, the others of the batch do', async () => {
  await results(job('a'))
  const [first, second] = await results(job('a'), job('b'))
  expect(first).toMatchObject({ duplicate: true, rows: 0 })
  expect(second).toMatchObject({ duplicate: false, rows: 1 })
  const again = await results(job('a'), job('b'))
  expect(again.map(({ duplicate }) => duplicate)).toEqual([true, true])
})

test("batches with the same jobs in another order do not stand in each other's way", async () => {
  const all = Array.from({ length: 20 }, (_, i) => job(`job-${i}`))
  const both = await Promise.all([results(...all), results(...all.toReversed())])
  expect(both.flat().filter(({ duplicate }) => !duplicate)).toHaveLength(20)
})

test('a batch has a transaction for each statement, and for each write without a batchSql', async () => {
  await results(job('a', {}, 'single'), job('b'), job('c', {}, 'single'), job('d'))
  expect(await transactions()).toBe(3)
})

test('a worker writes what it gathers as one statement, and each job has its own end', async () => {
  const queue = shop.queue({})
  const data = (id: string, amount: number) => ({ statement: 'order', parameters: { id, amount, details: {} } })
  await queue.addBulk(['a', 'b', 'c'].map((id, i) => ({ name: id, data: data(id, i - 1 || 5) })))
  const { process, batch } = processing({
    process: () => expect.unreachable('it is alone'),
    batches: { size: 3, process: (all) => write(...all) },
  })
  const worker = shop.worker(queue, process as never, { batch: batch as never })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await Promise.all([completed.reach(2), failed.reach(1)])
  expect(failed.all.map(({ name }) => name)).toEqual(['a'])
  expect(completed.all.map(({ name, returnvalue }) => [name, returnvalue.rows]).sort()).toEqual([
    ['b', 1],
    ['c', 1],
  ])
})

test('a batchSql has to use every parameter too', () => {
  const file = { statements: { order: { sql: 'select $1, $2, $3', batchSql: 'select $1', parameters } } }
  expect(() => parseStatements(JSON.stringify(file))).toThrow(
    'statements.order.batchSql: expected $1 to $3 in the SQL for 3 parameters, got $1',
  )
})
