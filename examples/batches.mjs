// Rows for a PostgreSQL that takes 1000 a second, written in batches of up to 100: the rate counts rows, not jobs. Needs a
// Redis (REDIS_URL, or one on this machine), a PostgreSQL (DATABASE_URL) and the package pg. It leaves no table behind.
//   npm run build && DATABASE_URL=postgres://localhost/test node examples/batches.mjs
import pg from 'pg'
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const BATCH_ROWS = 100

const database = new pg.Pool({ connectionString: process.env.DATABASE_URL ?? 'postgres://localhost/test', max: 2 })
await database.query('create table sluice_events (id integer primary key, name text not null, at timestamptz not null)')

// One statement for all rows of a job. A job that is delivered twice writes its rows once.
const insert = (rows) =>
  database.query(
    `insert into sluice_events (id, name, at)
     select id, name, clock_timestamp() from jsonb_to_recordset($1::jsonb) as rows (id integer, name text)
     on conflict (id) do nothing`,
    [JSON.stringify(rows)],
  )

// `burst` has to hold the most expensive job: a full batch. Full batches start at least 100 ms apart.
const shape = { rate: '1000/s', burst: BATCH_ROWS, capacity: 1000 }
const queue = new ShapedQueue('events', { connection, prefix, shape })
const worker = new ShapedWorker('events', (job) => insert(job.data.rows), { connection, prefix, shape, concurrency: 2 })

/** Adds rows in jobs of one batch each: all of them, or none. */
async function addRows(rows) {
  const batches = Array.from({ length: Math.ceil(rows.length / BATCH_ROWS) }, (_, i) =>
    rows.slice(i * BATCH_ROWS, (i + 1) * BATCH_ROWS),
  )
  return queue.addBulk(batches.map((batch) => ({ name: 'rows', data: { rows: batch }, opts: { cost: batch.length } })))
}

let statements = 0
const allWritten = new Promise((resolve) => worker.on('completed', () => ++statements === 6 && resolve()))
await addRows(Array.from({ length: 550 }, (_, id) => ({ id, name: 'opened' })))
await allWritten

const { rows } = await database.query(
  'select count(*), round(extract(epoch from max(at) - min(at)) * 1000) as ms from sluice_events',
)
console.log(`${rows[0].count} rows in ${statements} statements within ${rows[0].ms} ms`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
await database.query('drop table sluice_events')
await database.end()
