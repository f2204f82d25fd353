import { expect, test } from 'vitest'
import { LimitConflictError, type LimiterOptions } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const v1 = { rate: '1/h', burst: 5, version: 1 } as const
const v2 = { rate: '1/h', burst: 2, version: 2 } as const
const stored = (name: string) => client.hmget(`${redis.prefix}:limit:{${name}}`, 'version', 'definition')

test('a higher version takes the place of the definition', async () => {
  expect((await limiter({ name: 'higher', ...v1 }).take()).limit).toBe(5)
  expect((await limiter({ name: 'higher', ...v2 }).take()).limit).toBe(2)
  expect(await stored('higher')).toEqual(['2', expect.stringContaining('"burst":2')])
})

test('a version takes the place of a definition without one', async () => {
  await limiter({ name: 'none', rate: '1/h', burst: 5 }).take()
  expect((await limiter({ name: 'none', ...v2 }).take()).limit).toBe(2)
  // Who has none yet obeys from then on.
  const old = limiter({ name: 'none', rate: '1/h', burst: 5 })
  await old.peek()
  expect((await old.peek()).limit).toBe(2)
})

test('the same version with another definition is refused', async () => {
  await limiter({ name: 'same', ...v2 }).take()
  await expect(limiter({ name: 'same', ...v1, version: 2 }).take()).rejects.toThrow(LimitConflictError)
  expect(await stored('same')).toEqual(['2', expect.stringContaining('"burst":2')])
})

test('a lower version obeys the stored one, with its first question already', async () => {
  await limiter({ name: 'lower', ...v2 }).take('joe', { cost: 2 })
  const old = limiter({ name: 'lower', ...v1 })
  expect(await old.take('joe')).toMatchObject({ allowed: false, limit: 2, remaining: 0 })
  expect(await stored('lower')).toEqual(['2', expect.stringContaining('"burst":2')])
})

test('a lower version may cost what the stored one allows', async () => {
  await limiter({ name: 'wider', ...v1, version: 3 }).take('ann')
  expect(await limiter({ name: 'wider', ...v2 }).take('joe', { cost: 5 })).toMatchObject({ allowed: true, limit: 5 })
})

test('a lower version that is already running obeys a higher one', async () => {
  const old = limiter({ name: 'running', ...v1 })
  await old.take('joe')
  await limiter({ name: 'running', ...v2 }).take('joe')
  expect(await old.take('joe')).toMatchObject({ allowed: false, limit: 2 })
})

test('a lower version that decides in memory may pass as much more as the stored rate lets it', async () => {
  const old = limiter({ name: 'bound', rate: '10/s', version: 1, sync: { intervalMs: 1000 } })
  expect(old.overshootBound).toBeCloseTo(10, 3)
  await limiter({ name: 'bound', rate: '50/s', version: 2 }).take()
  await old.peek()
  expect(old.overshootBound).toBeCloseTo(50, 3)
})

test('a lower version that decides in memory asks for each place, where the stored one counts places', async () => {
  const old = limiter({ name: 'places', rate: '1/h', burst: 9, version: 1, sync: { intervalMs: 60_000, share: 1 } })
  await limiter({ name: 'places', algorithm: 'concurrency', concurrency: 2, version: 2 }).peek()
  const [first, second, third] = [await old.take('joe'), await old.take('joe'), await old.take('joe')]
  expect([first, second, third].map(({ lease }) => lease !== undefined)).toEqual([true, true, false])
  expect(old.overshootBound).toBe(0)
  await second.lease?.release()
  expect((await old.take('joe')).allowed).toBe(true)
})

const replaced: readonly (readonly [what: string, old: Partial<LimiterOptions>, now: LimiterOptions])[] = [
  ['has another algorithm', { rate: '1/h', burst: 5 }, { name: 'a', algorithm: 'concurrency', concurrency: 2 }],
  ['has no share', { rate: '1/h', burst: 5, reservedShare: 0.5 }, { name: 'b', rate: '1/h', burst: 1 }],
]

test.each(replaced)('a lower version obeys one that %s', async (_, old, now) => {
  await limiter({ ...now, version: 2 }).take('ann')
  const lower = limiter({ ...old, name: now.name, version: 1 })
  await lower.peek('joe').catch(() => {})
  expect((await lower.take('joe')).limit).toBe(now.concurrency ?? now.burst)
})
