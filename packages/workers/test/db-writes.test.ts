import { UnrecoverableError } from 'bullmq'
import { Pool, type PoolClient } from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { DestinationRefusedError, InvalidPayloadError, StartError } from '../../programs/src/errors.ts'
import { ensureLedger, type WriteResult } from '../src/db-writes/ledger.ts'
import { type DatabaseWriteJob, writeJobs } from '../src/db-writes/processor.ts'
import { checkStatements, createDatabasePool } from '../src/db-writes/program.ts'
import { parseStatements } from '../src/db-writes/statements.ts'

const LEDGER = 'sluice_ledger'
/** Where statements do end, however busy the machine is. */
const STATEMENT_TIMEOUT_MS = 20_000
const INSERT_ORDER = {
  sql: 'insert into orders (id, amount) values ($1, $2)',
  parameters: [
    { name: 'id', type: 'string' },
    { name: 'amount', type: 'integer' },
  ],
}
const statements = parseStatements(
  JSON.stringify({
    statements: {
      'insert-order': INSERT_ORDER,
      'slow-order': { ...INSERT_ORDER, sql: 'insert into orders select $1, $2 from pg_sleep(5)' },
      'two-at-once': { sql: 'select 1; drop table orders', parameters: [] },
      fail: { sql: 'select raise_state($1)', parameters: [{ name: 'state', type: 'string' }] },
    },
  }),
)

let server: PostgresService
let admin: Pool
let pool: Pool
const idleErrors: Error[] = []

beforeAll(async () => {
  server = await startPostgres()
  admin = new Pool({ connectionString: server.url })
  await admin.query(`create function raise_state(state text) returns void language plpgsql as
    $$ begin raise exception 'told to fail with "a value"' using errcode = state; end $$`)
  pool = createDatabasePool({
    url: server.url,
    size: 4,
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    onError: (error) => idleErrors.push(error),
  })
})

afterAll(async () => {
  await pool.end()
  await admin.end()
  await server.stop()
})

beforeEach(async () => {
  await admin.query(`drop table if exists orders, ${LEDGER}`)
  await admin.query('create table orders (id text primary key, amount integer not null check (amount > 0))')
  await withClient((client) => ensureLedger(client, LEDGER))
})

async function withClient<T>(use: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    return await use(client)
  } finally {
    client.release()
  }
}

async function run(job: DatabaseWriteJob, over = pool): Promise<WriteResult> {
  const [end] = await writeJobs(over, { statements, ledgerTable: LEDGER, prefix: 'bull' }, [job])
  if (end?.status !== 'fulfilled') throw end?.reason
  return end.value
}

function jobOf(statement: string, parameters: Record<string, unknown>, job: Partial<DatabaseWriteJob> = {}) {
  return { id: '1', queueName: 'db-writes', timestamp: 1_700_000_000_000, ...job, data: { statement, parameters } }
}

async function count(table: string): Promise<number> {
  const { rows } = await admin.query(`select count(*)::integer as count from ${table}`)
  return rows[0].count
}

async function processIdOf(query: Pool['query']): Promise<number> {
  return (await query('select pg_backend_pid() as pid')).rows[0].pid
}

async function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => {
      throw new Error('expected a rejection')
    },
    (error: Error) => error,
  )
}

test('a job writes its row and its ledger entry', async () => {
  const result = await run(jobOf('insert-order', { id: "o'1", amount: 5 }))
  expect(result).toEqual({
    effectId: expect.stringMatching(/^[\da-f]{64}$/),
    statement: 'insert-order',
    rows: 1,
    duplicate: false,
  })
  expect((await admin.query('select * from orders')).rows).toEqual([{ id: "o'1", amount: 5 }])
  expect((await admin.query(`select * from ${LEDGER}`)).rows).toEqual([
    {
      effect_id: result.effectId,
      queue: 'db-writes',
      job_id: '1',
      statement: 'insert-order',
      applied_at: expect.any(Date),
    },
  ])
})

