import { expect, test } from 'vitest'
import { type FeedbackChange, InvalidInputError, PauseQueueError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'
import { ears, said, Told } from './support/told.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('a pause of one worker holds the fleet, and the job that was refused goes first again', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(6))
  let refused = 0
  const fn = async (job: { name: string }) => {
    if (job.name === 'job2' && refused++ === 0) throw new Told({ kind: 'pause', forMs: 300, hard: true, ...said })
  }
  const worker = shop.worker(queue, fn, { feedback: ears, concurrency: 1 })
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  const changes = eventsOf<FeedbackChange>('feedback', worker)
  await completed.reach(6)
  expect(departed.all.map(({ name }) => name)).toEqual(['job0', 'job1', 'job2', 'job2', 'job3', 'job4', 'job5'])
  const [first, again] = departed.all.filter(({ name }) => name === 'job2')
  expect(again!.departureTimeUs - first!.departureTimeUs).toBeGreaterThan(300_000)
  expect(changes.all.map(({ kind }) => kind)).toEqual(['pause', 'resumed'])
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual([1, 1, 1, 1, 1, 1])
})

test.each([5, 'maintenance', null, { retryAfter: 5 }, { retryAfterMs: 5, scope: { group: 'acme' } }])(
  'PauseQueueError of %j is refused: it would pause something else',
  (options) => {
    const came = JSON.stringify(options)
    expect(() => new PauseQueueError(options as never)).toThrow(
      new InvalidInputError(`PauseQueueError takes { retryAfterMs, hard, reason }, all optional; got ${came}`),
    )
  },
)

test('PauseQueueError needs no profile', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(2))
  let refused = 0
  const worker = shop.worker(queue, async () => {
    if (refused++ === 0) throw new PauseQueueError({ retryAfterMs: 200, reason: 'closed for lunch' })
  })
  const changes = eventsOf<FeedbackChange>('feedback', worker)
  const completed = eventsOf('completed', worker)
  await completed.reach(2)
  expect(changes.all).toMatchObject([{ kind: 'pause', reason: 'closed for lunch', source: 'user' }])
})

test('the meter says what the rate is now, and why', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(3))
  let refused = 0
  const fn = async () => {
    // A rule is obeyed at once.
    if (refused++ < 1) throw new Told({ kind: 'slow', factor: 0.5, ...said, source: 'rule', reason: '429' })
  }
  const adapt = { decrease: 0.5, floor: '10/s' }
  const worker = shop.worker(queue, fn, { feedback: ears, adapt, concurrency: 1 })
  await eventsOf('completed', worker).reach(3)
  expect(await queue.meter()).toMatchObject({
    rate: '250/s',
    cause: 'feedback',
    feedback: {
      rates: { pace: 250 },
      probing: false,
      last: { kind: 'slow', rate: 250, from: 500, reason: '429', source: 'rule', by: worker.id },
    },
  })
  expect((await queue.getShape())?.rate).toBe('500/s')
})
