import { expect, test } from 'vitest'
import { combine, createLimiter } from '../../src/limits/index.ts'
import { adminOf, startOwnRedis } from '../faults/support/own-redis.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import type { Message } from './programs/limited.ts'
import { countAllowed, PATIENT, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const { limiter } = useLimiters(redis)
const PROCESSES = 4

test('a thousand takes at once on a limit of a hundred: a hundred pass, in order, with few calls', async () => {
  // One that nobody else asks: its calls are counted.
  const admin = adminOf((await startOwnRedis()).url)
  const api = createLimiter(admin, { name: 'thousand', rate: '100/day', burst: 100, ...PATIENT })
  await api.peek('joe')
  await admin.config('RESETSTAT')
  const answers = await Promise.all(times(1000, () => api.take('joe')))
  const stats = await admin.info('commandstats')
  const calls = [...stats.matchAll(/^cmdstat_(?:eval(?:sha)?|fcall):calls=(\d+)/gm)].reduce(
    (sum, [, n]) => sum + Number(n),
    0,
  )
  expect(countAllowed(answers)).toBe(100)
  const left = answers.map(({ allowed, remaining }) => (allowed ? remaining : -1))
  expect(left).toEqual(times(1000, (i) => Math.max(99 - i, -1)))
  expect(calls).toBeGreaterThan(0)
  expect(calls).toBeLessThanOrEqual(100)
})

test.each(['fixed-window', 'sliding-window-counter', 'gcra', 'leaky-bucket'] as const)(
  '%s: of takes that go together exactly the limit pass',
  async (algorithm) => {
    const api = limiter({ name: `exact-${algorithm}`, algorithm, rate: '100/day', burst: 100 })
    expect(countAllowed(await Promise.all(times(300, () => api.take('joe'))))).toBe(100)
  },
)

test('sliding-window-log: of takes that go together exactly the limit pass', async () => {
  const api = limiter({ name: 'exact-log', algorithm: 'sliding-window-log', rate: '100/day' })
  expect(countAllowed(await Promise.all(times(300, () => api.take('joe'))))).toBe(100)
})

test('takes, peeks and combined takes of many limits and keys go together, and each has its own answer', async () => {
  const limits = times(5, (i) => limiter({ name: `mixed-${i}`, rate: '1/h', burst: i + 2 }))
  const api = combine(limits.slice(0, 2))
  const takes = limits.map((limit) => limit.take('joe', { cost: 2 }))
  const peeks = limits.map((limit) => limit.peek('joe'))
  const both = api.take({ 'mixed-0': 'ann', 'mixed-1': 'joe' })
  expect((await Promise.all(takes)).map(({ policy, remaining }) => [policy, remaining])).toEqual(
    times(5, (i) => [`mixed-${i}`, i]),
  )
  expect((await Promise.all(peeks)).map(({ remaining }) => remaining)).toEqual([0, 1, 2, 3, 4])
  expect((await both).answers.map(({ remaining }) => remaining)).toEqual([1, 0])
})

test('one that is wrong fails alone', async () => {
  const api = limiter({ name: 'alone', rate: '1/h', burst: 5 })
  const wrong = api.take('joe', { cost: 9 }).catch(String)
  const answers = await Promise.all(times(5, () => api.take('joe')))
  expect(await wrong).toMatch(/cost 9 exceeds .*\b5\b/)
  expect(countAllowed(answers)).toBe(5)
})

test('four processes that race for one key get exactly the limit', async () => {
  const options = { name: 'race', prefix: redis.prefix, algorithm: 'fixed-window', rate: '100/day' }
  const script = new URL('./programs/limited.ts', import.meta.url)
  const args = [redis.url, JSON.stringify(options)]
  const racers = times(PROCESSES, () => processes.fork<Message>(script, { args }))
  await Promise.all(racers.map((racer) => racer.waitFor('ready')))
  for (const racer of racers) racer.send({ do: 'take', key: 'joe', count: 200 })
  const took = await Promise.all(racers.map((racer) => racer.waitFor('took')))
  for (const racer of racers) racer.send({ do: 'close' })
  await Promise.all(racers.map(({ exited }) => exited))
  expect(took.flatMap(({ errors }) => errors)).toEqual([])
  expect(took.reduce((sum, { allowed }) => sum + allowed, 0)).toBe(100)
})
