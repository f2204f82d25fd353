import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ShapedWorker } from '../../../src/index.ts'

/** A worker that declares nothing; every start is in the file before its job runs, also if it is killed then. */
const [url, prefix, name, log] = process.argv.slice(2) as [string, string, string, string]
const { hostname, port } = new URL(url)
const worker = new ShapedWorker(name, () => sleep(Number(process.env.JOB_MS ?? 20)), {
  connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
  prefix,
  concurrency: 10,
  lockDuration: Number(process.env.LOCK_MS ?? 500),
  stalledInterval: 200,
  maxStalledCount: Number(process.env.MAX_STALLED_COUNT ?? 3),
})
let count = 0
worker.on('departed', (job, { departureTimeUs }) => {
  appendFileSync(log, `${departureTimeUs} ${job.id}\n`)
  process.send?.({ type: 'departed', count: ++count })
})
worker.on('error', (error) => process.send?.({ type: 'error', message: String(error) }))
const close = async () => {
  await worker.close()
  process.disconnect()
}
process.once('message', close)
process.once('SIGTERM', close)
await worker.waitUntilReady()
process.send?.({ type: 'ready' })
