import { expect, onTestFinished, test } from 'vitest'
import { combine } from '../../src/limits/index.ts'
import { type Program, useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import type { Message } from './programs/limited.ts'
import { countAllowed, redisTime, sleepUntil, timed, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const { client, limiter } = useLimiters(redis)
const algorithm = 'concurrency'

async function start(options: object): Promise<Program<Message>> {
  const script = new URL('./programs/limited.ts', import.meta.url)
  const args = [redis.url, JSON.stringify({ algorithm, prefix: redis.prefix, ...options })]
  const program = processes.fork<Message>(script, { args })
  onTestFinished(() => program.kill().then(() => {}))
  await program.waitFor('ready')
  return program
}

test('so many at once, and as many more as are given back', async () => {
  const api = limiter({ name: 'basic', algorithm, concurrency: 2 })
  const { value: first, from, to } = await timed(client, () => api.take('joe'))
  const second = await api.take('joe')
  expect([first, second]).toMatchObject([
    { allowed: true, limit: 2, remaining: 1 },
    { allowed: true, remaining: 0 },
  ])
  expect(first.lease?.id).not.toBe(second.lease?.id)
  expect(first.lease?.expiresAt.getTime()).toBeGreaterThanOrEqual(Math.floor(from) + 30_000)
  expect(first.lease?.expiresAt.getTime()).toBeLessThanOrEqual(to + 30_000)
  const refused = await api.take('joe')
  expect(refused).toMatchObject({ allowed: false, remaining: 0 })
  expect(refused).not.toHaveProperty('lease')
  // At the latest when the first lease runs out.
  expect(refused.retryAfterMs).toBeLessThanOrEqual(30_000)
  expect(await first.lease?.release()).toBe(true)
  expect((await api.take('joe')).allowed).toBe(true)
  expect((await api.take('joe')).allowed).toBe(false)
})

test('a lease is given back once; twice is told and takes nothing from others', async () => {
  const api = limiter({ name: 'twice', algorithm, concurrency: 2 })
  const [one] = [await api.take('joe'), await api.take('joe')]
  expect([await one.lease?.release(), await one.lease?.release()]).toEqual([true, false])
  expect(await one.lease?.extend()).toBe(false)
  expect((await api.peek('joe')).remaining).toBe(1)
})

test('a cost of n takes n places, together or not at all, and gives them back together', async () => {
  const api = limiter({ name: 'several', algorithm, concurrency: 5 })
  const three = await api.take('joe', { cost: 3 })
  expect(three.remaining).toBe(2)
  expect(await api.take('joe', { cost: 3 })).toMatchObject({ allowed: false, remaining: 2 })
  expect(await api.take('joe', { cost: 2 })).toMatchObject({ allowed: true, remaining: 0 })
  expect(await three.lease?.release()).toBe(true)
  expect((await api.peek('joe')).remaining).toBe(3)
})

test('a lease that is extended lasts a whole one more; one that is not runs out', async () => {
  const api = limiter({ name: 'extend', algorithm, concurrency: 2, leaseMs: 5000 })
  const [kept, left] = [await api.take('joe', { cost: 1 }), await api.take('joe')]
  const before = kept.lease?.expiresAt.getTime() as number
  await sleepUntil(client, before - 3500)
  if (!(await kept.lease?.extend())) throw new Error('this machine stood still for 3.5 s: the lease ran out')
  const until = kept.lease?.expiresAt.getTime() as number
  expect(until).toBeGreaterThanOrEqual(before + 1499)
  expect(await client.zcount(`${redis.prefix}:limit:{extend}:n:joe`, (until - 1) * 1000, '+inf')).toBe(1)
  await sleepUntil(client, (left.lease?.expiresAt.getTime() as number) + 1)
  expect([await left.lease?.extend(), await left.lease?.release()]).toEqual([false, false])
  expect((await api.peek('joe')).remaining).toBeGreaterThanOrEqual(1)
  await sleepUntil(client, (kept.lease?.expiresAt.getTime() as number) + 1)
  expect(await api.peek('joe')).toMatchObject({ remaining: 2 })
  expect(await kept.lease?.extend()).toBe(false)
})

test('the leases of a holder that was killed run out by themselves', async () => {
  const options = { name: 'killed', algorithm, concurrency: 3, leaseMs: 300 } as const
  const api = limiter(options)
  const holder = await start(options)
  holder.send({ do: 'take', key: 'joe', count: 3 })
  expect((await holder.waitFor('took')).allowed).toBe(3)
  const state = `${redis.prefix}:limit:{killed}:n:joe`
  // A pair in a list, or just the pair: that is for the version of the protocol.
  const last = (await client.call('ZRANGE', state, -1, -1, 'WITHSCORES')) as unknown[]
  expect(await holder.kill()).toMatchObject({ signal: 'SIGKILL' })
  await expect.poll(async () => (await api.peek('joe')).remaining).toBe(3)
  expect((await redisTime(client)) * 1000).toBeGreaterThanOrEqual(Number(last.flat()[1]))
  expect(countAllowed(await Promise.all(times(4, () => api.take('joe'))))).toBe(3)
})

test('several processes together never hold more than the limit', async () => {
  const options = { name: 'several-processes', concurrency: 5, leaseMs: 60_000 }
  const holders = await Promise.all(times(3, () => start(options)))
  const round = async (count: number) => {
    const seen = holders.map(({ messages }) => messages.length)
    for (const holder of holders) holder.send({ do: 'take', key: 'joe', count })
    const took = await Promise.all(
      holders.map((holder, i) =>
        holder.waitFor('took', (message) => holder.messages.indexOf(message) >= (seen[i] as number)),
      ),
    )
    expect(took.flatMap(({ errors }) => errors)).toEqual([])
    return took.map(({ allowed }) => allowed)
  }
  const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0)
  const held = await round(4)
  expect(sum(held)).toBe(5)
  expect(sum(await round(4))).toBe(0)
  holders[0]?.send({ do: 'release' })
  await holders[0]?.waitFor('released')
  expect(sum(await round(4))).toBe(held[0])
})

test('combined, a place that another limit refuses is not held', async () => {
  const places = limiter({ name: 'places', algorithm, concurrency: 5 })
  const api = combine([places, limiter({ name: 'rate', rate: '1/h' })])
  const allowed = await api.take()
  expect(allowed.answers[0]?.lease).toBeDefined()
  const refused = await api.take()
  expect(refused).toMatchObject({ allowed: false, policy: 'rate' })
  expect(refused.answers[0]).not.toHaveProperty('lease')
  expect((await places.peek()).remaining).toBe(4)
})

test('a peek holds nothing', async () => {
  const api = limiter({ name: 'peek', algorithm, concurrency: 1 })
  expect(await api.peek('joe')).not.toHaveProperty('lease')
  expect((await api.peek('joe')).remaining).toBe(1)
})

test('a combined peek holds nothing', async () => {
  const api = combine([limiter({ name: 'combined-peek', algorithm, concurrency: 1 })])
  expect((await api.peek()).answers[0]).not.toHaveProperty('lease')
})

test('in shadow, whoever would have been refused has no lease that has run out', async () => {
  const api = limiter({ name: 'shadow', algorithm, concurrency: 1, mode: 'shadow' })
  await api.take('joe')
  const { lease } = await api.take('joe')
  expect((await lease?.extend()) ?? true).toBe(true)
})
