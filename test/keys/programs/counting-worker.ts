import { setTimeout as delay } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { ShapedWorker } from '../../../src/index.ts'

/**
 * A worker that says when each of its jobs starts and ends, by Redis's order: a list that all workers append to.
 * Arguments: queue, prefix, connection as JSON, key of the list, ms that a job takes.
 */
const [name, prefix, connection, list, jobMs] = process.argv.slice(2) as [string, string, string, string, string]
const client = new Redis({ ...JSON.parse(connection), maxRetriesPerRequest: null })
const worker = new ShapedWorker(
  name,
  async (job) => {
    const tenant = (job.opts as { group?: { id: string } }).group?.id
    const entry = `${tenant} ${process.pid} ${job.id}`
    await client.rpush(list, `start ${entry}`)
    await delay(Number(jobMs))
    await client.rpush(list, `end ${entry}`)
  },
  { connection: JSON.parse(connection), prefix, concurrency: 5, lockDuration: 1000, stalledInterval: 300 },
)
worker.on('error', (error) => process.send?.({ type: 'error', message: String(error) }))
process.on('message', (message) => {
  if (message === 'close') void worker.close().then(() => process.exit(0))
})
process.send?.({ type: 'ready' })
