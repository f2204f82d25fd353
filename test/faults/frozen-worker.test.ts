import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { worstExcess } from './support/bound.ts'
import { idsOf } from './support/fleet.ts'
import { loggedDepartures } from './support/logged-departures.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

const JOBS = 300
/** Added once it goes on: by then a busy machine may have run all others. */
const MORE = 200
/** What a worker has in hand at most, and how long its locks last: as in the program. */
const CONCURRENCY = 10
const LOCK_MS = 500
const MAX_LATENESS_MS = 100
const BUCKET = { intervalUs: 10_000, burst: 5 }

type Message = { type: 'ready' } | { type: 'departed'; count: number } | { type: 'error'; message: string }

// Fault table, row 13.
test('a worker is stopped for longer than its locks last: it does not start late what it held, and little runs twice', async () => {
  const { connection, prefix } = redis
  // Far ahead, so that it holds jobs for their slots when it is stopped.
  const shape = { rate: '100/s', burst: BUCKET.burst, horizonMs: 500, maxLatenessMs: MAX_LATENESS_MS }
  const queue = new ShapedQueue('frozen', { connection, prefix, shape })
  onTestFinished(() => queue.close())
  const folder = temporaryFolder()
  const logs = ['stopped', 'other'].map((name) => join(folder, name))
  const script = new URL('./programs/logging-worker.ts', import.meta.url)
  const workers = logs.map((log) => processes.fork<Message>(script, { args: [redis.url, prefix, 'frozen', log] }))
  await Promise.all(workers.map((worker) => worker.waitFor('ready')))
  const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))
  const ids = idsOf(await queue.addBulk(jobs(JOBS)))
  const [stopped] = workers
  const [log = ''] = logs
  await stopped?.waitFor('departed', ({ count }) => count === 20)

  process.kill(stopped?.pid as number, 'SIGSTOP')
  const before = loggedDepartures(log).length
  await sleep(3 * LOCK_MS)
  const againUs = Date.now() * 1000
  process.kill(stopped?.pid as number, 'SIGCONT')
  ids.push(...idsOf(await queue.addBulk(jobs(MORE))))
  await expect.poll(() => queue.getJobCountByTypes('wait', 'active')).toBe(0)
  for (const worker of workers) await worker.kill('SIGTERM')

  const after = loggedDepartures(log).slice(before)
  // It goes on, with jobs that it was granted since.
  expect(after.length).toBeGreaterThan(0)
  expect(after.filter(({ departureTimeUs }) => departureTimeUs < againUs - MAX_LATENESS_MS * 1000)).toEqual([])
  const departures = logs.flatMap(loggedDepartures)
  expect(new Set(departures.map(({ jobId }) => jobId))).toEqual(new Set(ids))
  process.stdout.write(`${ids.length} jobs, ${departures.length - ids.length} started twice\n`)
  // Only of what it had begun: where the machine keeps a process waiting for longer than the locks last, others run twice.
  const begun = new Set(
    loggedDepartures(log)
      .slice(0, before)
      .map(({ jobId }) => jobId),
  )
  const starts = departures.filter(({ jobId }) => begun.has(jobId))
  expect(starts.length).toBeLessThanOrEqual(begun.size + CONCURRENCY)
  expect(await queue.getJobCounts('completed', 'failed')).toEqual({ completed: ids.length, failed: 0 })
  const slotsUs = departures.map(({ departureTimeUs }) => departureTimeUs)
  expect(worstExcess(slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})
