import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Closers } from 'sluice-programs'
import { type ShapedJob, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { startRedis } from '../services/redis.ts'
import { openDashboard } from './dashboard.ts'
import type { StartOptions } from './options.ts'
import type { Screen } from './screen.ts'

const QUEUE = 'api-calls'
const RATE = '20/s'
const TENANTS = ['acme', 'bolt', 'cove', 'dune']
const NOISY = 'noisy-corp'
/** How long a call takes. */
const CALL_MS = 150
/** What the API asks for when it answers 429. */
const RETRY_AFTER_MS = 5000
/** Short, so that what a dead worker ran is seen to run again. */
const LOCK_MS = 10_000
const ADD_EVERY_MS = 250
/** Between two chapters. */
const CHAPTER_MS = 15_000

/** Whether the API, which the workers call, answers 429. */
interface Api {
  refuses: boolean
}

/**
 * Serves the dashboard of a queue in which something happens all the time, until the signal is aborted.
 * @throws the reason of the signal
 */
export async function runStory(
  { workers: count }: StartOptions,
  screen: Screen,
  signal: AbortSignal,
  closers: Closers,
): Promise<never> {
  screen.say('Starting Redis …')
  const redis = await startRedis()
  closers.push(() => redis.stop())
  screen.say(`Redis       ${redis.source}`)
  signal.throwIfAborted()
  const prefix = `sluice-demo-${randomBytes(6).toString('hex')}`
  const options = { connection: { url: redis.url }, prefix }
  const queue = new ShapedQueue(QUEUE, { ...options, shape: { rate: RATE, capacity: 300, groups: {} } })
  queue.on('error', () => {})
  closers.push(async () => {
    if (redis.kind === 'given') await queue.obliterate({ force: true })
    await queue.close()
  })
  await queue.getShape()
  const api = { refuses: false }
  const startWorker = () => {
    const worker = new ShapedWorker(QUEUE, (job) => callApi(api, job), {
      ...options,
      ...{ concurrency: 10, lockDuration: LOCK_MS, stalledInterval: LOCK_MS / 2, drainDelay: 1 },
    })
    worker.on('error', () => {})
    closers.push(() => worker.close(true))
    return worker
  }
  const workers = Array.from({ length: Math.max(2, count) }, startWorker)
  screen.say(`Dashboard   ${await openDashboard({ redisUrl: redis.url, prefix }, closers)}`)
  screen.say(
    `\nOpen it, and the queue ${QUEUE}: ${RATE}, 300 places, ${workers.length} workers. Ctrl-C ends everything.\n`,
  )
  try {
    await Promise.all([addJobs(queue, signal), tell({ queue, api, workers, startWorker }, screen, signal)])
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  }
  throw signal.reason
}

async function callApi(api: Api, job: ShapedJob): Promise<void> {
  if (api.refuses) {
    await job.feedback({ kind: 'pause', forMs: RETRY_AFTER_MS, reason: `429, Retry-After: ${RETRY_AFTER_MS / 1000}` })
    return
  }
  await delay(CALL_MS)
}

/** A few calls of each tenant, a bit less than the rate lets out. */
async function addJobs(queue: ShapedQueue, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    for (const id of TENANTS) await queue.offer('call', {}, { group: { id }, removeOnComplete: true })
    await delay(ADD_EVERY_MS, undefined, { signal })
  }
}

interface Stage {
  readonly queue: ShapedQueue
  readonly api: Api
  readonly workers: ShapedWorker[]
  readonly startWorker: () => ShapedWorker
}

/** Each says what happens and where to look. */
const CHAPTERS: readonly ((stage: Stage) => Promise<string>)[] = [
  async ({ queue }) => {
    const jobs = Array.from({ length: 200 }, () => ({
      name: 'call',
      data: {},
      opts: { group: { id: NOISY }, removeOnComplete: true },
    }))
    for (const { name, data, opts } of jobs) await queue.offer(name, data, opts)
    return `${NOISY} adds 200 calls at once. Groups: the others still take their turns, only ${NOISY} waits`
  },
  async ({ workers }) => {
    await workers.shift()?.close(true)
    return `a worker dies. Workers: it leaves the table; its jobs run again when their locks expire, after ${LOCK_MS / 1000} s`
  },
  async ({ workers, startWorker }) => {
    workers.push(startWorker())
    return 'a new worker takes its place'
  },
  async ({ queue }) => {
    const ttlMs = CHAPTER_MS
    await queue.setShape({ rate: '5/s' }, { by: 'npm start', reason: 'the API is slow today', ttlMs })
    return `someone overrides the rate: 5/s for ${ttlMs / 1000} s. The badge Override, and the queue grows`
  },
  async () => 'the override has ended by itself: the backlog drains at the declared rate',
  async ({ api }) => {
    api.refuses = true
    await delay(1000)
    api.refuses = false
    return `the API answers 429 with Retry-After: ${RETRY_AFTER_MS / 1000}. The badges Paused and Feedback: all workers wait, then one job probes`
  },
]

async function tell(stage: Stage, screen: Screen, signal: AbortSignal): Promise<void> {
  for (let i = 0; !signal.aborted; i = (i + 1) % CHAPTERS.length) {
    await delay(CHAPTER_MS, undefined, { signal })
    const news = await CHAPTERS[i]?.(stage)
    screen.say(`${new Date().toTimeString().slice(0, 8)}  ${news}`)
  }
}
