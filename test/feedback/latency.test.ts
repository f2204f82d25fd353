import { expect, test } from 'vitest'
import { LatencyLimit } from '../../src/feedback/latency-limit.ts'
import { type FeedbackChange, InvalidInputError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { ears } from './support/told.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** A limit that is what it was told last. */
class Fixed {
  limit: number
  constructor(limit: number) {
    this.limit = limit
  }
  sample(latencyMs: number): void {
    this.limit = latencyMs
  }
  dropped(): void {
    this.limit = 1
  }
}

test('what latency allows is told once for each change, and starts anew with another concurrency of the worker', () => {
  const changes: FeedbackChange[] = []
  const worker = {
    id: 'w',
    concurrency: 8,
    emit: (_event: string, change: FeedbackChange | Error) => changes.push(change as FeedbackChange),
  }
  const limit = new LatencyLimit(worker, (most) => new Fixed(most))
  expect(limit.limit).toBe(8)
  limit.wentWell(8, 1)
  limit.wentWell(5, 1)
  limit.wentWell(5, 1)
  limit.refused()
  expect(limit.limit).toBe(1)
  expect(changes).toMatchObject([
    { kind: 'concurrency', limit: 5, source: 'latency', reason: 'calls take 5.0 ms', by: 'w' },
    { kind: 'concurrency', limit: 1, reason: 'a call was refused' },
  ])
  worker.concurrency = 20
  expect(limit.limit).toBe(20)
})

test('a source that fails limits nothing from then on, and is told once', () => {
  const errors: unknown[] = []
  const worker = { id: 'w', concurrency: 8, emit: (_event: string, error: unknown) => errors.push(error) }
  const failing = new LatencyLimit(worker, (most) => new Fixed(most))
  expect(failing.limit).toBe(8)
  failing.wentWell(0.5, 1)
  errors.length = 0
  expect(failing.limit).toBe(Number.POSITIVE_INFINITY)
  failing.wentWell(3, 1)
  failing.refused()
  expect(failing.limit).toBe(Number.POSITIVE_INFINITY)
  expect(errors).toEqual([new InvalidInputError('a limit by latency must be >= 1; got 0.5')])
})

test('a worker that adapts runs no more jobs at once than latency allows', async () => {
  const queue = shop.queue({ rate: '2000/s', burst: 100 })
  await queue.addBulk(jobs(12))
  const limit = new Fixed(3)
  let [running, most] = [0, 0]
  const end = gate()
  const source = { ...ears, concurrencyLimit: () => ({ ...limit, limit: 3, sample: () => {}, dropped: () => {} }) }
  const worker = shop.worker(
    queue,
    async () => {
      running += 1
      most = Math.max(most, running)
      if (running === 3) end.open()
      await end.opened
      running -= 1
    },
    { feedback: source, adapt: true, concurrency: 10 },
  )
  await eventsOf('completed', worker).reach(12)
  expect(most).toBe(3)
})
