import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { HeldQueue, START_US } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const queue = new HeldQueue(redis, redis.client(), 'wakes')
afterAll(() => queue.close())

/** They last longer than half a horizon. */
const MANY = { minLength: 55, maxLength: 65 }
const HORIZON_US = 100_000

test('a worker sleeps until one horizon before the last of the slots that it takes together', {
  timeout: 600_000,
}, async () => {
  const jobOf = fc.record({ priority: fc.constantFrom(0, 1, 1, 2, 3), cost: fc.constantFrom(0.5, 1, 1, 3, 5) })
  // Whose turn it is takes no part in it, so in groups all cost the same.
  const grouped = fc.constantFrom('a', 'b', 'c').map((id) => ({ group: { id } }))
  const casesOf = fc.oneof(
    fc.record({ jobs: fc.array<object>(jobOf, MANY), shape: fc.constant({}) }),
    fc.record({ jobs: fc.array<object>(grouped, MANY), shape: fc.constant({ groups: {} }) }),
  )
  const callOf = fc.record({ places: fc.constantFrom(1, 3, 20, 50), pauseMs: fc.integer({ min: 200, max: 900 }) })
  await fc.assert(
    fc.asyncProperty(casesOf, callOf, async ({ jobs, shape }, { places, pauseMs }) => {
      await queue.reset({ rate: '1000/s', burst: 5, ...shape })
      await queue.queue.addBulk(jobs.map((opts) => ({ name: 'job', data: {}, opts })))
      await queue.backend.store.pause({ kind: 'for', ms: pauseMs, reason: 'test' })

      const { stop, wakeUs } = await queue.depart(places, HORIZON_US)
      expect(stop).toBe('closed')
      await queue.advanceTo(wakeUs as number)
      const { grants } = await queue.depart(places, HORIZON_US)

      const lastUs = (wakeUs as number) + HORIZON_US
      expect(Math.abs((grants.at(-1)?.slotUs as number) - lastUs)).toBeLessThanOrEqual(1)
      const firstUs = START_US + pauseMs * 1000
      expect(Math.abs((grants[0]?.slotUs as number) - firstUs)).toBeLessThanOrEqual(1000)
      if (grants.length < places) expect(lastUs - firstUs).toBeGreaterThan(HORIZON_US / 2 - 6000)
    }),
    { numRuns: 40 },
  )
})
