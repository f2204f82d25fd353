// Jobs and requests that call one upstream, which allows 40 requests per second and 2000 tokens per second together. Needs
// a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/limits.mjs
import { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { createLimiter } from 'sluice/limits'

const url = process.env.REDIS_URL ?? 'redis://localhost:6379'
const prefix = process.env.PREFIX ?? 'sluice-examples'
const connection = { url }

// What the upstream allows. `shared`: one bucket for every queue and limiter of that name.
const requests = { name: 'requests', algorithm: 'sliding-window-log', rate: '40/s' }
const tokens = { name: 'tokens', algorithm: 'token-bucket', rate: '2000/s', burst: 1000 }
const shared = { shared: true, prefix }
const shape = {
  limits: [
    { ...requests, ...shared },
    { ...tokens, ...shared, unit: 'tokens' },
  ],
}

const queue = new ShapedQueue('summaries', { connection, prefix, shape })
const worker = new ShapedWorker(
  'summaries',
  async (job) => {
    // The job was charged the 200 tokens that it may use. Once it is known what it used, the rest is given back.
    const used = 120
    await job.settleCost({ tokens: used })
    return used
  },
  { connection, prefix, shape, concurrency: 5, autorun: false },
)

// A request that a person waits for takes from the same limit, beside the jobs.
const redis = new Redis(url)
const limiter = createLimiter(redis, { ...tokens, prefix, timeoutMs: 1000 })
const answer = await limiter.take(undefined, { cost: 300 })
console.log(`a request of 300 tokens is ${answer.allowed ? 'allowed' : 'refused'}, ${answer.remaining} are left`)

const starts = []
worker.on('departed', (_job, { departureTimeUs }) => starts.push(departureTimeUs))
let used = 0
const allDone = new Promise((resolve) => {
  worker.on('completed', (job) => {
    used += job.returnvalue
    if (used === 12 * 120) resolve()
  })
})
const jobs = Array.from({ length: 12 }, (_, i) => ({ name: `text${i}`, data: {}, opts: { costs: { tokens: 200 } } }))
await queue.addBulk(jobs)
worker.run()
await allDone

const tookMs = (starts.at(-1) - starts[0]) / 1000
console.log(`${starts.length} jobs used ${used} tokens, started within ${tookMs.toFixed(0)} ms`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
for (const name of ['requests', 'tokens'])
  await createLimiter(redis, { ...(name === 'requests' ? requests : tokens), prefix }).reset()
await redis.unlink(`${prefix}:limit:{requests}`, `${prefix}:limit:{tokens}`)
redis.disconnect()
