import { expect, test } from 'vitest'
import { combine, createLimiter, type LimiterOptions } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { keysWith, PATIENT, statesWith, times, useLimiters } from './support/limiters.ts'
import { throughProxy } from './support/lost-redis.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const ALGORITHMS = [
  ...['fixed-window', 'sliding-window-log', 'sliding-window-counter', 'token-bucket', 'leaky-bucket', 'gcra'],
  'concurrency',
]

const options = (algorithm: string): LimiterOptions => {
  const allows = algorithm === 'concurrency' ? { concurrency: 4 } : { rate: '4/day' }
  const bucket = ['gcra', 'token-bucket', 'leaky-bucket'].includes(algorithm) ? { burst: 4 } : {}
  return { name: `lost-${algorithm}`, algorithm, ...allows, ...bucket } as LimiterOptions
}

/** ioredis sends a script again with its text. */
const isScript = ([name]: readonly string[]) => /^(eval|fcall)/i.test(name ?? '')

/** A limiter whose next call loses its reply, and what happens before ioredis sends it again. */
async function losing(of: LimiterOptions) {
  const { client: lossy, proxy } = await throughProxy(redis)
  const api = createLimiter(lossy, { ...of, prefix: redis.prefix, ...PATIENT })
  await api.peek('ann')
  const lose = async <T>(act: () => Promise<T>, meanwhile?: () => Promise<unknown>): Promise<T> => {
    const dropped = proxy.dropReplyOf(isScript)
    const acting = act()
    await dropped
    await meanwhile?.()
    return acting
  }
  return { api, lossy, lose }
}

test.each(ALGORITHMS)('a take of %s whose reply was lost is charged once, and passes', async (algorithm) => {
  const { api, lose } = await losing(options(algorithm))
  const other = limiter(options(algorithm))
  await api.take('joe')
  const [lost, next] = await lose(
    async () => [await api.take('joe'), await api.take('joe')] as const,
    () => other.take('joe'),
  )
  expect([lost.allowed, next.allowed, lost.remaining, next.remaining]).toEqual([true, true, 1, 0])
  expect(await other.take('joe')).toMatchObject({ allowed: false, remaining: 0 })
})

test('of takes that were sent together and lost their reply, those that passed pass, and each is charged once', async () => {
  const { api, lose } = await losing({ name: 'together', rate: '4/day', burst: 4 })
  const other = limiter({ name: 'together', rate: '4/day', burst: 4 })
  const costs = [1, 3, 2, 1, 1]
  const answers = await lose(
    () => Promise.all(costs.map((cost) => api.take('joe', { cost }))),
    () => other.penalty('joe', 1),
  )
  expect(answers.map(({ allowed }) => allowed)).toEqual([true, true, false, false, false])
  await other.reward('joe', 5)
  expect((await api.peek('joe')).remaining).toBe(4)
})

test('what was refused before its reply was lost may pass later, and is charged once even if that reply is lost too', async () => {
  const { client: lossy, proxy } = await throughProxy(redis)
  const settings = { name: 'later', rate: '4/day', burst: 4 }
  const api = createLimiter(lossy, { ...settings, prefix: redis.prefix, ...PATIENT })
  const other = limiter(settings)
  await api.take('joe', { cost: 3 })
  const first = proxy.dropReplyOf(isScript)
  const taking = Promise.all([api.take('joe'), api.take('joe')])
  await first
  const second = proxy.dropReplyOf(isScript)
  await other.reward('joe', 1)
  await second
  expect((await taking).map(({ allowed }) => allowed)).toEqual([true, true])
  expect((await api.peek('joe')).remaining).toBe(0)
  await other.reward('joe', 4)
  expect((await api.peek('joe')).remaining).toBe(4)
})

