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

/** A machine that is busy wakes all workers too late now and then, by more than they ask ahead. */
const MOST_BEHIND = 1.3

test('four processes use the slots that a rate and slow limits leave them', async () => {
  const slotsOf = await Promise.all(SHAPES.map(slotsUnderBacklog))
  for (const [i, slots] of slotsOf.entries()) {
    const [first, last] = [slots[0], slots.at(-1)] as [number, number]
    const due = new Schedule(SHAPES[i] as Shape, first).departures(slots.map(() => ({ cost: 1, runsUs: 0 })))
    expect(last).toBeGreaterThanOrEqual(due.at(-1) as number)
    expect(last - first).toBeLessThanOrEqual(MOST_BEHIND * ((due.at(-1) as number) - first))
  }
})

/** In real time: a slot that nobody asks for is lost, so that what leaves is behind the schedule. */
async function slotsUnderBacklog(shape: Shape): Promise<number[]> {
  const COUNT = 100
  // A job that starts late does not go back, which would lose its slot.
  const queue = shop.queue({ ...shape, horizonMs: 1000, maxLatenessMs: 60_000 })
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
  return departed.map(({ departureTimeUs }) => departureTimeUs).sort((one, other) => one - other)
}
