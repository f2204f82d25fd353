import { afterEach, expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { createLimiter, LimitExceededError } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)
afterEach(() => shop.close())

const shared = { shared: true, prefix: redis.prefix } as const
const PATIENT = { prefix: redis.prefix, timeoutMs: 10_000 }

test.each([0.5, 1.5, 1e6])(
  'under concurrency a cost of %d takes whole places, and no more than there are',
  async (cost) => {
    const queue = shop.queue({
      maxLatenessMs: 60_000,
      limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 3 }],
      burst: 1e6,
    })
    const { backend } = queue as unknown as { backend: { store: { memory: { forget(): void } } } }
    await queue.waitUntilReady()
    // Added by a program that does not know the limit.
    backend.store.memory.forget()
    await queue.addBulk(jobs(6, { cost }))
    let [running, most] = [0, 0]
    const worker = shop.worker(
      queue,
      async () => {
        running += 1
        most = Math.max(most, running)
        await new Promise((resolve) => setTimeout(resolve, 5))
        running -= 1
      },
      { concurrency: 6 },
    )
    await eventsOf('completed', worker).reach(6)
    expect(most).toBeLessThanOrEqual(Math.floor(3 / Math.min(3, Math.ceil(cost))))
  },
)

test('the place that a job gives back goes to a program that waits for it', async () => {
  const limit: QueueLimit = { name: 'place', algorithm: 'concurrency', concurrency: 1, leaseMs: 60_000, ...shared }
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {})
  const end = gate()
  const worker = shop.worker(queue, () => end.opened)
  await departuresOf(worker).reach(1)
  const { shared: _shared, ...rule } = limit
  const limiter = createLimiter(client, { ...rule, ...PATIENT })
  expect((await limiter.take()).allowed).toBe(false)
  const waiting = limiter.wait(undefined, { timeoutMs: 20_000 })
  end.open()
  const { lease } = await waiting
  await lease?.release()
})

const CHANGES = [
  ['the limit is switched off', (limiter: ReturnType<typeof createLimiter>) => limiter.setMode('off')],
  ['the key begins anew', (limiter: ReturnType<typeof createLimiter>) => limiter.reset()],
  ['units are given back', (limiter: ReturnType<typeof createLimiter>) => limiter.reward()],
] as const

test.each(CHANGES)('a queue that sleeps for a shared limit is woken when %s', async (_what, change) => {
  const rule = { name: `day-${_what.replaceAll(' ', '-')}`, algorithm: 'fixed-window', rate: '1/day' } as const
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [{ ...rule, ...shared }] })
  await queue.addBulk(jobs(2))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  await asleep(queue, client)
  await change(createLimiter(client, { ...rule, ...PATIENT }))
  await departed.reach(2)
})

test('only so many wait in line for places, and a signal that was fired takes none', async () => {
  const limiter = createLimiter(client, { name: 'line', algorithm: 'concurrency', concurrency: 1, ...PATIENT })
  const held = await limiter.take()
  const stop = new AbortController()
  const options = { maxWaiting: 2, signal: stop.signal }
  const ends = Array.from({ length: 10 }, () => limiter.wait(undefined, options).catch((error: unknown) => error))
  const refused = await Promise.all(ends.slice(2))
  expect(refused.every((error) => error instanceof LimitExceededError)).toBe(true)
  stop.abort(new Error('enough'))
  expect(await Promise.all(ends.slice(0, 2))).toEqual([new Error('enough'), new Error('enough')])
  await held.lease?.release()
  await expect(limiter.wait(undefined, { signal: stop.signal })).rejects.toThrow('enough')
  expect((await limiter.peek()).remaining).toBe(1)
})

test('a program that only waits learns of a newer definition', async () => {
  const old = createLimiter(client, { name: 'versions', rate: '1000/s', version: 1, ...PATIENT })
  await old.wait('joe')
  await createLimiter(client, { name: 'versions', rate: '1/day', version: 2, ...PATIENT }).wait('ann')
  await expect(old.wait('ann', { timeoutMs: 1000 })).rejects.toThrow(LimitExceededError)
  // What joe took lately counts in the day as well: when the rate was lowered is not known.
  await expect(old.wait('joe', { timeoutMs: 1000 })).rejects.toThrow(LimitExceededError)
})