describe('a second delivery', () => {
  test('has no second effect', async () => {
    await run(jobOf('insert-order', { id: 'o1', amount: 5 }))
    // Even with other data: the job is the same, and its effect has taken place.
    const again = await run(jobOf('insert-order', { id: 'o2', amount: 6 }))
    expect(again).toMatchObject({ duplicate: true, rows: 0 })
    expect(await count('orders')).toBe(1)
    expect(await count(LEDGER)).toBe(1)
  })

  test('at the same time has no second effect either', async () => {
    const deliveries = Array.from({ length: 20 }, (_, index) =>
      run(jobOf('insert-order', { id: `o${index}`, amount: 5 })),
    )
    const results = await Promise.all(deliveries)
    expect(results.filter(({ duplicate }) => !duplicate)).toHaveLength(1)
    expect(await count('orders')).toBe(1)
  })

  test('does the work when the first one was rolled back', async () => {
    await failureOf(run(jobOf('fail', { state: '40001' })))
    expect(await count(LEDGER)).toBe(0)
    expect(await run(jobOf('insert-order', { id: 'o1', amount: 5 }))).toMatchObject({ duplicate: false, rows: 1 })
  })

  test('is another job when ids started again after a wipe', async () => {
    await run(jobOf('insert-order', { id: 'o1', amount: 5 }))
    await run(jobOf('insert-order', { id: 'o2', amount: 5 }, { timestamp: 1_700_000_000_001 }))
    expect(await count('orders')).toBe(2)
  })
})

describe('an error of PostgreSQL', () => {
  test.each([
    '22003', // numeric value out of range
    '22P02', // invalid text representation
    '23502', // not null violation
    '23505', // unique violation
    '42P01', // undefined table
    '42501', // insufficient privilege
  ])('%s is final', async (state) => {
    const error = await failureOf(run(jobOf('fail', { state })))
    expect(error).toBeInstanceOf(UnrecoverableError)
    expect(error.cause).toBeInstanceOf(DestinationRefusedError)
    expect(error.cause).toMatchObject({ code: state })
  })

  test.each([
    '40001', // serialization failure
    '40P01', // deadlock
    '53300', // too many connections
    '57014', // query cancelled
    '57P01', // shutdown
    '08006', // connection failure
  ])('%s is retried', async (state) => {
    const error = await failureOf(run(jobOf('fail', { state })))
    expect(error).not.toBeInstanceOf(UnrecoverableError)
    expect(error).toMatchObject({ code: state })
  })

  test('about data does not repeat the data', async () => {
    const error = await failureOf(run(jobOf('fail', { state: '22P02' })))
    expect(error.message).toContain('told to fail with "…"')
  })

  test('leaves nothing behind and the connections usable', async () => {
    await run(jobOf('insert-order', { id: 'o1', amount: 5 }))
    for (let index = 0; index < 10; index++) {
      await failureOf(run(jobOf('insert-order', { id: 'o1', amount: 5 }, { id: `again-${index}` })))
    }
    expect(await count(LEDGER)).toBe(1)
    expect(await run(jobOf('insert-order', { id: 'o2', amount: 5 }, { id: '2' }))).toMatchObject({ rows: 1 })
    expect(pool.totalCount).toBeLessThanOrEqual(4)
  })
})

test('a statement that takes too long is cancelled and can be tried again', async () => {
  const hasty = createDatabasePool({ url: server.url, size: 1, statementTimeoutMs: 1000, onError: () => {} })
  onTestFinished(() => hasty.end())
  const error = await failureOf(run(jobOf('slow-order', { id: 'o1', amount: 5 }), hasty))
  expect(error).toMatchObject({ code: '57014' })
  expect(error).not.toBeInstanceOf(UnrecoverableError)
  expect(await count(LEDGER)).toBe(0)
})

test('a connection cut in the middle fails the job, not the process, and is replaced', async () => {
  const patient = createDatabasePool({ url: server.url, size: 1, statementTimeoutMs: 60_000, onError: () => {} })
  onTestFinished(() => patient.end())
  const failure = failureOf(run(jobOf('slow-order', { id: 'o1', amount: 5 }), patient))
  const isRunning = async () => {
    const { rows } = await admin.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(5)%' and pid <> pg_backend_pid() and state = 'active'`,
    )
    return rows.length > 0
  }
  await expect.poll(isRunning, { interval: 10 }).toBe(true)
  expect(await failure).not.toBeInstanceOf(UnrecoverableError)
  expect(await run(jobOf('insert-order', { id: 'o1', amount: 5 }))).toMatchObject({ duplicate: false, rows: 1 })
})

