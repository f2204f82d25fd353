import { afterAll, expect, test } from 'vitest'
import { HOLD_CAUSES } from '../../src/departure/departure.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const queue = new HeldQueue(redis, client, 'held')
afterAll(() => queue.close())

const SECOND = 1_000_000

/** For how long each cause has held the head so far, µs, and what holds it now. */
async function held() {
  const [, told] = (await queue.backend.store.run('report', ['a worker', '', '{}', 0, '', 1])) as [string, string[]]
  const us = Object.fromEntries(HOLD_CAUSES.map((cause, i) => [cause, Number(told[i])]))
  return { ...us, holds: (await client.hget(`${queue.base}meta:meter`, 'holds')) ?? undefined }
}

const none = { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 }

async function filled(shape: Shape, jobs: number): Promise<void> {
  await queue.reset(shape)
  for (let i = 0; i < jobs; i++) await queue.add()
}

const wait = (seconds: number) => queue.advanceTo(queue.nowUs + seconds * SECOND)

test('a head that waits for its slot is held by the rate; from the slot on it waits for a worker', async () => {
  await filled({ rate: '1/s' }, 3)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, holds: 'rate' })
  await wait(4)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, rate: SECOND, workers: 3 * SECOND, holds: 'rate' })
  await wait(1)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, rate: 2 * SECOND, workers: 3 * SECOND, holds: '' })
})

test('asking again before the slot changes nothing of it', async () => {
  await filled({ rate: '1/s' }, 2)
  await queue.depart(5)
  for (let i = 0; i < 4; i++) {
    await wait(0.25)
    await queue.depart(5)
  }
  expect(await held()).toEqual({ ...none, rate: SECOND, holds: '' })
})

test('while nothing waits, nothing holds it', async () => {
  await filled({ rate: '1/s' }, 1)
  await queue.depart(5)
  await wait(60)
  await queue.add()
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, holds: undefined })
})

test('a pause of the meter is one, until it is over', async () => {
  await filled({ rate: '1/s' }, 2)
  await queue.backend.store.pause({ kind: 'for', ms: 10_000, reason: 'test' })
  await queue.depart(5)
  await wait(10)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, pause: 10 * SECOND, holds: 'rate' })
})

test("BullMQ's pause is one, and a limit of running jobs is the concurrency", async () => {
  await filled({ rate: '1/s', concurrency: 1 }, 3)
  await queue.queue.pause()
  await queue.depart(5)
  await wait(3)
  await queue.queue.resume()
  await queue.depart(5)
  await wait(7)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, pause: 3 * SECOND, rate: 0, concurrency: 7 * SECOND, holds: 'concurrency' })
})

test('a head that no worker has looked at waits for one, or for the end of a pause', async () => {
  await queue.reset({ rate: '1/s' })
  const added = Date.now() * 1000
  await queue.advanceTo(added)
  await queue.add()
  await queue.advanceTo(added + 2 * SECOND)
  expect((await held()).holds).toBe('workers')
  await wait(3)
  expect(await held()).toMatchObject({ workers: 3 * SECOND, holds: 'workers' })
})

test('a limit that holds longer than the rate is named', async () => {
  const limits = [{ name: 'hourly', rate: '60/h' } as const]
  await filled({ rate: '1/s', limits }, 2)
  await queue.depart(5)
  await queue.depart(5)
  expect((await held()).holds).toBe('limits:hourly')
  await wait(60)
  await queue.depart(5)
  expect(await held()).toEqual({ ...none, limits: 60 * SECOND, holds: '' })
})

test('without a rate nobody accounts, and what held before does not go on', async () => {
  await filled({ rate: '1/s' }, 3)
  await queue.depart(5)
  await queue.backend.store.override({ rate: null }, 'ops', 'test', undefined)
  expect((await held()).holds).toBe('')
})

test('departures are counted, those that come back are not', async () => {
  await filled({ rate: '10/s', burst: 5 }, 4)
  const { grants, grantNumber, lastBeforeUs } = await queue.depart(3)
  const returned = grants.slice(1)
  const back = returned.flatMap(({ id, token }) => [id, token, ''])
  const costUs = returned.reduce((sumUs, grant) => sumUs + Number(grant.costUs), 0)
  expect(await client.hget(`${queue.base}meta:meter`, 'departedTotal')).toBe('3')
  await queue.backend.store.run('give-back', [grantNumber, costUs, lastBeforeUs, 'w', '', '', ...back])
  const [departed, refunded] = await client.hmget(`${queue.base}meta:meter`, 'departedTotal', 'refundedTotal')
  expect([departed, refunded]).toEqual(['1', '2'])
})

