// Rows for a PostgreSQL that takes 5000 a second, written in batches of up to 500: by the producer, or by the worker. Needs a
// Redis (REDIS_URL, or one on this machine), a PostgreSQL (DATABASE_URL) and the package pg. It leaves no table behind.
//   npm run build && DATABASE_URL=postgres://localhost/test node examples/batches.mjs
import pg from 'pg'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const CONCURRENCY = 4
const BATCH_ROWS = 500

const url = process.env.DATABASE_URL ?? 'postgres://localhost/test'
const database = new pg.Pool({ connectionString: url, max: CONCURRENCY, statement_timeout: 10_000 })
await database.query('create table if not exists sluice_events (id bigint primary key, name text, at timestamptz)')

// `burst` has to hold the most expensive job: a full batch. Full batches start at least 100 ms apart.
const shape = { rate: '5000/s', burst: BATCH_ROWS, capacity: 1000 }
const queue = new ShapedQueue('events', { connection, prefix, shape })

/** Adds rows in jobs of one batch each: all of them, or none. */
function addRows(rows) {
  const starts = Array.from({ length: Math.ceil(rows.length / BATCH_ROWS) }, (_, i) => i * BATCH_ROWS)
  const batches = starts.map((start) => rows.slice(start, start + BATCH_ROWS))
  const opts = { attempts: 5, backoff: { type: 'exponential', delay: 1000 } }
  return queue.addBulk(batches.map((batch) => ({ name: 'rows', data: batch, opts: { ...opts, cost: batch.length } })))
}

// One statement for all rows of a job. A job that is delivered twice writes its rows once.
const insert = `
  insert into sluice_events (id, name, at)
  select id, name, clock_timestamp() from jsonb_to_recordset($1::jsonb) as rows (id bigint, name text)
  on conflict (id) do nothing`

const worker = new ShapedWorker('events', (job) => database.query(insert, [JSON.stringify(job.data)]).then(() => {}), {
  ...{ connection, prefix, shape },
  concurrency: CONCURRENCY,
  // While statements take longer than usual, fewer run at once; while the database refuses, none.
  feedback: profiles.postgres,
  adapt: true,
  removeOnComplete: { count: 0 },
  removeOnFail: { count: 1000 },
})

// Rows that come one by one: a job each, which the worker gathers.
const singles = new ShapedQueue('single-events', { connection, prefix, shape })
const gatherer = new ShapedWorker(
  'single-events',
  async (job) => {
    const batch = job.getBatch()
    for (const one of batch) if (!one.data.name) one.setAsFailed(new Error(`row ${one.data.id} has no name`))
    const rows = batch.map(({ data }) => data).filter(({ name }) => name)
    await database.query(insert, [JSON.stringify(rows)])
  },
  { connection, prefix, shape, batch: { size: 500, minSize: 100, timeoutMs: 200 } },
)
process.once('SIGTERM', async () => {
  await Promise.all([worker.close(), gatherer.close()])
  await Promise.all([queue.close(), singles.close(), database.end()])
})

// Adds rows as an application would, and sees how fast they came.
let statements = 0
const allWritten = new Promise((resolve, reject) => {
  worker.on('completed', () => ++statements === 6 && resolve())
  worker.on('failed', (_job, error) => reject(error))
})
await addRows(Array.from({ length: 2750 }, (_, id) => ({ id, name: 'opened' })))
await allWritten

const { rows } = await database.query(
  'select count(*), round(extract(epoch from max(at) - min(at)) * 1000) as ms from sluice_events',
)
console.log(`${rows[0].count} rows in ${statements} statements within ${rows[0].ms} ms`)

const ended = new Promise((resolve) => {
  let count = 0
  const end = () => ++count === 100 && resolve()
  gatherer.on('completed', end).on('failed', (_job, error) => {
    console.log(error.message)
    end()
  })
})
await singles.addBulk(
  Array.from({ length: 100 }, (_, i) => ({ name: 'row', data: { id: -i, name: i ? 'clicked' : '' } })),
)
await ended
const clicked = await database.query("select count(*) from sluice_events where name = 'clicked'")
console.log(`${clicked.rows[0].count} more rows`)

await worker.close()
await gatherer.close()
for (const each of [queue, singles]) {
  await each.obliterate({ force: true })
  await each.close()
}
await database.query('drop table sluice_events')
await database.end()
