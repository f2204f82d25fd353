import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { createLimiter, type LimitRule } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { prefix } = redis

const HOUR_MS = 3_600_000
const RULES: Record<string, LimitRule> = {
  gcra: { rate: '10/day', burst: 10 },
  'token bucket': { algorithm: 'token-bucket', rate: '10/day', burst: 10 },
  'leaky bucket': { algorithm: 'leaky-bucket', rate: '10/day', burst: 10 },
  'sliding log': { algorithm: 'sliding-window-log', rate: '10/day' },
  'sliding counter': { algorithm: 'sliding-window-counter', rate: '10/day' },
  'fixed window': { algorithm: 'fixed-window', rate: '10/day', align: 'first' },
}

/** A queue with a backlog and a limiter on one limit. */
async function share(name: string, rule: LimitRule) {
  const limiter = createLimiter(client, { name, prefix, timeoutMs: 10_000, ...rule })
  const limit: QueueLimit = { name, ...rule, shared: true, prefix }
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.addBulk(jobs(20))
  const start = () => departuresOf(shop.worker(queue, async () => {}, { concurrency: 15 }))
  return { limiter, queue, start }
}

test.each(Object.entries(RULES))('with a backlog, takes still find the reserved part: %s', async (name, rule) => {
  const shareName = `kept-${name.replace(' ', '-')}`
  const { limiter, queue, start } = await share(shareName, { ...rule, reservedShare: 0.4, lendAfterMs: HOUR_MS })
  // Somebody took just now: his part is not lent.
  expect(await limiter.take()).toMatchObject({ allowed: true })
  const departed = start()
  await asleep(queue, client)
  // The queue gets six of ten less the one that was taken.
  expect(departed.all).toHaveLength(5)
  const answers = []
  for (let i = 0; i < 5; i++) answers.push((await limiter.take()).allowed)
  expect(answers).toEqual([true, true, true, true, false])
  expect(departed.all).toHaveLength(5)
})

test.each(Object.entries(RULES))('what nobody takes is lent to the queue: %s', async (name, rule) => {
  const shareName = `idle-${name.replace(' ', '-')}`
  const { limiter, queue, start } = await share(shareName, { ...rule, reservedShare: 0.4, lendAfterMs: HOUR_MS })
  const departed = start()
  await asleep(queue, client)
  expect(departed.all).toHaveLength(10)
  expect(await limiter.take()).toMatchObject({ allowed: false })
})

test('what was taken is lent again once nobody has taken for lendAfterMs', async () => {
  const rule: LimitRule = { rate: '10/day', burst: 10, reservedShare: 0.4, lendAfterMs: 300 }
  const { limiter, queue, start } = await share('again', rule)
  expect(await limiter.take()).toMatchObject({ allowed: true })
  const takenAt = performance.now()
  const departed = start()
  await departed.reach(5)
  // Only if this machine was quick enough is the reserved part kept yet.
  if (performance.now() - takenAt < 200) expect(departed.all).toHaveLength(5)
  while (performance.now() - takenAt < 310) await delay(10)
  await queue.setShape({ maxLatenessMs: 200 }, { by: 'test', reason: 'wakes the workers' })
  await departed.reach(9)
  await asleep(queue, client)
  expect(departed.all).toHaveLength(9)
})

test('places that are reserved are not those of jobs', async () => {
  const rule: LimitRule = { algorithm: 'concurrency', concurrency: 5, reservedShare: 0.3, lendAfterMs: HOUR_MS }
  const { limiter, queue } = await share('places', rule)
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const leases = [await limiter.take(), await limiter.take()]
  expect(leases.map(({ allowed }) => allowed)).toEqual([true, true])
  const worker = shop.worker(queue, () => run.opened, { concurrency: 15, autorun: false })
  const [departed, errors] = [departuresOf(worker), eventsOf<Error>('error', worker)]
  void worker.run()
  // Of 3.5 places for jobs two are taken.
  const first = await Promise.race([departed.reach(1), errors.reach(1)])
  expect(first).not.toBe(errors.all)
  expect(errors.all).toEqual([])
  expect(departed.all).toHaveLength(1)
  expect(await limiter.take()).toMatchObject({ allowed: true })
  expect(await limiter.take()).toMatchObject({ allowed: true })
  expect(await limiter.take()).toMatchObject({ allowed: false })
})