test('a connection cut between two queries fails the job, not the process', async () => {
  const cutting = {
    async connect() {
      const client = await pool.connect()
      const query = client.query.bind(client)
      client.query = (async (text: string) => {
        client.query = query
        await query(text)
        // Not events.once: that listens for errors as well, which is what the code under test must do.
        const ended = new Promise<void>((resolve) => client.once('end', resolve))
        await admin.query('select pg_terminate_backend($1)', [await processIdOf(query)])
        await ended
      }) as typeof query
      return client
    },
  } as Pool
  const job = jobOf('insert-order', { id: 'o1', amount: 5 })
  const cut = run(job, cutting)
  expect(await failureOf(cut)).not.toBeInstanceOf(UnrecoverableError)
  expect(await run(job)).toMatchObject({ duplicate: false, rows: 1 })
})

test('a job that names no statement never reaches the database', async () => {
  const error = await failureOf(run(jobOf('orders; drop table orders', {})))
  expect(error).toBeInstanceOf(UnrecoverableError)
  expect(error.cause).toBeInstanceOf(InvalidPayloadError)
  expect(await count(LEDGER)).toBe(0)
})

test('values are parameters: SQL in them is text', async () => {
  const id = "x', 1); drop table orders; --"
  await run(jobOf('insert-order', { id, amount: 1 }))
  expect((await admin.query('select id from orders')).rows).toEqual([{ id }])
})

test('a configured text with two statements is never run', async () => {
  await failureOf(run(jobOf('two-at-once', {})))
  expect(await count('orders')).toBe(0)
})

describe('at the start', () => {
  test('workers that start together create one ledger', async () => {
    await admin.query(`drop table ${LEDGER}`)
    await Promise.all([1, 2, 3, 4].map(() => withClient((client) => ensureLedger(client, LEDGER))))
    expect(await count(LEDGER)).toBe(0)
  })

  test('a ledger in a schema of its own is found', async () => {
    await admin.query('create schema if not exists app')
    await withClient((client) => ensureLedger(client, 'app.ledger'))
    await withClient((client) => ensureLedger(client, 'app.ledger'))
    expect(await count('app.ledger')).toBe(0)
    await admin.query('drop schema app cascade')
  })

  test('a role that may not create finds a ledger that exists', async () => {
    await admin.query(`create role writer login; grant select, insert on ${LEDGER} to writer`)
    const url = new URL(server.url)
    url.username = 'writer'
    const writer = createDatabasePool({
      url: url.href,
      size: 1,
      statementTimeoutMs: STATEMENT_TIMEOUT_MS,
      onError: (error) => idleErrors.push(error),
    })
    const client = await writer.connect()
    await expect(ensureLedger(client, LEDGER)).resolves.toBeUndefined()
    client.release()
    await writer.end()
    await admin.query('drop owned by writer; drop role writer')
  })

  test.each([
    [
      'a table that does not exist',
      'insert into nowhere values (1)',
      /"s" is not accepted .* "nowhere" does not exist/,
    ],
    ['two statements', 'select 1; drop table orders', /cannot insert multiple commands/],
  ])('%s is named', async (_, sql, message) => {
    const catalog = parseStatements(JSON.stringify({ statements: { s: { sql, parameters: [] } } }))
    const check = withClient((client) => checkStatements(client, catalog))
    await expect(check).rejects.toThrow(StartError)
    await expect(check).rejects.toThrow(message)
    expect(await count('orders')).toBe(0)
  })

  test('good statements are accepted, and again on the same connection', async () => {
    const catalog = new Map([...statements].filter(([name]) => name !== 'two-at-once'))
    await withClient(async (client) => {
      await checkStatements(client, catalog)
      await checkStatements(client, catalog)
    })
  })
})
