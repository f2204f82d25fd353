import { expect, test } from 'vitest'
import type { Shape } from '../../src/index.ts'
import { Schedule } from '../model/schedule.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, type Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const processes = useProcesses()

const PROCESSES = 4
const PACED_WORKER = new URL('../worker/programs/paced-worker.ts', import.meta.url)

// Many more of these run in virtual time: test/model/crossings.test.ts.
const SHAPES: readonly Shape[] = [
  { rate: '25/s', limits: [{ name: 'window', algorithm: 'fixed-window', rate: '3600/h' }] },
  {
    rate: '25/s',
    limits: [
      { name: 'minute', algorithm: 'sliding-window-log', rate: '500/min' },
      { name: 'hour', rate: '5000/h', burst: 200 },
    ],
  },
]

test('four processes use the slots that a rate and slow limits leave them', async () => {
  await Promise.all(SHAPES.map((shape) => expectUsed(shape)))
})

/** Under a backlog, in real time: a slot that nobody asks for is lost, so that what leaves is behind the schedule. */
async function expectUsed(shape: Shape): Promise<void> {
  const COUNT = 100
  const queue = shop.queue({ ...shape, horizonMs: 100 })
  await queue.addBulk(jobs(COUNT))
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  const completed = eventsOf<unknown>('completed', events)
  type Message = { type: 'ready' } | ({ type: 'departed' } & Seen)
  const args = [queue.name, redis.prefix, JSON.stringify(redis.connection), '20']
  const workers = Array.from({ length: PROCESSES }, () => processes.fork<Message>(PACED_WORKER, { args }))
  await Promise.all(workers.map((worker) => worker.waitFor('ready')))
  for (const worker of workers) worker.send('run')
  await completed.reach(COUNT)
  await Promise.all(workers.map((worker) => worker.kill('SIGTERM')))
  const departed = workers.flatMap(({ messages }) =>
    messages.filter(({ type }) => type === 'departed'),
  ) as unknown as Seen[]
  const slots = departed.map(({ departureTimeUs }) => departureTimeUs).sort((one, other) => one - other)
  const [first, last] = [slots[0], slots.at(-1)] as [number, number]
  const due = new Schedule(shape, first).departures(slots.map(() => ({ cost: 1, runsUs: 0 })))
  // A machine that is busy wakes late now and then.
  expect(last - first).toBeLessThanOrEqual(1.1 * ((due.at(-1) as number) - first))
  expect(last).toBeGreaterThanOrEqual(due.at(-1) as number)
}
