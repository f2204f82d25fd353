// What p-queue does in the memory of one process, on a queue that survives a restart and that all processes share:
//   const queue = new PQueue({ concurrency: 2, interval: 1000, intervalCap: 20 })
//   const sizes = await queue.addAll(urls.map((url) => () => sizeOf(url)))
// Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/p-queue.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { ShapedQueue, ShapedQueueEvents, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// The site, which counts how many requests are open at once.
let open = 0
let mostOpen = 0
const site = createServer((request, response) => {
  open += 1
  mostOpen = Math.max(mostOpen, open)
  setTimeout(() => {
    open -= 1
    response.end(`page ${request.url}`)
  }, 60)
}).listen(0, '127.0.0.1')
await once(site, 'listening')

// The function that p-queue was given becomes the processor. What it needs is the data of the job, so it must be JSON.
const sizeOf = async (job) => (await (await fetch(job.data.url)).text()).length

// `intervalCap: 20, interval: 1000` is a rate, and `concurrency` holds for all processes together.
const shape = { rate: '20/s', concurrency: 2, capacity: 1000 }
const queue = new ShapedQueue('pages', { connection, prefix, shape })
const worker = new ShapedWorker('pages', sizeOf, {
  ...{ connection, prefix, shape },
  concurrency: 2,
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
const events = new ShapedQueueEvents('pages', { connection, prefix })
await events.waitUntilReady()
// BullMQ adds a listener to the queue for each job that is waited for, and Node warns from the eleventh on.
queue.setMaxListeners(0)

/** As `queue.add(() => sizeOf(url))` of p-queue: resolves with the result. Waits while the queue is full. */
async function sizeByQueue(url) {
  const job = await queue.addWhenFree('size', { url })
  return job.waitUntilFinished(events)
}

const urls = Array.from({ length: 12 }, (_, i) => `http://127.0.0.1:${site.address().port}/${i}`)
const sizes = await Promise.all(urls.map(sizeByQueue))
console.log(`${sizes.length} pages, ${sizes.reduce((sum, size) => sum + size)} characters, ${mostOpen} at once at most`)

await Promise.all([worker.close(), events.close()])
await queue.obliterate({ force: true })
await queue.close()
site.closeAllConnections()
site.close()
