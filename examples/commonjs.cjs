// A job refused and a job done, in a CommonJS program: Node >= 20.19 loads ES modules with require().
//   npm run build && node examples/commonjs.cjs
const { once } = require('node:events')
const { QueueFullError, ShapedQueue, ShapedWorker } = require('sluice')

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const shape = { rate: '100/min', capacity: 1 }

async function main() {
  const queue = new ShapedQueue('commonjs', { connection, prefix, shape })
  await queue.add('report', { month: '2026-10' })
  try {
    await queue.add('report', { month: '2026-11' })
  } catch (error) {
    if (!(error instanceof QueueFullError)) throw error
    console.log(`refused: ${error.message}`)
  }

  const worker = new ShapedWorker('commonjs', async (job) => job.data.month, { connection, prefix, shape })
  const [job, result] = await once(worker, 'completed')
  console.log(`job ${job.name} is done: ${result}`)

  await worker.close()
  await queue.obliterate({ force: true })
  await queue.close()
}

main()