test('what `audit` asks for is kept as it was granted', async () => {
  await filled({ rate: '10/s', burst: 2, audit: 3 }, 3)
  const { grants } = await queue.depart(5, SECOND)
  const [[, [, list]]] = (await client.xrange(`${queue.base}meta:audit`, '-', '+')) as [[string, [string, string]]]
  const kept = (JSON.parse(list) as [string, string, string, string, string, number][]).map(([id, ...rest]) => [
    id,
    ...rest.map(Number),
  ])
  expect(kept).toEqual(grants.map(({ id, slotUs }) => [id, slotUs, 1, 100_000, 2, 0]))
})

test('so many departures are kept as `audit` asks for, and starts, however many a call or a report brings', async () => {
  const lists = async (stream: string) => {
    const entries = (await client.xrange(`${queue.base}${stream}`, '-', '+')) as [string, [string, string]][]
    return entries.map(([, [, list]]) => JSON.parse(list).length as number)
  }
  const sum = (counts: readonly number[]) => counts.reduce((all, one) => all + one, 0)
  await filled({ rate: '1000/s', burst: 500, audit: 100 }, 1000)
  for (let i = 0; i < 20; i++) {
    const { grants } = await queue.depart(50, SECOND)
    expect(grants).toHaveLength(50)
    const starts = JSON.stringify(grants.map(({ slotUs }) => [slotUs, slotUs]))
    await queue.backend.store.run('report', ['w', '{"host":""}', '{}', 0, starts, i + 1])
  }
  for (const stream of ['meta:audit', 'meta:audit:starts']) {
    const kept = await lists(stream)
    expect(sum(kept)).toBeGreaterThanOrEqual(100)
    expect(sum(kept)).toBeLessThan(400)
  }
})

test('who changed what, and why, is kept; a change that is sent again is one', async () => {
  await queue.reset({ rate: '1/s' })
  const { store } = queue.backend
  for (let i = 0; i < 2; i++) await store.override({ capacity: 5 }, 'ops', 'incident', 60_000)
  await store.pause({ kind: 'until', ms: Math.floor(queue.nowUs / 1000) + 1000, reason: 'storm', by: 'ops' })
  await store.pause({ kind: 'clear', by: 'ops', reason: 'over' })
  await store.override({ capacity: { clear: true } }, 'ops', 'done', undefined)
  const entries = await client.xrange(`${queue.base}meta:history`, '-', '+')
  const now = Math.floor(queue.nowUs / 1000)
  expect(entries.map(([, fields]) => [1, 3, 5, 7, 9].map((i) => fields[i]))).toEqual([
    ['declared', 'test', '', '{"rate":[1,1000]}', ''],
    ['override', 'ops', 'incident', '{"capacity":5}', String(now + 60_000)],
    ['pause', 'ops', 'storm', '{}', String(now + 1000)],
    ['resume', 'ops', 'over', '{}', ''],
    ['cleared', 'ops', 'done', '{"capacity":{"clear":true}}', ''],
  ])
})

test('a pause that is made longer is told of, by its new end; one that only drifts is not', async () => {
  await queue.reset({ rate: '1/s' })
  const { store } = queue.backend
  const now = Math.floor(queue.nowUs / 1000)
  for (const ms of [1000, 1400, 60_000]) {
    await store.pause({ kind: 'until', ms: now + ms, reason: 'storm', by: 'ops' })
  }
  const entries = await client.xrange(`${queue.base}meta:history`, '-', '+')
  expect(entries.slice(1).map(([, fields]) => fields[9])).toEqual([String(now + 1000), String(now + 60_000)])
})

test('the same change with an end and then without one is two', async () => {
  await queue.reset({ rate: '1/s' })
  const { store } = queue.backend
  for (const ttlMs of [60_000, undefined, undefined]) await store.override({ capacity: 5 }, 'ops', 'incident', ttlMs)
  const entries = await client.xrange(`${queue.base}meta:history`, '-', '+')
  const ends = entries.slice(1).map(([, fields]) => fields[9])
  expect(ends).toEqual([String(Math.floor(queue.nowUs / 1000) + 60_000), ''])
})

test('in mode off nothing holds the head, and no clock goes on', async () => {
  await filled({ rate: '10/s', burst: 1 }, 3)
  await queue.depart(3)
  expect(await client.hget(`${queue.base}meta:meter`, 'holds')).toBe('rate')
  await queue.backend.store.override({ mode: 'off' }, 'ops', 'test', undefined)
  expect(await client.hget(`${queue.base}meta:meter`, 'holds')).toBe('')
})

test('the queue is found among those that have a shape', async () => {
  await queue.reset({ rate: '1/s' })
  await expect.poll(() => client.smembers(`${redis.prefix}:shaped-queues`)).toEqual(['held'])
})
