import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { departuresIn, withQueue } from '../../packages/workers/test/queues.ts'
import { QueueFullError } from '../../src/index.ts'
import { type PostgresService, startPostgres } from '../../workers/services/postgres.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { attemptsOf, endsOf, secondsUntilNext } from './support/program-run.ts'

// Fault table, row 38: the database program, as it is shipped, with a PostgreSQL that goes away under load.
const DB_WRITES = new URL('../../workers/db-writes.ts', import.meta.url)
const JOBS = 400
const RATE = 20
const AWAY_MS = 40_000
const redis = useRedis(import.meta.url)
const processes = useProcesses()

const folder = mkdtempSync(join(tmpdir(), 'sluice-away-'))
const dir = join(folder, 'data')
const statementsFile = join(folder, 'statements.json')
const departureLog = join(folder, 'departures')
let server: PostgresService

beforeAll(async () => {
  // As root, PostgreSQL runs as another user, who has to get at the folder.
  chmodSync(folder, 0o755)
  server = await startPostgres({ dir })
  await ask('create table orders (id text not null)')
  const sql = 'insert into orders select $1 from pg_sleep(0.05)'
  const order = { sql, parameters: [{ name: 'id', type: 'string' }] }
  writeFileSync(statementsFile, JSON.stringify({ statements: { order } }))
})
afterAll(async () => {
  await server.stop()
  rmSync(folder, { recursive: true })
})

async function ask(text: string) {
  const client = new Client(server.url)
  await client.connect()
  return client.query(text).finally(() => client.end())
}

function startProgram(queue: string) {
  const settings = { REDIS_URL: redis.url, PREFIX: redis.prefix, QUEUE: queue, LOG_LEVEL: 'debug' }
  const writes = { DATABASE_URL: server.url, STATEMENTS: statementsFile, RATE: `${RATE}/s`, CONCURRENCY: '10' }
  const shape = { CAPACITY: String(JOBS / 2), DEPARTURE_LOG: departureLog }
  return processes.fork(DB_WRITES, { env: { ...settings, ...writes, ...shape } })
}

/** Stops the server for a while. When it is back, ms of `performance.now()`. */
async function goAway(meanwhile: () => Promise<void>): Promise<number> {
  const port = Number(new URL(server.url).port)
  await server.stop()
  await delay(AWAY_MS)
  await meanwhile()
  server = await startPostgres({ dir, port })
  return performance.now()
}

test('PostgreSQL is away for 40 s: no job fails, no attempt is used up, each row is written once', async () => {
  await withQueue(redis, 'writes', async (queue) => {
    const write = (id: string) => ({ name: 'write', data: { statement: 'order', parameters: { id } } })
    await queue.addBulk(Array.from({ length: JOBS }, (_, i) => write(`order-${i}`)))
    const ends = await endsOf(redis, queue.name)
    const program = startProgram(queue.name)
    await ends.until(JOBS / 4)
    const backMs = await goAway(async () => {
      // More wait than the program lets in.
      await expect(queue.add('write', {})).rejects.toBeInstanceOf(QueueFullError)
    })
    await ends.until(JOBS)
    console.log(`away for ${AWAY_MS / 1000} s: the first write ${secondsUntilNext(ends, backMs)} s after it is back`)
    expect(ends.failures).toEqual([])
    expect(await attemptsOf(program)).toEqual(Array(JOBS).fill(1))
    const slotsUs = departuresIn(departureLog).map(({ departureTimeUs }) => departureTimeUs)
    expect(worstExcess(slotsUs, { intervalUs: 1_000_000 / RATE, burst: 1 })).toBeLessThanOrEqual(0)
  })
  const { rows } = await ask('select count(*)::integer as rows, count(distinct id)::integer as ids from orders')
  expect(rows).toEqual([{ rows: JOBS, ids: JOBS }])
})
