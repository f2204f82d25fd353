// A project's own program: one job through a shaped queue. Prints what came of it as JSON.
import { once } from 'node:events'
import { ShapedQueue, ShapedWorker, safeShape } from 'sluice'
import { createLimiter } from 'sluice/limits'
import { expectPaced } from 'sluice/testing'

const connection = { url: process.env.REDIS_URL }
const shape = { rate: '100/s', capacity: 2 }
// A busy machine may take longer than the default.
const queue = new ShapedQueue('esm', { connection, shape, admitTimeoutMs: 60_000 })
const worker = new ShapedWorker('esm', async (job) => job.data.n * 2, { connection, shape })
const departed = once(worker, 'departed')
const completed = once(worker, 'completed')
await queue.add('double', { n: 21 })
const [, { departureTimeUs }] = await departed
expectPaced([departureTimeUs], shape)
const [, result] = await completed
await worker.close()
await queue.close()
const { burst } = safeShape({ quota: 2, windowMs: 1000, burst: 1 })
console.log(JSON.stringify({ result, limits: typeof createLimiter, safe: burst }))
