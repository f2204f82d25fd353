import { UnrecoverableError } from 'bullmq'
import type { Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { ensureLedger } from '../src/db-writes/ledger.ts'
import { createDatabasePool } from '../src/db-writes/pool.ts'
import { createDatabaseWriteProcessor } from '../src/db-writes/processor.ts'
import { parseStatements } from '../src/db-writes/statements.ts'

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

function processor(batchRows: number, batchWaitMs: number) {
  return createDatabaseWriteProcessor(pool, { statements, ledgerTable: LEDGER, batchRows, batchWaitMs, prefix: 'p' })
}

async function transactions(): Promise<number> {
  const { rows } = await pool.query<{ count: string }>('select count(distinct xmin::text) from orders')
  return Number(rows[0]?.count)
}

test('writes that run at the same time are one statement, each with its own outcome', async () => {
  // Nothing but the number of them ends the wait.
  const run = processor(5, 60_000)
  const results = await Promise.all(
    ['a', 'b', 'c', 'd', 'e'].map((id) => run(job(id, id === 'b' ? { amount: null } : {}))),
  )
  expect(results.map(({ rows, duplicate }) => ({ rows, duplicate }))).toEqual(
    Array(5).fill({ rows: 1, duplicate: false }),
  )
  expect(new Set(results.map(({ effectId }) => effectId)).size).toBe(5)
  expect(await transactions()).toBe(1)
  const { rows } = await pool.query('select id, amount, details from orders order by id')
  expect(rows[0]).toEqual({ id: 'a', amount: 1, details: { note: '"a", {x}' } })
  expect(rows[1]).toMatchObject({ id: 'b', amount: null })
})

test('fewer of them wait for no longer than the first may', async () => {
  const run = processor(100, 1)
  await Promise.all(['a', 'b'].map((id) => run(job(id))))
  expect(await transactions()).toBe(1)
})

test('what PostgreSQL refuses fails for itself, and the others are written', async () => {
  const run = processor(4, 60_000)
  const ends = await Promise.allSettled([run(job('a')), run(job('b', { amount: -1 })), run(job('c')), run(job('d'))])
  expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
  expect((ends[1] as PromiseRejectedResult).reason).toBeInstanceOf(UnrecoverableError)
  const { rows } = await pool.query('select id from orders order by id')
  expect(rows.map(({ id }) => id)).toEqual(['a', 'c', 'd'])
})

test('of two deliveries of one job in one batch, the first writes', async () => {
  const run = processor(3, 60_000)
  const visit = (id: string) => run({ ...job(id), data: { statement: 'visit', parameters: { id } } })
  const results = await Promise.all([visit('a'), visit('a'), visit('b')])
  expect(results.map(({ rows, duplicate }) => ({ rows, duplicate }))).toEqual([
    { rows: 1, duplicate: false },
    { rows: 0, duplicate: true },
    { rows: 1, duplicate: false },
  ])
  expect((await pool.query('select id from visits order by id')).rows).toEqual([{ id: 'a' }, { id: 'b' }])
})

test('a second delivery in a batch writes nothing, the others of the batch do', async () => {
  await processor(1, 0)(job('a'))
  const run = processor(2, 60_000)
  const [first, second] = await Promise.all([run(job('a')), run(job('b'))])
  expect(first).toMatchObject({ duplicate: true, rows: 0 })
  expect(second).toMatchObject({ duplicate: false, rows: 1 })
  const again = await Promise.all([run(job('a')), run(job('b'))])
  expect(again.map(({ duplicate }) => duplicate)).toEqual([true, true])
})

test("batches with the same jobs in another order do not stand in each other's way", async () => {
  const [one, other] = [processor(20, 60_000), processor(20, 60_000)]
  const ids = Array.from({ length: 20 }, (_, i) => `job-${i}`)
  const results = await Promise.all([...ids.map((id) => one(job(id))), ...ids.toReversed().map((id) => other(job(id)))])
  expect(results.filter(({ duplicate }) => !duplicate)).toHaveLength(20)
})

test('a statement without a batchSql runs by itself', async () => {
  const run = processor(2, 60_000)
  await Promise.all([run(job('a', {}, 'single')), run(job('b', {}, 'single'))])
  expect(await transactions()).toBe(2)
})

test('a batchSql has to use every parameter too', () => {
  const file = { statements: { order: { sql: 'select $1, $2, $3', batchSql: 'select $1', parameters } } }
  expect(() => parseStatements(JSON.stringify(file))).toThrow(
    'statements.order.batchSql: expected $1 to $3 in the SQL for 3 parameters, got $1',
  )
})
