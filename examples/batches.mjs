// Rows for a database that takes 1000 a second, written in batches of up to 100: the rate counts rows, not jobs. Needs a
// Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/batches.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const BATCH_ROWS = 100

// In place of a database: one statement for all rows of a job, `insert into events … select from jsonb_to_recordset($1)`.
const written = []
const insert = async (rows) => void written.push({ at: performance.now(), rows: rows.length })

// `burst` has to hold the dearest job: a full batch. Two batches are never closer together than 100 ms.
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

const total = () => written.reduce((sum, { rows }) => sum + rows, 0)
const allWritten = new Promise((resolve) => worker.on('completed', () => total() === 550 && resolve()))
await addRows(Array.from({ length: 550 }, (_, id) => ({ id, name: 'opened' })))
await allWritten

const tookMs = written.at(-1).at - written[0].at
console.log(`${total()} rows in ${written.length} statements within ${Math.round(tookMs)} ms`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
