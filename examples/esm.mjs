// A bounded queue that leaves at 20 jobs per second, in an ES module. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/esm.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const shape = { rate: '20/s', capacity: 10, concurrency: 5 }

const queue = new ShapedQueue('esm', { connection, prefix, shape })
const worker = new ShapedWorker('esm', async (job) => `mailed ${job.data.to}`, {
  ...{ connection, prefix, shape, concurrency: 5 },
  autorun: false,
})

// The worker does not run yet: ten of these twelve fit, and two learn when to come back.
const refused = []
for (let i = 1; i <= 12; i++) {
  const to = `user${i}@example.com`
  const offer = await queue.offer('welcome', { to })
  if (offer.accepted) continue
  refused.push(to)
  console.log(`refused ${to}: ${offer.depth} of ${offer.capacity} wait, come back in ${offer.retryAfterMs} ms`)
}

const starts = []
worker.on('departed', (_job, { departureTimeUs }) => starts.push(departureTimeUs))
let completed = 0
const allDone = new Promise((resolve) => {
  worker.on('completed', () => {
    completed += 1
    if (completed === 12) resolve()
  })
})
worker.run()

// These wait for a place each, in their order, without polling.
await Promise.all(refused.map((to) => queue.addWhenFree('welcome', { to }, { timeoutMs: 10_000 })))
await allDone

const gapsMs = starts.slice(1).map((start, i) => (start - starts[i]) / 1000)
console.log(`${completed} jobs done, the closest two ${Math.min(...gapsMs).toFixed(3)} ms apart`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