test('limits that are combined are each charged once', async () => {
  const { api, lossy, lose } = await losing({ name: 'one', rate: '9/day', burst: 9 })
  const places = createLimiter(lossy, {
    ...{ name: 'two', algorithm: 'concurrency', concurrency: 9, prefix: redis.prefix, ...PATIENT },
  })
  await places.peek('ann')
  const both = combine([api, places])
  const { allowed, answers } = await lose(() => both.take({ one: 'joe', two: 'joe' }))
  expect(allowed).toBe(true)
  expect([(await api.peek('joe')).remaining, (await places.peek('joe')).remaining]).toEqual([8, 8])
  expect(await answers[1]?.lease?.release()).toBe(true)
  expect((await places.peek('joe')).remaining).toBe(9)
})

/** A limiter whose connection falls silent with the reply of the next call, until it is cut and its calls are sent again. */
async function silenced(of: LimiterOptions) {
  const { client: lossy, proxy } = await throughProxy(redis)
  const api = createLimiter(lossy, { ...of, prefix: redis.prefix, ...PATIENT })
  await api.peek('ann')
  return { api, silent: proxy.dropReplyOf(isScript, 1, { holdOpen: true }), cut: () => proxy.cut() }
}

test('takes that fill many scripts are each charged once, however many of those are sent again', async () => {
  const many = { name: 'many', rate: '1000/day', burst: 1000 } as const
  const { api, silent, cut } = await silenced(many)
  const other = limiter(many)
  const taking = Promise.all(times(400, () => api.take('joe')))
  await silent
  const left = async () => (await other.peek('joe')).remaining
  await expect.poll(left).toBe(600)
  cut()
  expect((await taking).every(({ allowed }) => allowed)).toBe(true)
  expect(await left()).toBe(600)
})

test('a lease that ended before its take was sent again does not come on top of that of another caller', async () => {
  const places = { name: 'ended', algorithm: 'concurrency', concurrency: 1 } as const
  const { api, silent, cut } = await silenced(places)
  const other = limiter(places)
  const taking = api.take('joe')
  await silent
  const [state] = (await statesWith(client, '{ended}:n:joe')) as [string]
  const [lease] = (await client.zrange(state, '0', '-1')) as [string]
  await client.zadd(state, 'XX', 1, lease)
  expect((await other.take('joe')).allowed).toBe(true)
  cut()
  expect((await taking).allowed).toBe(false)
})

test('a caller that takes one after the other has one record, which does not stay', async () => {
  const api = createLimiter(redis.client(), {
    name: 'records',
    rate: '1/day',
    burst: 50,
    prefix: redis.prefix,
    ...PATIENT,
  })
  for (const key of times(20, (i) => `k${i}`)) await api.take(key)
  const records = await keysWith(client, '{records}:last:')
  expect(records).toHaveLength(1)
  for (const record of records) expect(await client.pttl(record)).toBeGreaterThan(60_000 + PATIENT.timeoutMs)
  for (const record of records) expect(await client.pttl(record)).toBeLessThanOrEqual(120_000 + PATIENT.timeoutMs)
})

test.each(ALGORITHMS.slice(0, -1))('a turn of %s whose reply was lost is reserved once', async (algorithm) => {
  const { api, lose } = await losing({ ...options(algorithm), name: `turn-${algorithm}` })
  const other = limiter({ ...options(algorithm), name: `turn-${algorithm}` })
  await lose(
    () => api.wait('joe'),
    () => other.wait('joe'),
  )
  expect((await other.peek('joe')).remaining).toBe(2)
})

test('a turn that is later whose reply was lost stays what it was', async () => {
  const { api, lose } = await losing({ name: 'turns', rate: '20/s', burst: 1 })
  const other = limiter({ name: 'turns', rate: '20/s', burst: 1 })
  await other.penalty('joe', 4)
  let later: Promise<unknown> | undefined
  await lose(
    () => api.wait('joe'),
    async () => {
      later = other.wait('joe')
      await expect.poll(() => keysWith(client, '{turns}:g:joe~turn:')).toHaveLength(2)
    },
  )
  // By their slots; the ids of callers ascend. A turn that is reserved again would come after the other.
  const [waiting] = (await keysWith(client, '{turns}:g:joe~waiting')) as [string]
  const callers = await client.zrange(waiting, '0', '-1')
  expect(callers).toHaveLength(2)
  expect(callers).toEqual(callers.toSorted())
  await later
})
