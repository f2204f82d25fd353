// A test of a project that uses Jest, which knows only CommonJS.
const { once } = require('node:events')
const { QueueFullError, ShapedQueue, ShapedWorker } = require('sluice')

test('a queue refuses what does not fit, and a worker runs a job', async () => {
  const options = { connection: { url: process.env.REDIS_URL }, shape: { rate: '100/s', capacity: 1 } }
  // A busy machine may take longer than the default.
  const queue = new ShapedQueue('jest', { ...options, admitTimeoutMs: 60_000 })
  await queue.add('double', { n: 21 })
  await expect(queue.add('double', { n: 22 })).rejects.toThrow(QueueFullError)
  const worker = new ShapedWorker('jest', async (job) => job.data.n * 2, options)
  const [, result] = await once(worker, 'completed')
  expect(result).toBe(42)
  await worker.close()
  await queue.close()
})
