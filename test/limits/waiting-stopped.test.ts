import { expect, test } from 'vitest'
import type { Algorithm, Limiter } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { keysWith, timed, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

/** How many of a limit's only key hold a turn that has not come yet. */
async function countWaiting(name: string): Promise<number> {
  const [waiting] = (await keysWith(client, `{${name}}:`)).filter((key) => key.endsWith('~waiting'))
  return waiting === undefined ? 0 : client.zcard(waiting)
}
const untilWaiting = (name: string, count: number) => expect.poll(() => countWaiting(name), { interval: 2 }).toBe(count)

/** Reserves a turn, and stops waiting for it. */
async function waitAndStop(api: Limiter, cost = 1): Promise<void> {
  const stop = new AbortController()
  const waiting = api.wait('joe', { cost, signal: stop.signal })
  await untilWaiting(api.name, 1)
  stop.abort(new Error('no time'))
  await expect(waiting).rejects.toThrow('no time')
  expect(await countWaiting(api.name)).toBe(0)
}

/** When a cost would pass, on Redis's clock: between which two times. */
async function freeAt(api: Limiter, cost: number): Promise<[from: number, to: number]> {
  const { value, from, to } = await timed(client, () => api.peek('joe', { cost }))
  return [from + value.retryAfterMs - 1, to + value.retryAfterMs + 1]
}

async function expectLeftAsItWas(algorithm: Algorithm): Promise<void> {
  const api = limiter({ name: `as-it-was-${algorithm}`, algorithm, rate: '2/day', burst: 2 })
  await api.take('joe')
  await api.take('joe')
  const before = [await freeAt(api, 1), await freeAt(api, 2)] as const
  const { resetAt } = await api.peek('joe')
  await waitAndStop(api)
  const after = [await freeAt(api, 1), await freeAt(api, 2)] as const
  for (const i of [0, 1] as const) {
    expect(after[i][1]).toBeGreaterThanOrEqual(before[i][0])
    expect(after[i][0]).toBeLessThanOrEqual(before[i][1])
  }
  expect(await api.peek('joe')).toMatchObject({ allowed: false, remaining: 0, resetAt })
}

const exact = ['gcra', 'token-bucket', 'leaky-bucket', 'sliding-window-counter'] as const
test.each(exact)('%s: the last that waits gives its turn back when it stops', expectLeftAsItWas)

test('fixed-window: the last that waits gives its turn back when it stops', () => expectLeftAsItWas('fixed-window'))

test('sliding-window-log: the last that waits gives its turn back when it stops', () =>
  expectLeftAsItWas('sliding-window-log'))

test('fixed-window: a turn that is given back opens nothing in the window that is full', async () => {
  const api = limiter({ name: 'full-window', algorithm: 'fixed-window', rate: '2/h', align: 'first' })
  await api.take('joe', { cost: 2 })
  await waitAndStop(api)
  expect(await api.take('joe', { cost: 2 })).toMatchObject({ allowed: false, remaining: 0 })
})

test('one that stops before others keeps its slot charged: theirs lean on it', async () => {
  const api = limiter({ name: 'middle', rate: '1/h' })
  await api.take('joe')
  const stops = [new AbortController(), new AbortController()]
  const waits: Promise<unknown>[] = []
  for (const [i, { signal }] of stops.entries()) {
    waits.push(api.wait('joe', { signal }).catch(() => {}))
    await untilWaiting('middle', i + 1)
  }
  const { resetAt } = await api.peek('joe')
  stops[0]?.abort()
  await waits[0]
  expect(await api.peek('joe')).toMatchObject({ resetAt })
  expect(await countWaiting('middle')).toBe(1)
  stops[1]?.abort()
  await waits[1]
  expect((await api.peek('joe')).resetAt.getTime()).toBeLessThan(resetAt.getTime())
})
