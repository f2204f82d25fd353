import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ShapedWorker } from '../../../src/index.ts'
import { noteSamples } from '../samples.ts'

/** Runs jobs until SIGTERM; each start is in the file before its job runs, and each end before anyone else hears of it. */
const [url, queueName, log, role] = process.argv.slice(2) as [string, string, string, string?]
const note = (...words: unknown[]) => appendFileSync(log, `${words.join(' ')}\n`)
process.on('unhandledRejection', (reason) => note('unhandled', String(reason)))

const { hostname, port } = new URL(url)
const worker = new ShapedWorker(
  queueName,
  async ({ id }) => {
    await sleep(10 + Math.random() * 90)
    note('ended', id)
  },
  {
    connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => 50 },
    concurrency: 20,
    lockDuration: 2000,
    stalledInterval: 500,
    maxStalledCount: 1_000_000,
  },
)
worker.on('departed', (job, { departureTimeUs, latenessUs }) => {
  note('started', job.id, departureTimeUs, Math.round(latenessUs), job.stalledCounter)
})
worker.on('stateLoss', () => note('loss'))
worker.on('failed', (job, error) => note('failed', job?.id, error.message))
worker.on('error', () => {})
process.once('SIGTERM', async () => {
  await worker.close()
  process.disconnect()
})
await worker.waitUntilReady()
if (role === 'witness') noteSamples(note)
process.send?.({ type: 'ready' })
