import { join } from 'node:path'
import { QueueEvents } from 'bullmq'
import { expect, onTestFinished } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import type { Processes } from '../../support/processes.ts'
import type { TestRedis } from '../../support/redis.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { worstExcess } from './bound.ts'
import { loggedDepartures } from './logged-departures.ts'
import { Producer } from './producer.ts'

const WORKERS = 2
const BUCKET = { intervalUs: 5000, burst: 5 }

/**
 * Ends workers with SIGTERM one after the other, each when another one has taken its place, while jobs come and go. Then
 * every accepted job must have run, once, without a stall, and never faster than the rate.
 */
export async function rollingRestarts(
  { url, prefix, connection }: TestRedis,
  processes: Processes,
  restarts: number,
): Promise<void> {
  const shape = { rate: '200/s', burst: BUCKET.burst, capacity: 1000 }
  const queue = new ShapedQueue('rolling', { connection, prefix, shape })
  const events = new QueueEvents('rolling', { connection, prefix })
  const stalled: string[] = []
  events.on('stalled', ({ jobId }) => stalled.push(jobId))
  onTestFinished(async () => {
    await events.close()
    await queue.close()
  })
  await events.waitUntilReady()
  const log = join(temporaryFolder(), 'departures')
  const script = new URL('../programs/logging-worker.ts', import.meta.url)
  const start = async () => {
    const worker = processes.fork(script, { args: [url, prefix, 'rolling', log] })
    await worker.waitFor('ready')
    return worker
  }
  const workers = await Promise.all(Array.from({ length: WORKERS }, start))
  const producer = new Producer(queue, { everyMs: 4 })
  for (let i = 0; i < restarts; i++) {
    workers.push(await start())
    const exit = await workers.shift()?.kill('SIGTERM')
    expect(exit).toEqual({ code: 0, signal: null })
  }
  await producer.stop()
  await expect.poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: 30_000 }).toBe(0)
  for (const worker of workers) await worker.kill('SIGTERM')

  const departures = loggedDepartures(log)
  process.stdout.write(`${restarts} restarts, ${producer.accepted.length} jobs, ${departures.length} starts\n`)
  expect(departures.map(({ jobId }) => jobId).toSorted()).toEqual(producer.accepted.toSorted())
  expect({ stalled, refused: producer.refused }).toEqual({ stalled: [], refused: [] })
  const slotsUs = departures.map(({ departureTimeUs }) => departureTimeUs)
  expect(worstExcess(slotsUs, BUCKET)).toBeLessThanOrEqual(0)
}
