import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { QueueLimit, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)

const BURST = 100
const rule = { algorithm: 'token-bucket', rate: '1/day', burst: BURST } as const
const limits: QueueLimit[] = [
  { name: 'tokens', unit: 'tokens', shared: true, prefix: redis.prefix, ...rule },
  { name: 'per-hour', algorithm: 'sliding-window-counter', rate: '1000/h' },
]
const tokens = createLimiter(client, { name: 'tokens', prefix: redis.prefix, timeoutMs: 10_000, ...rule })
const charged = async () => BURST - (await tokens.peek()).remaining
const CONCURRENCY = 20
/** However busy the machine is, no job is late for its slot: one that is goes back, and what its slot was charged is lost. */
const PATIENT = { maxLatenessMs: 60_000 }

beforeEach(() => tokens.reset())

/** Jobs that run until they are told to end, in the order of their starts. */
class Running {
  readonly started: string[] = []
  readonly #open = new Map<string, () => void>()
  #released = false

  readonly process = (job: { id?: string }) =>
    new Promise<void>((resolve) => {
      this.started.push(job.id as string)
      if (this.#released) resolve()
      else this.#open.set(job.id as string, resolve)
    })

  /** Ends the oldest. */
  end(count: number): void {
    for (const [id, end] of [...this.#open].slice(0, count)) {
      this.#open.delete(id)
      end()
    }
  }

  /** Ends all, and each that starts from now on. */
  release(): void {
    this.#released = true
    this.end(Number.POSITIVE_INFINITY)
  }

  async until(count: number): Promise<void> {
    await vi.waitFor(() => expect(this.started).toHaveLength(count), 60_000)
  }
}

let running: Running
afterEach(() => running.release())

async function start(costs: readonly number[], opts: object = {}) {
  const queue = shop.queue({ limits, ...PATIENT })
  const jobs = await queue.addBulk(
    costs.map((cost, i) => ({ name: 'job', data: { i }, opts: { ...opts, costs: { tokens: cost } } })),
  )
  running = new Running()
  const worker = shop.worker(queue, running.process, { concurrency: CONCURRENCY })
  await worker.waitUntilReady()
  return { queue, worker, ids: jobs.map(({ id }) => id as string) }
}

/** How many of these jobs BullMQ's own text fetched: of those that pass the gate, a grant remembers more than the id. */
async function fetchedWithoutGate(queue: ShapedQueue, ids: readonly string[]): Promise<number> {
  const jobsOf = "return select(2, cmsgpack.unpack(redis.call('GET', KEYS[1])))"
  const keys = await client.keys(queue.toKey('meta:grants:*'))
  const granted = await Promise.all(keys.map((key) => client.eval(jobsOf, 1, key)))
  return granted.flat().filter((job) => ids.includes(job as string)).length
}

test('jobs that end together fetch as many as conform, in their order, and no more', async () => {
  const costs = Array.from({ length: 80 }, (_, i) => 1 + (i % 3))
  const { queue, ids } = await start(costs)
  await running.until(CONCURRENCY)
  running.end(10)
  await running.until(30)
  expect(await fetchedWithoutGate(queue, ids.slice(20, 30))).toBeGreaterThan(0)
  expect(await charged()).toBe(costs.slice(0, 30).reduce((a, b) => a + b))
  // 50 jobs take 99 tokens: the next one needs 3, and one is left.
  running.end(15)
  await running.until(45)
  running.end(15)
  await running.until(50)
  await vi.waitFor(async () => expect(await queue.getJobCountByTypes('active')).toBe(CONCURRENCY - 10), 60_000)
  expect(new Set(running.started)).toEqual(new Set(ids.slice(0, 50)))
  expect(await charged()).toBe(99)
  await tokens.reward(undefined, 2)
  await running.until(51)
  expect(await charged()).toBe(100)
})

test.each([
  ['nothing changed', async () => {}],
  ['the limits went', (queue: ShapedQueue) => queue.setShape({ limits: null }, { by: 'test', reason: 'gone' })],
] as const)(
  'such a call that is sent again answers with the same jobs, and charges nothing: %s',
  async (_what, change) => {
    const { queue, worker, ids } = await start(Array.from({ length: 60 }, () => 1))
    const sent = await callsTo(worker, 'exchange')
    await running.until(CONCURRENCY)
    running.end(10)
    await running.until(30)
    await change(queue)
    const reply = (await sent.again()) as [number, string, number[], [string[], string][]]
    expect(new Set(reply[2])).toEqual(new Set([0]))
    const granted = reply[3].map(([, id]) => id)
    expect(granted).toHaveLength(reply[2].length)
    expect(ids.slice(20, 30)).toEqual(expect.arrayContaining(granted))
    expect(await queue.getJobCountByTypes('active')).toBe(CONCURRENCY)
    expect(await charged()).toBe(30)
  },
)

test('a job that an end puts before all others is not taken for the one that was looked at', async () => {
  const { queue } = await start([])
  const deduplication = { id: 'last', keepLastIfActive: true }
  await queue.add('first', {}, { deduplication, costs: { tokens: 1 } })
  await queue.addBulk(Array.from({ length: 40 }, () => ({ name: 'job', data: {}, opts: { costs: { tokens: 1 } } })))
  await running.until(CONCURRENCY)
  await queue.add('last', {}, { deduplication, lifo: true, costs: { tokens: 90 } })
  running.end(10)
  // It costs more than is left, and none overtakes it.
  await vi.waitFor(async () => expect(await queue.getJobCountByTypes('active')).toBe(CONCURRENCY - 10), 60_000)
  expect(await charged()).toBe(CONCURRENCY)
  await tokens.reward(undefined, CONCURRENCY)
  await running.until(30)
  expect(await charged()).toBe(99)
})

test.each([
  ['prioritized', { priority: 1 }],
  ['of the wait list', {}],
])('jobs that are %s are charged as they leave', async (_kind, opts) => {
  const costs = Array.from({ length: 40 }, () => 2)
  const { queue, ids } = await start(costs, opts)
  await running.until(CONCURRENCY)
  running.end(10)
  await running.until(30)
  expect(await charged()).toBe(60)
  expect(new Set(running.started)).toEqual(new Set(ids.slice(0, 30)))
  expect((await fetchedWithoutGate(queue, ids.slice(20, 30))) > 0).toBe(!('priority' in opts))
})

/** Keeps the calls of a script that a worker sends. */
async function callsTo(worker: ShapedWorker, script: string) {
  type Run = (args: unknown[]) => Promise<unknown>
  const redisOfWorker = (await worker.getBackend().connection.client) as unknown as Record<string, Run>
  const command = Object.keys(redisOfWorker).find((name) => name.endsWith(`:${script}`)) as string
  const sent = vi.spyOn(redisOfWorker, command)
  return { again: () => redisOfWorker[command]?.(sent.mock.calls.at(-1)?.[0] as unknown[]) }
}
