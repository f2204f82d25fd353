// Sends the welcome emails.
//   REDIS_URL=redis://localhost:6379 node worker.mjs
import { ShapedWorker } from 'sluice'
import { connection, prefix, queue, shape } from './queue.mjs'

const send = async (job) => `mailed ${job.data.to}`

export const worker = new ShapedWorker('welcomes', send, {
  ...{ connection, prefix, shape },
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))
