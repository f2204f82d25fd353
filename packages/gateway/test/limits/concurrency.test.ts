import { vi } from 'vitest'
import { combine, type Limiter } from '../../../../src/limits/index.ts'
import { redisTime, sleepUntil, useLimiters } from '../../../../test/limits/support/limiters.ts'
import { giveBack, takeAway, throughProxy } from '../../../../test/limits/support/lost-redis.ts'
import { expect, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { byUser } from '../../src/limits/key-functions.ts'
import { keepLease, rateLimit } from '../../src/limits/rate-limit.ts'
import { call, connected } from '../adapters/support/callers.ts'
import { held } from '../adapters/support/middleware.ts'
import { KINDS, serve } from '../adapters/support/servers.ts'
import { readList } from '../responses/fields.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const { client, limiter } = useLimiters(redis)
const algorithm = 'concurrency'
const key = byUser(() => 'joe')

const untilLeft = (limit: Limiter, remaining: number) =>
  expect.poll(async () => (await limit.peek('joe')).remaining, { interval: 5 }).toBe(remaining)

test.each(KINDS)('%s: so many at once, and the place of each is given back with its answer', async (kind) => {
  const limit = limiter({ name: `places-${kind}`, algorithm, concurrency: 2 })
  const answers = held<string>()
  let running = 0
  const origin = await serve(kind, rateLimit({ limit, key }), () => {
    running += 1
    return answers.promise
  })
  const both = [call(origin), call(origin)]
  await expect.poll(() => running).toBe(2)
  const refused = await call(origin)
  expect(refused.status).toBe(429)
  expect(readList(refused.headers['ratelimit-policy'] as string)).toEqual([
    { name: limit.name, q: 2, qu: 'concurrent-requests' },
  ])
  expect(JSON.parse(refused.body)).toMatchObject({ 'violated-policies': [limit.name], limit: 2, remaining: 0 })
  answers.release('done')
  const [first] = await Promise.all(both)
  expect(readList(first?.headers.ratelimit as string)).toEqual([{ name: limit.name, r: expect.any(Number) }])
  await untilLeft(limit, 2)
  expect((await call(origin)).status).toBe(200)
  await untilLeft(limit, 2)
})

test.each(KINDS)('%s: whoever goes gives his place back', async (kind) => {
  const limit = limiter({ name: `gone-${kind}`, algorithm, concurrency: 3 })
  const origin = await serve(kind, rateLimit({ limit, key }), () => new Promise<string>(() => {}))
  const socket = await connected(origin)
  socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
  await untilLeft(limit, 2)
  socket.destroy()
  await untilLeft(limit, 3)
})

test('a place is kept for longer than its lease, as long as the request runs', async () => {
  const leaseMs = 2000
  const limit = limiter({ name: 'kept', algorithm, concurrency: 1, leaseMs })
  const { promise, release } = held<string>()
  const origin = await serve('node', rateLimit({ limit, key }), () => promise)
  const running = call(origin)
  await untilLeft(limit, 0)
  const endMs = (await redisTime(client)) + 3 * leaseMs
  for (let lease = 1; lease <= 3; lease++) {
    await sleepUntil(client, endMs - (3 - lease) * leaseMs)
    expect((await limit.peek('joe')).allowed).toBe(false)
  }
  release('done')
  expect((await running).status).toBe(200)
  await untilLeft(limit, 1)
})

test('combined limits give every place back', async () => {
  const [one, all] = [
    limiter({ name: 'of-one', algorithm, concurrency: 2 }),
    limiter({ name: 'of-all', algorithm, concurrency: 5 }),
  ]
  const { promise, release } = held<string>()
  const origin = await serve('node', rateLimit({ limit: combine([one, all]), key }), () => promise)
  const running = call(origin)
  await untilLeft(one, 1)
  await untilLeft(all, 4)
  release('done')
  await running
  await untilLeft(one, 2)
  await untilLeft(all, 5)
})

test('a lease outlives a time without Redis, and is let go without it', async () => {
  const link = await throughProxy(redis)
  const limit = limiter({ name: 'outage', algorithm, concurrency: 1, leaseMs: 3000 })
  const remote = (await import('../../../../src/limits/index.ts')).createLimiter(link.client, {
    ...{ name: 'outage', prefix: redis.prefix, algorithm, concurrency: 1, leaseMs: 3000, timeoutMs: 100 },
  })
  const { lease } = await vi.waitFor(async () => {
    const taken = await remote.take('joe')
    expect(taken.lease).toBeDefined()
    return taken
  }, 60_000)
  if (!lease) throw new Error('expected a lease')
  const endsAt = lease.expiresAt.getTime()
  const letGo = keepLease(lease)
  await takeAway(link)
  await giveBack(link)
  await sleepUntil(client, endsAt + 100)
  expect((await limit.peek('joe')).allowed).toBe(false)
  await takeAway(link)
  expect(letGo).not.toThrow()
  // It runs out by itself.
  await untilLeft(limit, 1)
})
