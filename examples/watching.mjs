// What a program can read about its queues: the state of a queue, why a job waits and when it will start, and metrics for
// Prometheus. All of it is read with plain read commands. Needs a Redis: REDIS_URL, or one on this machine, and the
// package prom-client.
//   npm run build && node examples/watching.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { createMetrics } from 'sluice-metrics'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const shape = { rate: '10/s', capacity: 20 }

const queue = new ShapedQueue('newsletters', { connection, prefix, shape })
const jobs = Array.from({ length: 10 }, (_, i) => ({ name: 'issue', data: {}, opts: { jobId: `reader-${i + 1}` } }))
await queue.addBulk(jobs)
await queue.pauseUntil(Date.now() + 1000, { by: 'ann', reason: 'the printer is out of paper' })

const inspector = new Inspector({ connection, prefix })
const [status] = await inspector.status(['newsletters'])
console.log(`${status.depth} of ${status.capacity} wait, held by ${status.hold.cause}: ${status.pauseReason}`)

const keep = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 5000 } }
const worker = new ShapedWorker('newsletters', async () => {}, { connection, prefix, shape, concurrency: 5, ...keep })
const startOf = new Promise((resolve) => {
  worker.on('departed', (job, { departureTimeUs }) => job.id === 'reader-10' && resolve(departureTimeUs / 1000))
})
const done = new Promise((resolve) => worker.on('completed', (job) => job.id === 'reader-10' && resolve()))
await worker.waitUntilReady()

const before = await inspector.explain('newsletters', 'reader-10')
console.log(`reader-10: ${before.ahead} ahead of it`)
for (const assumption of before.assumptions) console.log(`  ${assumption}`)
const startedMs = await startOf
const offMs = Math.abs(startedMs - before.startsAt.getTime())
console.log(`it started ${offMs.toFixed(0)} ms off the estimate`)
await done

const { waitedMs, parts } = await inspector.explain('newsletters', 'reader-10')
const waits = Object.entries(parts).filter(([, ms]) => ms >= 50)
console.log(`it waited ${waitedMs} ms: ${waits.map(([cause, ms]) => `${Math.round(ms)} for ${cause}`).join(', ')}`)

const [change] = await inspector.history('newsletters', { count: 1 })
console.log(`last change: ${change.kind} by ${change.by}: ${change.reason}`)

// `await metrics.text()` is what `GET /metrics` has to answer; `npx sluice-cli metrics` serves it.
const metrics = createMetrics({ connection, prefix })
const text = await metrics.text()
console.log(text.match(/^sluice_released_total\{.*$/m)?.[0])

await metrics.close()
await inspector.close()
await worker.close()
await queue.obliterate({ force: true })
await queue.close()
