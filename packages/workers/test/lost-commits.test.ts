import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { Client } from 'pg'
import { afterAll, beforeAll } from 'vitest'
import { profiles } from '../../../src/egress/index.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../test/support/concurrent.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { eventsOf, Workshop } from '../../../test/worker/support.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { ensureLedger, type WriteResult } from '../src/db-writes/ledger.ts'
import { writeJobs } from '../src/db-writes/processor.ts'
import { createDatabasePool } from '../src/db-writes/program.ts'
import { parseStatements } from '../src/db-writes/statements.ts'
import { processing } from '../src/running-worker.ts'

// A real PostgreSQL, whose connections end in the middle of a batch of writes.
useConcurrentTests()

const LEDGER = 'sluice_ledger'
const BATCH = 4
const JOBS = 3 * BATCH
const statements = parseStatements(
  JSON.stringify({
    statements: {
      order: {
        sql: 'insert into orders (id) values ($1)',
        batchSql: 'insert into orders (id) select * from unnest($1::text[])',
        parameters: [{ name: 'id', type: 'string' }],
      },
    },
  }),
)

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
let server: PostgresService
let admin: Client

beforeAll(async () => {
  server = await startPostgres()
  admin = new Client(server.url)
  await admin.connect()
  // A row that is written twice is there twice.
  await admin.query('create table orders (id text)')
  await ensureLedger(admin, LEDGER)
})
afterAll(async () => {
  await admin.end()
  await server.stop()
})

/** What happens to a request, or to its reply, and to the connection. */
type Loss = 'no request' | 'no reply' | 'silence'

/** A way to the server that loses what contains `text`, so many times. @returns its URL, and how often that happened */
async function startLossyWay(text: string, loss: Loss, times: number) {
  let lost = 0
  const way = createServer((client) => {
    const database = connect(Number(new URL(server.url).port), '127.0.0.1')
    let isLost = false
    const end = () => {
      client.destroy()
      database.destroy()
    }
    for (const one of [client, database]) one.on('error', () => {}).on('close', end)
    client.on('data', (bytes) => {
      if (lost < times && bytes.includes(text)) {
        lost += 1
        isLost = true
        if (loss === 'no request') return end()
      }
      database.write(bytes)
    })
    database.on('data', (bytes) => {
      if (!isLost) client.write(bytes)
      else if (loss === 'no reply') end()
    })
  })
  way.listen(0, '127.0.0.1')
  onTestFinished(() => void way.close())
  await once(way, 'listening')
  const url = new URL(server.url)
  url.port = `${(way.address() as AddressInfo).port}`
  return { url: url.href, lost: () => lost }
}

test.each<[string, string, Loss]>([
  ['the commit never arrives', 'commit', 'no request'],
  ['the reply to the commit is lost', 'commit', 'no reply'],
  ['the reply to the commit never comes', 'commit', 'silence'],
  ['the reply to the statement is lost', 'insert into orders', 'no reply'],
])(
  'a batch of writes whose connection breaks: %s, and each row is written once, at the first attempt',
  async (_, text, loss) => {
    const way = await startLossyWay(text, loss, 2)
    const pool = createDatabasePool({ url: way.url, size: 4, statementTimeoutMs: 4000, onError: () => {} })
    const options = { statements, ledgerTable: LEDGER, prefix: redis.prefix }
    const { process, batch } = processing({
      process: () => expect.unreachable('it is alone'),
      batches: {
        ...{ size: BATCH, minSize: BATCH, timeoutMs: 50 },
        process: (all) => writeJobs(pool, options, all),
      },
    })
    const queue = shop.queue({ rate: '500/s' })
    const ids = Array.from({ length: JOBS }, (_, i) => `${queue.name}-${i}`)
    await queue.addBulk(ids.map((id) => ({ name: 'write', data: { statement: 'order', parameters: { id } } })))
    const worker = shop.worker(queue, process as never, {
      feedback: profiles.postgres,
      concurrency: JOBS / BATCH,
      batch: batch as never,
    })
    onTestFinished(() => pool.end())
    const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
    await completed.reach(JOBS)

    expect(way.lost()).toBe(2)
    expect(failed.all).toEqual([])
    expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual(Array(JOBS).fill(1))
    const { rows } = await admin.query<{ id: string }>('select id from orders where id like $1', [`${queue.name}-%`])
    expect(rows.map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
    // What was committed before its reply was lost is found in the ledger.
    const repeated = completed.all.filter(({ returnvalue }) => (returnvalue as WriteResult).duplicate).length
    expect(repeated > 0).toBe(text === 'commit' && loss !== 'no request')
  },
)
