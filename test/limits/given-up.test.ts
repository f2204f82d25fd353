import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createLimiter, LimiterUnavailableError } from '../../src/limits/index.ts'
import { LimitClient } from '../../src/limits/limit-client.ts'
import { useRedis } from '../support/redis.ts'
import { PATIENT, times, useLimiters } from './support/limiters.ts'
import { giveBack, takeAway, throughProxy, until } from './support/lost-redis.ts'

const redis = useRedis(import.meta.url)
const { limiter } = useLimiters(redis)

test('what was given up while the connection was gone is not charged when it is back', async () => {
  const link = await throughProxy(redis)
  const options = { name: 'given-up', prefix: redis.prefix, rate: '9/h', burst: 9 }
  const api = createLimiter(link.client, { ...options, timeoutMs: 300 })
  const direct = limiter(options)
  await direct.take('joe')
  // The first call may take longer than that.
  await api.peek('joe').catch(() => {})
  const fresh = createLimiter(link.client, { ...options, timeoutMs: 20 })
  await takeAway(link)
  const calls = [
    ...times(5, () => api.take('joe')),
    fresh.take('joe'),
    api.penalty('joe', 3),
    api.block('joe', 60_000),
    api.setMode('off'),
  ]
  const ends = await Promise.allSettled(calls)
  expect(ends.map(({ status }) => status)).toEqual(times(9, () => 'rejected'))
  await giveBack(link)
  await link.client.ping()
  expect(await direct.peek('joe')).toMatchObject({ allowed: true, remaining: 8 })
  expect(await limiter(options).take('joe')).toMatchObject({ allowed: true, remaining: 7 })
})

test('what was given up in a half-open connection is not charged when it is back', async () => {
  const { client, proxy } = await throughProxy(redis)
  const options = { name: 'half-open', prefix: redis.prefix, rate: '9/h', burst: 9 }
  const patient = createLimiter(client, { ...options, ...PATIENT })
  await patient.take('joe')
  const api = createLimiter(client, { ...options, timeoutMs: 20 })
  await api.peek('joe').catch(() => {})
  proxy.blackhole()
  await expect(api.take('joe')).rejects.toThrow(LimiterUnavailableError)
  const ready = until(client, 'ready')
  proxy.restore()
  await ready
  await client.ping()
  expect((await patient.peek('joe')).remaining).toBe(8)
})

test('units whose giving back was answered, but the answer was lost, are given back once; so are penalties', async () => {
  const { client, proxy } = await throughProxy(redis)
  const api = createLimiter(client, { name: 'settled', prefix: redis.prefix, rate: '1/day', burst: 100, ...PATIENT })
  await api.take('joe', { cost: 50 })
  await api.reward('joe')
  const settle = async (units: number) => {
    const dropped = proxy.dropReplyOf(([name]) => /^(evalsha|fcall)$/i.test(name ?? ''))
    await (units < 0 ? api.reward('joe', -units) : api.penalty('joe', units))
    await dropped
    return (await api.peek('joe')).remaining
  }
  expect([await settle(-10), await settle(20), await settle(-20)]).toEqual([61, 41, 61])
})

test('an outage makes no more listeners with each take', async () => {
  const link = await throughProxy(redis)
  const api = createLimiter(link.client, {
    name: 'listeners',
    prefix: redis.prefix,
    rate: '1/h',
    timeoutMs: 5,
    onError: 'allow',
  })
  await takeAway(link)
  link.client.setMaxListeners(100)
  for (let i = 0; i < 20; i++) await api.take('joe')
  expect(link.client.listenerCount('ready')).toBeLessThan(10)
})

test('an answer that came in time counts, also when the program was busy meanwhile', async () => {
  const client = redis.client()
  const options = { name: 'busy', prefix: redis.prefix, rate: '9/h', burst: 9 }
  const api = createLimiter(client, { ...options, timeoutMs: 1000 })
  await createLimiter(client, { ...options, ...PATIENT }).take('joe')
  await api.peek('joe').catch(() => {})
  const taking = api.take('joe')
  await setImmediate()
  // By then Redis has answered, also where a busy machine keeps it waiting.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000)
  expect((await taking).remaining).toBe(7)
})

test('a penalty after its caller has given up charges nothing, and its id is forgotten', async () => {
  const client = redis.client()
  const api = limiter({ name: 'too-late', rate: '9/h', burst: 9 })
  await api.take('joe')
  const limit = await api.limitOf('joe')
  const { limit: place, state } = limit.placeOf('joe')
  const settled = `${place.control}:settled`
  const [seconds] = await client.time()
  const pastUs = (Number(seconds) - 1) * 1_000_000
  const late = LimitClient.of(client).run('settle-limit', [place.control, state], [limit.wire, 3, 'late', pastUs])
  expect(await late).toHaveLength(1)
  expect((await api.peek('joe')).remaining).toBe(8)
  for (let i = 0; i < 25; i++) await client.zadd(settled, pastUs, `old${i}`)
  for (let i = 0; i < 3; i++) await api.penalty('joe')
  expect(await client.zcard(settled)).toBe(3)
  expect((await api.peek('joe')).remaining).toBe(5)
})
