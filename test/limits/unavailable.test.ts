import { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import { CostTooHighError, combine, createLimiter, LimiterUnavailableError } from '../../src/limits/index.ts'
import { runs } from '../faults/support/functions.ts'
import { adminOf, startOwnRedis } from '../faults/support/own-redis.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, PATIENT, times } from './support/limiters.ts'
import { giveBack, takeAway, throughProxy, until } from './support/lost-redis.ts'

const redis = useRedis(import.meta.url)

test('without Redis a take is refused with an error after 100 ms, which onFailure is told of', async () => {
  const link = await throughProxy(redis)
  const onFailure = vi.fn()
  const api = createLimiter(link.client, { name: 'throw', prefix: redis.prefix, rate: '1/h', onFailure })
  await takeAway(link)
  const startMs = performance.now()
  const error = await api.take('joe').catch((reason: unknown) => reason)
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(99)
  expect(error).toBeInstanceOf(LimiterUnavailableError)
  expect(error).toMatchObject({ limitName: 'throw', message: expect.stringContaining('did not answer within 100 ms') })
  expect(onFailure.mock.calls).toEqual([[error, 'joe']])
})

test('timeoutMs is how long it waits, also for a Redis that is there and slow', async () => {
  const { client, proxy } = await throughProxy(redis)
  const api = createLimiter(client, { name: 'slow', prefix: redis.prefix, rate: '1/h', timeoutMs: 30 })
  proxy.latency(300)
  const startMs = performance.now()
  await expect(api.take('joe')).rejects.toThrow('did not answer within 30 ms')
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(29)
  const patient = createLimiter(client, { name: 'slow', prefix: redis.prefix, rate: '1/h', ...PATIENT })
  expect((await patient.peek('joe')).limit).toBe(1)
})

test.each([
  ['allow', { allowed: true, retryAfterMs: 0 }],
  ['deny', { allowed: false, retryAfterMs: 1000 }],
] as const)("onError '%s' answers without Redis, says that it did, and tells onFailure", async (onError, answer) => {
  const link = await throughProxy(redis)
  const onFailure = vi.fn()
  const name = `on-error-${onError}`
  const options = { name, prefix: redis.prefix, rate: '5/h', burst: 5, onError, onFailure }
  const api = createLimiter(link.client, { ...options, ...PATIENT })
  expect(await api.take('joe')).not.toHaveProperty('undecided')
  await takeAway(link)
  const hasty = createLimiter(link.client, { ...options, timeoutMs: 20 })
  const told = { ...answer, undecided: true, limit: 5, remaining: 0, policy: name }
  expect([await hasty.take('joe'), await hasty.peek(7)]).toMatchObject([told, told])
  expect(onFailure.mock.calls).toEqual([
    [expect.any(LimiterUnavailableError), 'joe'],
    [expect.any(LimiterUnavailableError), 7],
  ])
  await giveBack(link)
  expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 3 })
  // A caller's mistake is no outage.
  await expect(api.take('joe', { cost: 6 })).rejects.toThrow(CostTooHighError)
  expect(onFailure).toHaveBeenCalledTimes(2)
})

test('combined, the strictest onError answers', async () => {
  const link = await throughProxy(redis)
  const make = (onError: 'allow' | 'deny' | 'throw') =>
    createLimiter(link.client, { name: onError, prefix: redis.prefix, rate: '1/h', timeoutMs: 20, onError })
  const [allow, deny, fail] = [make('allow'), make('deny'), make('throw')]
  await takeAway(link)
  expect(await combine([allow]).take()).toMatchObject({ allowed: true, undecided: true })
  expect(await combine([allow, deny]).take()).toMatchObject({ allowed: false, policy: 'deny', retryAfterMs: 1000 })
  await expect(combine([allow, deny, fail]).take()).rejects.toThrow(LimiterUnavailableError)
})

test('a client that was closed for good is told at once; one that has not connected yet connects', async () => {
  const { host, port } = redis.connection
  const client = new Redis({ host, port, lazyConnect: true, connectionName: redis.prefix })
  const api = createLimiter(client, { name: 'lazy', prefix: redis.prefix, rate: '1/h', ...PATIENT })
  expect((await api.take()).allowed).toBe(true)
  const ended = until(client, 'end')
  client.disconnect()
  await ended
  await expect(api.take()).rejects.toThrow('limit "lazy" is unavailable: Connection is closed')
  // Connected again, and closed before that is done: who waits for it is told, and is not in its way later.
  const taking = api.take().catch(String)
  client.connect().catch(() => {})
  await until(client, 'connect')
  client.disconnect()
  expect(await taking).toContain('Connection is closed')
  expect(client.listenerCount('ready')).toBe(0)
})

test('scripts that Redis forgets are sent again: no take is lost and none counts twice', async () => {
  const service = await startOwnRedis()
  const client = adminOf(service.url)
  const api = createLimiter(client, { name: 'flush', rate: '100/day', burst: 100, ...PATIENT })
  const forget = () => Promise.all([client.script('FLUSH'), client.function('FLUSH')])
  for (let i = 1; i <= 5; i++) {
    expect((await api.take('joe')).remaining).toBe(100 - i)
    await forget()
  }
  const flushes = times(20, forget)
  const answers = await Promise.all([...times(120, () => api.take('joe')), ...flushes])
  expect(countAllowed(answers.slice(0, 120) as Awaited<ReturnType<typeof api.take>>[])).toBe(95)
})

// As texts, which Redis refuses only once they write.
test.each(['auto', 'never'] as const)(
  'while Redis takes no writes, what writes nothing is answered, with functions: %j',
  async (functions) => {
    const service = await startOwnRedis()
    const admin = adminOf(service.url)
    const client = new Redis(service.url)
    onTestFinished(() => client.disconnect())
    const api = createLimiter(client, { name: 'no-writes', rate: '1/h', functions, ...PATIENT })
    await api.take('joe')
    const answersOnly = async (refusal: string) => {
      expect(await api.take('joe')).toMatchObject({ allowed: false })
      expect(await api.peek('ada')).toMatchObject({ allowed: true })
      await expect(api.take('ada')).rejects.toThrow(refusal)
    }
    await admin.config('SET', 'maxmemory', '1')
    await answersOnly('OOM')
    await api.reset('joe')
    await admin.config('SET', 'maxmemory', '0')
    expect(await api.take('joe')).toMatchObject({ allowed: true })
    await admin.replicaof('127.0.0.1', 1)
    await answersOnly('READONLY')
    const isLoaded = functions === 'auto' && process.env.SLUICE_FUNCTIONS !== 'never'
    expect((await runs(admin)).loads).toBe(isLoaded ? 1 : 0)
  },
)
