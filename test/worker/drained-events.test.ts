import { type Job, Queue, Worker } from 'bullmq'
import { type Shape, ShapedQueue, ShapedWorker, type ShapedWorkerOptions } from '../../src/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const shop = new Workshop(redis)
const base = { connection: redis.connection, prefix: redis.prefix }

interface Added {
  readonly name: string
  readonly opts?: object
}
const FIRST: Added = { name: 'first' }
const LATER: Added = { name: 'later', opts: { delay: 200 } }
const FAILS: Added = { name: 'fails' }

const work = async ({ name }: { name: string }) => {
  if (name === 'fails') throw new Error('no')
}

/** The ends of jobs and `drained`, as the events of a queue tell of them. */
async function eventsAfter(queue: Queue, worker: Worker, jobs: readonly Added[]): Promise<string[]> {
  const [completed, failed] = [eventsOf<Job>('completed', worker), eventsOf<Job>('failed', worker)]
  await queue.addBulk(jobs.map((job) => ({ ...job, data: {} })))
  const failing = jobs.filter(({ name }) => name === 'fails').length
  await Promise.all([completed.reach(jobs.length - failing), failed.reach(failing)])
  await worker.close()
  const entries = await redis.client().xrange(queue.toKey('events'), '-', '+')
  return entries.map(([, [, event = '']]) => event).filter((event) => /completed|failed|drained/.test(event))
}

let made = 0

function stock(jobs: readonly Added[], concurrency: number) {
  const name = `stock-${made++}`
  const queue = shop.keep(new Queue(name, base))
  return eventsAfter(queue, shop.keep(new Worker(name, work, { ...base, concurrency })), jobs)
}

async function shaped(jobs: readonly Added[], shape: Shape, options: Partial<ShapedWorkerOptions>) {
  const name = `shaped-${made++}`
  const queue = shop.keep(new ShapedQueue(name, { ...base, shape }))
  await queue.getShape()
  return eventsAfter(queue, shop.keep(new ShapedWorker(name, work, { ...base, ...options })), jobs)
}

const SHAPES: readonly Shape[] = [
  { rate: '500/s', burst: 5 },
  { capacity: 100 },
  { rate: '500/s', limits: [{ name: 'l', rate: '1000/s', burst: 5 }] },
  { mode: 'off', rate: '1/h' },
]

test.each([
  ['several', 1, [FIRST, FIRST, FIRST]],
  ['several at once', 5, [FIRST, FIRST, FIRST, FIRST, FIRST, FIRST]],
  ['delayed ones behind them', 1, [FIRST, LATER]],
  ['delayed ones behind several', 3, [FIRST, FIRST, LATER]],
  ['delayed ones behind one that fails', 1, [FAILS, LATER]],
] as const)('drained is told as by stock classes: %s, %i at once', async (_what, concurrency, jobs) => {
  const expected = await stock(jobs, concurrency)
  expect(expected.filter((event) => event === 'drained')).toHaveLength(1)
  const count = (events: readonly string[]) => events.toSorted()
  for (const shape of SHAPES) {
    const events = await shaped(jobs, shape, { concurrency })
    expect([shape, count(events)]).toEqual([shape, count(expected)])
    expect(events.at(-1)).toBe('drained')
  }
  const withLetters = await shaped(jobs, { rate: '500/s' }, { concurrency, deadLetter: 'letters' })
  expect(count(withLetters)).toEqual(count(expected))
})
