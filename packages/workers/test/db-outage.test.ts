import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { type Feedback, profiles } from '../../../src/egress/index.ts'
import { type FeedbackChange, QueueFullError } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { departuresOf, eventsOf, excess, rounding, Workshop } from '../../../test/worker/support.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { ensureLedger } from '../src/db-writes/ledger.ts'
import { createDatabaseWriteProcessor } from '../src/db-writes/processor.ts'
import { createDatabasePool } from '../src/db-writes/program.ts'
import { parseStatements } from '../src/db-writes/statements.ts'

// A real PostgreSQL that shuts down, is gone and comes up again, under the processor of the database program.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const LOCK = 4712
const LEDGER = 'sluice_ledger'
const JOBS = 12
const RATE = 500
const WAIT = { timeout: 60_000, interval: 20 }
const statements = parseStatements(
  JSON.stringify({
    statements: {
      order: {
        sql: `insert into orders (id) select $1 from pg_advisory_xact_lock_shared(${LOCK})`,
        parameters: [{ name: 'id', type: 'string' }],
      },
    },
  }),
)

const parent = mkdtempSync(join(tmpdir(), 'sluice-outage-'))
const folder = join(parent, 'data')
let server: PostgresService

beforeAll(async () => {
  // As root, PostgreSQL runs as another user, who has to get at the folder.
  chmodSync(parent, 0o755)
  server = await startPostgres({ dir: folder })
  const admin = await session()
  await admin.query('create table orders (id text primary key)')
  await ensureLedger(admin, LEDGER)
  await admin.end()
})
afterAll(async () => {
  await server.stop()
  rmSync(parent, { recursive: true })
})

/** Starts it again where it was. */
async function up(): Promise<void> {
  server = await startPostgres({ dir: folder, port: Number(new URL(server.url).port) })
}

async function session(): Promise<Client> {
  const client = new Client(server.url)
  client.on('error', () => {})
  await client.connect()
  return client
}

function processorOf(url: string) {
  const pool = createDatabasePool({ url, size: 4, statementTimeoutMs: 10_000, onError: () => {} })
  onTestFinished(() => pool.end())
  const process = createDatabaseWriteProcessor(pool, {
    ...{ statements, ledgerTable: LEDGER, prefix: redis.prefix },
  })
  return process as (job: unknown) => Promise<unknown>
}

const write = (id: string) => ({ name: 'write', data: { statement: 'order', parameters: { id } } })

/** A queue of writes that may be tried once, and a worker of them. */
async function start(name: string) {
  const queue = shop.queue({ rate: `${RATE}/s` })
  await queue.addBulk(Array.from({ length: JOBS }, (_, i) => write(`${name}-${i}`)))
  const open = () => {
    const worker = shop.worker(queue, processorOf(server.url), { feedback: profiles.postgres, concurrency: 4 })
    const changes = eventsOf<FeedbackChange>('feedback', worker)
    return {
      ...{
        completed: eventsOf('completed', worker),
        failed: eventsOf('failed', worker),
        departed: departuresOf(worker),
      },
      heard: (text: string) => changes.until((all) => all.some(({ reason }) => reason.includes(text))),
    }
  }
  return { queue, open, written: () => rowsOf(name) }
}

async function rowsOf(name: string): Promise<number> {
  const client = await session()
  const { rows } = await client.query('select count(*)::integer as count from orders where id like $1', [`${name}-%`])
  await client.end()
  return rows[0].count
}

type OpenWorker = ReturnType<Awaited<ReturnType<typeof start>>['open']>

/** Each job ended at its first attempt, and every departure, also of those that went back, kept the rate. */
function expectAllAtTheFirst({ completed, failed, departed }: OpenWorker) {
  expect(failed.all).toEqual([])
  const slotsUs = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slotsUs, 1_000_000 / RATE)).toBeLessThanOrEqual(rounding(1_000_000 / RATE))
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual(Array(JOBS).fill(1))
}

// Fault table, row 38.
test('it shuts down (57P03), is gone (ECONNREFUSED) and comes up: no attempt is used, and each row is written once', async () => {
  const { queue, open, written } = await start('away')
  // A smart shutdown: it waits for this session, and lets in no other.
  const last = await session()
  process.kill(Number(readFileSync(join(folder, 'postmaster.pid'), 'utf8').split('\n')[0]), 'SIGTERM')
  const isClosing = () =>
    session().then(
      (client) => client.end().then(() => 'open'),
      ({ code }) => code,
    )
  await expect.poll(isClosing, WAIT).toBe('57P03')
  const worker = open()
  await worker.heard('57P03')
  await last.end()
  await worker.heard('ECONNREFUSED')
  await queue.setShape({ capacity: JOBS / 2 }, { by: 'test', reason: 'more wait than may' })
  await expect(queue.add('write', {})).rejects.toBeInstanceOf(QueueFullError)
  await up()
  await worker.completed.reach(JOBS)
  expectAllAtTheFirst(worker)
  expect(await written()).toBe(JOBS)
})

test('it is stopped in the middle of statements (57P01) and comes up: the same', async () => {
  const { open, written } = await start('cut')
  const admin = await session()
  await admin.query('select pg_advisory_lock($1)', [LOCK])
  const worker = open()
  const waiting = "select count(*)::integer as count from pg_locks where locktype = 'advisory' and not granted"
  await expect.poll(async () => (await admin.query(waiting)).rows[0].count, WAIT).toBe(4)
  await server.stop()
  await up()
  await worker.completed.reach(JOBS)
  expectAllAtTheFirst(worker)
  expect(await written()).toBe(JOBS)
})

/** What the profile finds where a write can not connect. */
async function found(url: string): Promise<readonly Feedback[]> {
  const job = { id: '1', queueName: 'q', timestamp: 1, ...write('never') }
  const threw = await processorOf(url)(job).then(
    () => expect.unreachable('it was written'),
    (error: unknown) => error,
  )
  return profiles.postgres.listen({ threw }, { receivedAtMs: 0, latencyMs: 1 }).map(({ feedback }) => feedback)
}

/** The URL of a server that answers the request for TLS with this, or goes away. */
async function refusesTls(reply: string): Promise<string> {
  const listener = createServer((socket) => socket.once('data', () => socket.end(reply)).on('error', () => {}))
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  onTestFinished(() => void listener.close())
  return `postgres://postgres@127.0.0.1:${(listener.address() as AddressInfo).port}/postgres?sslmode=verify-full`
}

test.each([
  ['its name is unknown', async () => 'postgres://postgres@db.invalid:5432/postgres'],
  ['it has no TLS', async () => `${server.url}?sslmode=verify-full`],
  ['it answers the request for TLS with an error', () => refusesTls('E')],
  ['it goes away instead of a handshake', () => refusesTls('S')],
])('a server that can not be reached is a destination that is down: %s', async (_, urlOf) => {
  expect(await found(await urlOf())).toMatchObject([{ kind: 'pause', hard: true, about: 'destination' }])
})
