import type { Job } from 'bullmq'
import type { Shape, ShapedJobsOptions, ShapedQueue } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { callsOf, departuresOf, gate, quiet, settled, Workshop } from './support.ts'

useConcurrentTests()
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const WHY = { by: 'test', reason: 'test' }

/** What a case is given: a queue whose workers sleep. */
interface Asleep {
  readonly queue: ShapedQueue
  /** Ends the job of that name. */
  end(name: string): void
  job(name: string): Promise<Job>
}

interface Case {
  /** Script or call of another program that makes a job startable; the test of scripts asks for each of them. */
  readonly by: string
  readonly when: string
  readonly shape: Shape
  /** Jobs in the order in which they are added; those of `runs` start first, and run until they are ended. */
  readonly runs?: readonly Added[]
  readonly waits: readonly Added[]
  readonly before?: (queue: ShapedQueue) => Promise<unknown>
  readonly act: (asleep: Asleep) => Promise<unknown> | unknown
  /** The job that starts then. */
  readonly starts: string
  /** How many workers ask then: one, unless all have to know of it. */
  readonly asks?: 'all'
  readonly workers?: number
}

type Added = readonly [name: string, opts?: ShapedJobsOptions]

/** One runs and no other may; nothing waits when the workers go to sleep. */
const full = { shape: { concurrency: 1 } as Shape, runs: [['long']] as const, waits: [['next']] as const }

const unblocked = createLimiter(client, { name: 'unblocked', prefix: redis.prefix, rate: '100/s' })

const CASES: readonly Case[] = [
  {
    by: 'override-shape',
    when: 'global concurrency is raised',
    ...full,
    act: ({ queue }) => queue.setShape({ concurrency: 2 }, WHY),
    starts: 'next',
    asks: 'all',
    // It asked when nothing waited, so it waits for a marker, which no add sets while all places are taken.
    workers: 1,
  },
  {
    by: 'block-key',
    when: 'the block of a shared limit is lifted',
    shape: { limits: [{ name: 'unblocked', shared: true, prefix: redis.prefix, key: 'acme', rate: '100/s' }] },
    before: () => unblocked.block('acme', 3_600_000),
    waits: [['held']],
    act: () => unblocked.block('acme', 0),
    starts: 'held',
  },
]

/** Adds jobs; each is stored before the next. */
async function addAll(queue: ShapedQueue, added: readonly Added[]): Promise<void> {
  for (const [name, opts] of added) await queue.add(name, {}, opts)
}

test.for(CASES)('$by: $when', { timeout: 20_000 }, async (row) => {
  const { shape, runs = [], waits, before, act, starts, asks, workers: count = 3 } = row
  const queue = shop.queue(shape)
  await queue.waitUntilReady()
  await before?.(queue)
  const ends = new Map(runs.map(([name]) => [name, gate()]))
  const workers = Array.from({ length: count }, () =>
    // They wait for the marker for a minute.
    shop.worker(queue, (job) => ends.get(job.name)?.opened ?? Promise.resolve(), { concurrency: 3, drainDelay: 60 }),
  )
  try {
    const calls = workers.map(callsOf)
    const departed = departuresOf(...workers)
    await addAll(queue, runs)
    await departed.reach(runs.length)
    await settled(queue, client, ...calls)
    await addAll(queue, waits)
    await settled(queue, client, ...calls)
    expect(departed.all.map(({ name }) => name)).toEqual(runs.map(([name]) => name))
    const asked = calls.map(({ all }) => all.length)
    const job = async (name: string) => (await queue.getJobs()).find((one) => one.name === name) as Job
    const running = new RunningTime(client)
    await act({ queue, end: (name) => ends.get(name)?.open(), job })
    await departed.until((all) => all.some(({ name }) => name === starts))
    // Without news, a worker asks after ten seconds.
    expect(running.ms).toBeLessThan(5000)
    await quiet(client, ...calls)
    const woken = calls.filter(({ all }, i) => all.length > (asked[i] as number)).length
    expect(woken).toBe(asks === 'all' ? count : 1)
  } finally {
    for (const { open } of ends.values()) open()
  }
})
