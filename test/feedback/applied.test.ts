import { expect, test } from 'vitest'
import type { Feedback } from '../../src/egress/feedback.ts'
import { type FeedbackSource, PauseQueueError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** An error that carries its own findings. */
class Told extends Error {
  readonly found: readonly Feedback[]
  constructor(...found: readonly Feedback[]) {
    super('told')
    this.found = found
  }
}
const ears: FeedbackSource = {
  name: 'ears',
  listen: (outcome) =>
    'threw' in outcome && outcome.threw instanceof Told ? outcome.threw.found.map((feedback) => ({ feedback })) : [],
}
const said = { scope: 'queue', source: 'status', reason: 'a test' } as const

test('a pause of one worker holds the fleet, and the job that was refused goes first again', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(6))
  let refused = 0
  const fn = async (job: { name: string }) => {
    if (job.name === 'job2' && refused++ === 0) throw new Told({ kind: 'pause', forMs: 300, hard: true, ...said })
  }
  const worker = shop.worker(queue, fn, { feedback: ears, concurrency: 1 })
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  const changes = eventsOf('feedback' as never, worker)
  await completed.reach(6)
  expect(departed.all.map(({ name }) => name)).toEqual(['job0', 'job1', 'job2', 'job2', 'job3', 'job4', 'job5'])
  const [first, again] = departed.all.filter(({ name }) => name === 'job2')
  expect(again!.departureTimeUs - first!.departureTimeUs).toBeGreaterThan(300_000)
  expect(changes.all.map(({ kind }: { kind: string }) => kind)).toEqual(['pause', 'resumed'])
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual([1, 1, 1, 1, 1, 1])
})

test('PauseQueueError needs no profile', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(2))
  let refused = 0
  const worker = shop.worker(queue, async () => {
    if (refused++ === 0) throw new PauseQueueError({ retryAfterMs: 200, reason: 'closed for lunch' })
  })
  const changes = eventsOf('feedback' as never, worker)
  const completed = eventsOf('completed', worker)
  await completed.reach(2)
  expect(changes.all).toMatchObject([{ kind: 'pause', reason: 'closed for lunch', source: 'user' }])
})
