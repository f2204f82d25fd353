import { vi } from 'vitest'
import { useLimiters } from '../../../../test/limits/support/limiters.ts'
import { expect, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { byUser } from '../../src/limits/key-functions.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import { call, connected } from '../adapters/support/callers.ts'
import { held } from '../adapters/support/middleware.ts'
import { KINDS, serve } from '../adapters/support/servers.ts'
import { requestOf } from './support/requests.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const { client, limiter } = useLimiters(redis)
const key = byUser(() => 'joe')

const untilWaiting = (name: string, count: number, code = 'g') =>
  expect.poll(() => client.zcard(`${redis.prefix}:limit:{${name}}:${code}:joe~waiting`), { interval: 2 }).toBe(count)

/** Calls one after the other, each when the one before is known to wait or to be answered. @returns ms after the start, by status */
async function burst(
  origin: string,
  name: string,
  count: number,
): Promise<{ status: number | undefined; afterMs: number }[]> {
  const startMs = performance.now()
  const calls: Promise<{ status: number | undefined; afterMs: number }>[] = []
  for (let i = 0; i < count; i++) {
    let isAnswered = false
    const calling = call(origin).then(({ status }) => {
      isAnswered = true
      return { status, afterMs: performance.now() - startMs }
    })
    calls.push(calling)
    const waitsOrIsAnswered = async () =>
      isAnswered || (await client.zcard(`${redis.prefix}:limit:{${name}}:g:joe~waiting`)) >= i
    await expect.poll(waitsOrIsAnswered, { interval: 2 }).toBe(true)
  }
  return Promise.all(calls)
}

test.each(KINDS)('%s: who comes too fast waits for his turn; who comes above the queue is refused', async (kind) => {
  const name = `delayed-${kind}`
  const limit = limiter({ name, rate: '1/s' })
  const origin = await serve(kind, rateLimit({ limit, key, burstQueue: { maxWaiting: 2 } }))
  const came = await burst(origin, name, 4)
  expect(came.map(({ status }) => status)).toEqual([200, 200, 200, 429])
  // A second apart on Redis's clock, which starts a little before this one.
  expect(came[1]?.afterMs).toBeGreaterThanOrEqual(995)
  expect(came[2]?.afterMs).toBeGreaterThanOrEqual(1995)
  expect(came[3]?.afterMs).toBeLessThan(came[2]?.afterMs as number)
})

test("'nodelay' lets the burst pass at once, and charges it", async () => {
  const limit = limiter({ name: 'nodelay', rate: '1/h' })
  const origin = await serve('node', rateLimit({ limit, key, burstQueue: { maxWaiting: 3, delay: 'nodelay' } }))
  const statuses: unknown[] = []
  for (let i = 0; i < 6; i++) statuses.push((await call(origin)).status)
  expect(statuses).toEqual([200, 200, 200, 200, 429, 429])
  const refused = await call(origin)
  expect(JSON.parse(refused.body)).toMatchObject({ 'violated-policies': ['nodelay'], limit: 1, remaining: 0 })
  // Until the first of them has had its turn.
  expect(JSON.parse(refused.body).retryAfterMs).toBeGreaterThan(3_500_000)
})

test('delay: so many go on at once, the next ones wait', async () => {
  const limit = limiter({ name: 'some', rate: '1/s' })
  const origin = await serve('node', rateLimit({ limit, key, burstQueue: { maxWaiting: 3, delay: 2 } }))
  const came = await burst(origin, 'some', 5)
  expect(came.map(({ status }) => status)).toEqual([200, 200, 200, 200, 429])
  expect(came[3]?.afterMs).toBeGreaterThanOrEqual(995)
})

test('who would wait too long is refused at once, and onLimit is told', async () => {
  const limit = limiter({ name: 'late', rate: '1/h' })
  const onLimit = vi.fn()
  const origin = await serve('node', rateLimit({ limit, key, onLimit, burstQueue: { maxWaiting: 5, maxWaitMs: 1000 } }))
  expect((await call(origin)).status).toBe(200)
  const refused = await call(origin)
  expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': expect.stringMatching(/^\d+$/) } })
  expect(refused.headers.ratelimit).toMatch(/^"late";r=0;t=\d+$/)
  expect(onLimit.mock.calls[0]?.[2]).toMatchObject({ policy: 'late', allowed: false, limit: 1, remaining: 0 })
})

test.each(KINDS)('%s: who goes while he waits leaves the queue, and nobody is asked for him', async (kind) => {
  const name = `gone-${kind}`
  const limit = limiter({ name, rate: '1/h' })
  const behind = vi.fn(() => 'passed')
  const origin = await serve(kind, rateLimit({ limit, key, burstQueue: { maxWaiting: 5 } }), behind)
  expect((await call(origin)).status).toBe(200)
  const socket = await connected(origin)
  socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
  await untilWaiting(name, 1)
  socket.destroy()
  await untilWaiting(name, 0)
  expect(behind).toHaveBeenCalledTimes(1)
})

test('of who has gone nothing is answered', async () => {
  const limit = limiter({ name: 'went', rate: '1/h' })
  const middleware = rateLimit({ limit, key, burstQueue: { maxWaiting: 5 } })
  await expect(middleware.enter(requestOf({ signal: AbortSignal.abort() }))).rejects.toMatchObject({
    name: 'CallerGoneError',
  })
  expect((await limit.peek('joe')).remaining).toBe(1)
})

test('for a place under a limit of concurrency one waits too', async () => {
  const limit = limiter({ name: 'places', algorithm: 'concurrency', concurrency: 1 })
  const answers = [held<string>(), held<string>()]
  let asked = 0
  const origin = await serve(
    'node',
    rateLimit({ limit, key, burstQueue: { maxWaiting: 1 } }),
    () => (answers[asked++] as (typeof answers)[0]).promise,
  )
  const first = call(origin)
  await expect.poll(() => asked).toBe(1)
  const second = call(origin)
  await expect
    .poll(() => client.pubsub('NUMSUB', `${redis.prefix}:limit:{places}:wake`), { interval: 5 })
    .toEqual([`${redis.prefix}:limit:{places}:wake`, 1])
  expect((await call(origin)).status).toBe(429)
  answers[0]?.release('one')
  expect((await first).body).toBe('one')
  await expect.poll(() => asked).toBe(2)
  answers[1]?.release('two')
  expect((await second).body).toBe('two')
  await expect.poll(async () => (await limit.peek('joe')).remaining, { interval: 5 }).toBe(1)
})
