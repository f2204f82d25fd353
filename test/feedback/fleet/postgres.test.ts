import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ensureLedger } from '../../../packages/workers/src/db-writes/ledger.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { useRedis } from '../../support/redis.ts'
import { Workshop } from '../../worker/support.ts'
import { CallerFleet, PROCESSES } from './support/caller-fleet.ts'
import { expectPausesKept, HORIZON_MS } from './support/checks.ts'

const MAX_CONNECTIONS = 5
const POOL_SIZE = 4
const JOBS = 18
const LOCK = 53_300
/** The profile's two seconds, shorter: who has no connection is refused until those that others keep idle are closed. */
const RULES = [{ match: { sqlstate: '53300' }, action: { pause: '200 ms' } }] as const

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const fleet = new CallerFleet(redis)
let postgres: PostgresService
let admin: Client

beforeAll(async () => {
  postgres = await startPostgres({ maxConnections: MAX_CONNECTIONS })
  admin = new Client({ connectionString: postgres.url })
  await admin.connect()
  await admin.query('create table orders (id text primary key, times integer not null default 1)')
  await ensureLedger(admin, 'sluice_ledger')
})
afterAll(async () => {
  await admin.end()
  await postgres.stop()
})

test('three pools that want more connections than there are: 53300 is feedback, every row is written once', async () => {
  // Writes hold their connections until one process was refused.
  await admin.query('select pg_advisory_lock($1)', [LOCK])
  const sql = `insert into orders (id) select $1 from pg_advisory_xact_lock_shared(${LOCK})
    on conflict (id) do update set times = orders.times + 1`
  const queue = shop.queue({ rate: '100/s', horizonMs: HORIZON_MS })
  const rows = Array.from({ length: JOBS }, (_, i) => `order-${i}`)
  await queue.addBulk(rows.map((id) => ({ name: 'write', data: { statement: 'write', parameters: { id } } })))
  const task = { kind: 'write', url: postgres.url, poolSize: POOL_SIZE, sql } as const
  const run = await fleet.open({ queue: queue.name, task, profile: 'postgres', rules: RULES, concurrency: POOL_SIZE })
  await run.until(() => run.pauses.length > 0)
  await admin.query('select pg_advisory_unlock($1)', [LOCK])
  await run.until(() => run.ends.length >= JOBS)
  await fleet.close(queue.name)

  expect(new Set(run.starts.map(({ pid }) => pid)).size).toBe(PROCESSES)
  for (const { change } of run.pauses) {
    expect(change).toMatchObject({ source: 'rule', reason: 'rule: sqlstate "53300"' })
  }
  expectPausesKept(run)
  const { rows: written } = await admin.query('select id, times from orders')
  expect(written.map(({ id }) => id).toSorted()).toEqual(rows.toSorted())
  expect(new Set(written.map(({ times }) => times))).toEqual(new Set([1]))
  expect(run.ends.filter(({ failedReason, attemptsMade }) => failedReason || attemptsMade !== 1)).toEqual([])
  expect(run.errors).toEqual([])
  expect(await queue.getJobCounts()).toMatchObject({ completed: JOBS, failed: 0, waiting: 0, active: 0 })
})
