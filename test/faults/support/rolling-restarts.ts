import { join } from 'node:path'
import { QueueEvents } from 'bullmq'
import { ShapedQueue } from '../../../src/index.ts'
import { expect, onTestFinished } from '../../support/concurrent.ts'
import type { Processes } from '../../support/processes.ts'
import type { TestRedis } from '../../support/redis.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { worstExcess } from './bound.ts'
import { idsOf } from './fleet.ts'
import { loggedDepartures } from './logged-departures.ts'

const WORKERS = 2
const JOB = { name: 'job', data: {} }
const RATE = 100
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 5 }

/** So many wait that every worker always holds jobs for their slots. */
const JOBS_PER_RESTART = 500

/**
 * Ends workers with SIGTERM one after the other, each when another one has taken its place, while jobs come and go. Then
 * every accepted job must have run, once, without a stall, and never faster than the rate.
 */
export async function rollingRestarts(
  { url, prefix, connection }: TestRedis,
  processes: Processes,
  restarts: number,
): Promise<void> {
  const shape = { rate: `${RATE}/s`, burst: BUCKET.burst, horizonMs: 300 }
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
    // Locks as they usually are: a busy machine alone loses none.
    const worker = processes.fork(script, { args: [url, prefix, 'rolling', log], env: { LOCK_MS: '30000' } })
    await worker.waitFor('ready')
    return worker
  }
  const workers = await Promise.all(Array.from({ length: WORKERS }, start))
  const ids = idsOf(await queue.addBulk(Array.from({ length: restarts * JOBS_PER_RESTART }, () => JOB)))
  for (let i = 0; i < restarts; i++) {
    workers.push(await start())
    const exit = await workers.shift()?.kill('SIGTERM')
    expect(exit).toEqual({ code: 0, signal: null })
  }
  // Restarts can be over before there are enough starts to judge the rate by.
  await expect.poll(() => loggedDepartures(log).length, { timeout: 60_000 }).toBeGreaterThan(RATE)
  const restartedUs = Date.now() * 1000
  await queue.setShape({ rate: null }, { by: 'test', reason: 'to see the end' })
  await expect.poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: 60_000 }).toBe(0)
  for (const worker of workers) await worker.kill('SIGTERM')

  const departures = loggedDepartures(log)
  process.stdout.write(`${restarts} restarts, ${ids.length} jobs, ${departures.length} starts\n`)
  expect(departures.map(({ jobId }) => jobId).toSorted()).toEqual(ids.toSorted())
  expect(stalled).toEqual([])
  const slotsUs = departures.map(({ departureTimeUs }) => departureTimeUs).filter((slotUs) => slotUs < restartedUs)
  expect(worstExcess(slotsUs, BUCKET)).toBeLessThanOrEqual(0)
}
