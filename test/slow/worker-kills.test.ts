import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { QueueFullError, ShapedQueue } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { loggedDepartures } from '../faults/support/logged-departures.ts'
import { type Program, useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

/** How many workers are killed; WORKER_KILLS. */
const KILLS = Number(process.env.WORKER_KILLS ?? 100)
const JOBS_PER_KILL = 100
const WORKERS = 6
/** What a worker has in hand at most. */
const CONCURRENCY = 10
const BUCKET = { intervalUs: 2500, burst: 20 }
const SHAPE = { rate: '400/s', burst: 20, capacity: 1000 }
const BULK = 50

type Message = { type: 'ready' } | { type: 'departed'; count: number } | { type: 'error'; message: string }

/** Adds that many jobs, as fast as the queue takes them. */
async function produce(queue: ShapedQueue, jobs: number): Promise<string[]> {
  const accepted: string[] = []
  while (accepted.length < jobs) {
    try {
      const added = await queue.addBulk(Array.from({ length: BULK }, () => ({ name: 'job', data: {} })))
      accepted.push(...added.map(({ id }) => id as string))
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs))
    }
  }
  return accepted
}

/** Resolves with the worker once it has started that many jobs: the last of them runs then. */
async function busy(worker: Program<Message>): Promise<Program<Message>> {
  await worker.waitFor('departed', ({ count }) => count >= JOBS_PER_KILL / 2, 120_000)
  return worker
}

// Fault table, row 1.
test(
  `${KILLS} workers killed while they run jobs, one for each ${JOBS_PER_KILL} jobs: none is lost, the bound holds`,
  async () => {
    const { connection, prefix } = redis
    const queue = new ShapedQueue('kills', { connection, prefix, shape: SHAPE })
    onTestFinished(() => queue.close())
    await queue.waitUntilReady()
    const log = join(temporaryFolder(), 'departures')
    const script = new URL('../faults/programs/logging-worker.ts', import.meta.url)
    const env = { MAX_STALLED_COUNT: '1000', LOCK_MS: '2000' }
    const alive = new Map<Program<Message>, Promise<Program<Message>>>()
    const start = () => {
      const worker = processes.fork<Message>(script, { args: [redis.url, prefix, 'kills', log], env })
      const started = busy(worker)
      // One that is idle at the end never gets there.
      started.catch(() => {})
      alive.set(worker, started)
    }
    for (let n = 0; n < WORKERS; n++) start()

    const producing = produce(queue, KILLS * JOBS_PER_KILL)
    for (let kills = 0; kills < KILLS; kills++) {
      const victim = await Promise.any(alive.values())
      alive.delete(victim)
      await victim.kill()
      start()
    }
    const accepted = await producing
    const counts = () => queue.getJobCounts('wait', 'active', 'delayed', 'failed', 'completed')
    const done = { wait: 0, active: 0, delayed: 0, failed: 0, completed: accepted.length }
    await expect.poll(counts, { timeout: 120_000, interval: 200 }).toEqual(done)
    for (const worker of alive.keys()) {
      await worker.waitFor('ready')
      await worker.kill('SIGTERM')
    }

    const starts = loggedDepartures(log)
    const again = starts.length - new Set(starts.map(({ jobId }) => jobId)).size
    const excess = worstExcess(
      starts.map(({ departureTimeUs }) => departureTimeUs),
      BUCKET,
    )
    process.stdout.write(
      `${KILLS} workers killed, ${accepted.length} jobs: lost 0, started again ${again}, worst excess ${Math.max(0, excess)}\n`,
    )
    expect(again).toBeLessThanOrEqual(KILLS * CONCURRENCY)
    expect(excess).toBeLessThanOrEqual(0)
  },
  300_000 + KILLS * 5000,
)
