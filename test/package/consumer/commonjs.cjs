// The same as esm.mjs, by require().
const { once } = require('node:events')
const { QueueFullError, ShapedQueue, ShapedWorker, safeShape } = require('sluice')
const { createLimiter } = require('sluice/limits')
const { ReferenceBucket } = require('sluice/testing')

async function main() {
  const connection = { url: process.env.REDIS_URL }
  const shape = { rate: '100/s', capacity: 1 }
  // A busy machine may take longer than the default.
  const queue = new ShapedQueue('commonjs', { connection, shape, admitTimeoutMs: 60_000 })
  await queue.add('double', { n: 21 })
  const refused = await queue.add('double', { n: 22 }).catch((error) => error instanceof QueueFullError)
  const worker = new ShapedWorker('commonjs', async (job) => job.data.n * 2, { connection, shape })
  const [, result] = await once(worker, 'completed')
  await worker.close()
  await queue.close()
  const { level } = new ReferenceBucket(safeShape({ quota: 1, windowMs: 1000 }))
  console.log(JSON.stringify({ result, refused, limits: typeof createLimiter, level }))
}

main()
