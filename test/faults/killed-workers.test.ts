import { join } from 'node:path'
import { QueueEvents } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { type Program, useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { worstExcess } from './support/bound.ts'
import { idsOf } from './support/fleet.ts'
import { loggedDepartures } from './support/logged-departures.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

/** Enough for all kills, also if this process stands still for a while between them. */
const JOBS = 600
const KILLS = 3
/** What a worker has in hand at most. */
const CONCURRENCY = 10
/** Jobs that still run when a busy machine kills their worker, and locks that it renews in time. */
const LONGER = { JOB_MS: '80', LOCK_MS: '3000' }
const RATE = { limit: 100, period: 1000 }

type Message = { type: 'ready' } | { type: 'departed'; count: number } | { type: 'error'; message: string }

/** Resolves with the worker once it has started some more jobs: the last of them runs then. */
async function departsAgain(worker: Program<Message>): Promise<Program<Message>> {
  const before = worker.messages.filter(({ type }) => type === 'departed').length
  await worker.waitFor('departed', ({ count }) => count === before + 10)
  return worker
}

// Fault table, row 1.
test('workers killed while they run jobs lose none, and no window is above the bound', async () => {
  const { connection, prefix } = redis
  const log = join(temporaryFolder(), 'departures')
  const queue = new ShapedQueue('killed', { connection, prefix, shape: { rate: RATE, burst: 5 } })
  const events = new QueueEvents('killed', { connection, prefix })
  onTestFinished(async () => {
    await events.close()
    await queue.close()
  })
  await events.waitUntilReady()
  const ended = new Set<string>()
  const allEnded = new Promise<void>((resolve) => {
    const note = ({ jobId }: { jobId: string }) => {
      ended.add(jobId)
      if (ended.size === JOBS) resolve()
    }
    events.on('completed', note)
    events.on('failed', note)
  })
  const script = new URL('./programs/logging-worker.ts', import.meta.url)
  const args = [redis.url, prefix, 'killed', log]
  const workers = Array.from({ length: KILLS + 1 }, () => processes.fork<Message>(script, { args, env: LONGER }))
  await Promise.all(workers.map((worker) => worker.waitFor('ready')))
  const jobs = await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {} })))

  const alive = new Set(workers)
  for (let kills = 0; kills < KILLS; kills++) {
    const busiest = await Promise.any([...alive].map(departsAgain))
    alive.delete(busiest)
    await busiest.kill()
  }
  await allEnded
  for (const survivor of alive) {
    survivor.send('close')
    await survivor.exited
  }

  expect(await queue.getJobCounts('completed', 'failed', 'active', 'waiting')).toEqual({
    completed: JOBS,
    failed: 0,
    active: 0,
    waiting: 0,
  })
  const departures = loggedDepartures(log)
  expect(new Set(departures.map(({ jobId }) => jobId))).toEqual(new Set(idsOf(jobs)))
  expect(departures.length).toBeGreaterThan(JOBS)
  expect(departures.length).toBeLessThanOrEqual(JOBS + KILLS * CONCURRENCY)
  const slotsUs = departures.map(({ departureTimeUs }) => departureTimeUs)
  expect(worstExcess(slotsUs, { intervalUs: 10_000, burst: 5 })).toBeLessThanOrEqual(0)
})
