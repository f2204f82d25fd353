import { Client, Pool } from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { answerOf } from '../../../src/egress/answers/answer-of.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'

const at = { receivedAtMs: 1_800_000_000_000, latencyMs: 12 }

let server: PostgresService

beforeAll(async () => {
  server = await startPostgres()
})

afterAll(() => server.stop())

function pool(max = 1): Pool {
  const made = new Pool({ connectionString: server.url, max })
  made.on('error', () => {})
  onTestFinished(() => made.end())
  return made
}

async function failed(run: () => Promise<unknown>) {
  const threw = await run().then(
    () => expect.unreachable('it worked'),
    (reason: unknown) => reason,
  )
  return answerOf({ threw }, at)
}

test.each([
  ['a cancelled statement', 'set statement_timeout = 1; select pg_sleep(10)', '57014'],
  ['a wrong value', "select 'x'::int", '22P02'],
  ['a wrong statement', 'select from nowhere', '42P01'],
])('pg: %s', async (_, text, sqlstate) => {
  expect(await failed(() => pool().query(text))).toMatchObject({
    ...{ protocol: 'sql', failed: true, sqlstate, code: sqlstate, latencyMs: 12 },
  })
})

test('pg: too many connections', async () => {
  const admin = pool()
  await admin.query('create role few login connection limit 1')
  const url = server.url.replace('postgres@', 'few@')
  const [one, two] = [new Client(url), new Client(url)]
  await one.connect()
  onTestFinished(() => one.end())
  expect(await failed(() => two.connect())).toMatchObject({ protocol: 'sql', sqlstate: '53300' })
})

test('pg-pool: no connection became free in time', async () => {
  const small = pool()
  const held = await small.connect()
  // Only now: a busy machine may take longer than that to connect.
  small.options.connectionTimeoutMillis = 1
  const answer = await failed(() => small.query('select 1'))
  held.release()
  expect(answer).toMatchObject({ protocol: 'sql', text: 'timeout exceeded when trying to connect' })
  expect(answer).not.toHaveProperty('sqlstate')
})

test('pg: the server ended the session', async () => {
  const client = new Client(server.url)
  client.on('error', () => {})
  await client.connect()
  const answer = await failed(() => client.query('select pg_terminate_backend(pg_backend_pid())'))
  expect(answer).toMatchObject({ protocol: 'sql', sqlstate: '57P01' })
})

test('an error in causes and in parts of an AggregateError is found', () => {
  const refused = Object.assign(new Error('duplicate key'), { code: '23505', severity: 'ERROR' })
  const threw = new Error('job failed', { cause: new AggregateError([new Error('first'), refused]) })
  expect(answerOf({ threw }, at)).toMatchObject({ protocol: 'sql', sqlstate: '23505', text: 'duplicate key' })
})

test('mysql2: SQLSTATE and the name of the error', () => {
  const fields = { code: 'ER_CON_COUNT_ERROR', errno: 1040, sqlState: '08004', sqlMessage: 'Too many connections' }
  const threw = Object.assign(new Error('Too many connections'), fields)
  expect(answerOf({ threw }, at)).toMatchObject({ protocol: 'sql', sqlstate: '08004', code: 'ER_CON_COUNT_ERROR' })
})

test.each([
  ['five letters that are no SQLSTATE', { code: 'EPIPE' }],
  ['a severity without an SQLSTATE', { code: 'E_LONG_CODE', severity: 'ERROR' }],
])('%s are no answer of a database', (_, fields) => {
  expect(answerOf({ threw: Object.assign(new Error('x'), fields) }, at)).toMatchObject({ protocol: 'other' })
})
