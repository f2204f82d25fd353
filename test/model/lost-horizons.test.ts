import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { worstExcess } from '../faults/support/bound.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const queue = new HeldQueue(redis, client, 'lost')
afterAll(() => queue.close())

const BURST = 4
const INTERVAL_US = 10_000
/** More than can leave in a story. */
const JOBS = 400

/** A worker that has asked once, and remembers what it was told last; `Dispatcher` remembers it for longer. */
class Asking {
  #longestUs = 0

  constructor(readonly horizonUs: number) {}

  async ask(jobs: number): Promise<number[]> {
    const reply = await queue.depart(jobs, this.horizonUs, Math.max(this.horizonUs, this.#longestUs))
    this.#longestUs = reply.longestHorizonUs ?? 0
    return reply.grants.map(({ slotUs }) => slotUs)
  }
}

const stepOf = fc.record({
  waitMs: fc.constantFrom(0, 1, 10, 40, 300),
  worker: fc.nat({ max: 2 }),
  jobs: fc.integer({ min: 1, max: 60 }),
  loses: fc.constantFrom(...['nothing', 'nothing', 'nothing', 'meter', 'everything']),
})

/** The worker with the shortest horizon notices a loss while many slots are granted far ahead. */
const SHORT_NOTICES = [
  { waitMs: 0, worker: 2, jobs: 60, loses: 'nothing' },
  { waitMs: 0, worker: 0, jobs: 60, loses: 'meter' },
  { waitMs: 300, worker: 0, jobs: 60, loses: 'nothing' },
]

test('after a loss nothing leaves too early, however far ahead another worker was granted slots', {
  timeout: 600_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(stepOf, { minLength: 3, maxLength: 25 }), async (steps) => {
      await queue.reset({ rate: '100/s', burst: BURST })
      await queue.queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {} })))
      const workers = [50, 200, 1500].map((horizonMs) => new Asking(horizonMs * 1000))
      const slotsUs: number[] = []
      for (const { waitMs, worker, jobs, loses } of steps) {
        await queue.advanceTo(queue.nowUs + waitMs * 1000)
        if (loses !== 'nothing') {
          // Each has asked since the longest horizon was used.
          for (const one of workers.toReversed()) slotsUs.push(...(await one.ask(1)))
          await client.del(`${queue.base}meta:meter`)
          if (loses === 'everything') await client.del(`${queue.base}meta:shape`)
        }
        slotsUs.push(...(await (workers[worker] as Asking).ask(jobs)))
      }
      expect(worstExcess(slotsUs, { intervalUs: INTERVAL_US, burst: BURST })).toBeLessThanOrEqual(0)
    }),
    { numRuns: 20, examples: [[SHORT_NOTICES]] },
  )
})
