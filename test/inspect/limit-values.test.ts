import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, gate, Workshop } from '../worker/support.ts'
import { inspectorOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const running: QueueLimit = { name: 'running', by: 'model', algorithm: 'concurrency', concurrency: 2 }
const tokens: QueueLimit = {
  ...{ name: 'tpm', by: 'model', unit: 'tokens', algorithm: 'fixed-window', align: 'first' },
  rate: '1000/day',
}

test('the values that hold most are shown beside those that lanes wait for, with what is in use', async () => {
  const queue = shop.queue({ limits: [running, tokens] })
  const { open, opened } = gate()
  const worker = shop.worker(queue, () => opened, { concurrency: 10, name: 'mailer' })
  const departed = departuresOf(worker)
  const add = (jobId: string, model: string) => queue.add('job', {}, { jobId, keys: { model }, costs: { tokens: 100 } })
  for (const [id, model] of ['a', 'a', 'a', 'b', 'c', 'c'].entries()) await add(`job-${id}`, model)
  await departed.reach(5)
  const inspector = inspectorOf(redis, shop)
  await expect.poll(async () => (await inspector.limitValues(queue.name))?.values).toBe(1)
  const all = await inspector.limitValues(queue.name)
  const rows = all?.rows.map(({ limit, keys, used, most, waitingLanes }) => [
    ...[limit, keys.model, used, most, waitingLanes],
  ])
  expect(rows).toEqual([
    ['running', 'a', 2, 2, 1],
    ['running', 'c', 2, 2, 0],
    ['tpm', 'a', 200, 1000, 0],
    ['tpm', 'c', 200, 1000, 0],
    ['running', 'b', 1, 2, 0],
    ['tpm', 'b', 100, 1000, 0],
  ])
  expect(all).toMatchObject({ values: 1, otherLanes: 0, otherPlaces: 0 })
  const some = await inspector.limitValues(queue.name, { count: 1 })
  expect(some?.rows.map(({ limit, keys }) => [limit, keys.model])).toEqual([
    ['running', 'a'],
    ['running', 'c'],
  ])
  expect(some).toMatchObject({ otherLanes: 0, otherPlaces: 1 })
  const none = await inspector.limitValues(queue.name, { count: 0 })
  expect(none).toMatchObject({ rows: [], otherLanes: 1, otherPlaces: 5 })
  open()
})

test('one value shows its holders, the jobs that wait for it, and its history alone', async () => {
  const queue = shop.queue({ limits: [running, tokens] })
  const { open, opened } = gate()
  const departed = departuresOf(shop.worker(queue, () => opened, { concurrency: 10, name: 'mailer' }))
  for (const id of ['1', '2', '3', '4']) await queue.add('job', {}, { jobId: `a-${id}`, keys: { model: 'a' } })
  await departed.reach(2)
  await queue.setLimit('running', 'b', { concurrency: 5 }, { by: 'ann', reason: 'another' })
  await queue.setLimit('tpm', 'a', { rate: '5000/day' }, { by: 'ann', reason: 'another' })
  await queue.setLimit('running', 'a', { concurrency: 1 }, { by: 'ann', reason: 'slow', ttlMs: 60_000 })
  await queue.clearLimit('running', 'a', { by: 'ann', reason: 'fast' })
  await queue.setLimit('running', 'a', { concurrency: 2 }, { by: 'ann', reason: 'as before' })
  const inspector = inspectorOf(redis, shop)
  const found = await inspector.limitValue(queue.name, 'running', { model: 'a' })
  expect(found).toMatchObject({ inForce: { concurrency: 2 }, used: 2, most: 2, remaining: 0, waitingLanes: 1 })
  expect(found?.overrides.concurrency).toMatchObject({ by: 'ann', reason: 'as before' })
  expect(found?.jobs.map(({ id }) => id)).toEqual(['a-3'])
  expect(found?.holders.map(({ jobId }) => jobId).sort()).toEqual(['a-1', 'a-2'])
  expect(found?.history.map(({ reason }) => reason)).toEqual(['as before', 'fast', 'slow'])
  expect(await inspector.limitValue(queue.name, 'running', { model: 'a' }, { count: 0 })).toMatchObject({ jobs: [] })
  expect(await inspector.limitValue(queue.name, 'running', { host: 'a' })).toBeUndefined()
  expect(await inspector.limitValue(queue.name, 'nope', { model: 'a' })).toBeUndefined()
  open()
})

test('where limits have no lanes, the values of the first waiting jobs are shown, and the jobs of the group', async () => {
  const queue = shop.queue({ groups: {}, limits: [{ name: 'plan', by: 'group', rate: '2/day', burst: 2 }] })
  await queue.addBulk(
    ['p-1', 'p-2', 'p-3', 'p-4'].map((id) => ({ name: 'job', data: {}, opts: { jobId: id, group: { id: 'acme' } } })),
  )
  await departuresOf(shop.worker(queue, async () => {})).reach(2)
  const inspector = inspectorOf(redis, shop)
  const [row] = (await inspector.limitValues(queue.name))?.rows ?? []
  expect(row).toMatchObject({ limit: 'plan', keys: { group: 'acme' }, most: 2, waitingLanes: 0 })
  expect(row?.used).toBeGreaterThan(1.9)
  const found = await inspector.limitValue(queue.name, 'plan', { group: 'acme' })
  expect(found?.jobs.map(({ id }) => id)).toEqual(['p-3', 'p-4'])
  expect(found).toMatchObject({ holders: [], history: [], remaining: 0 })
})

test('of a value without a limit nothing is in use, and a queue without keys has no values', async () => {
  const queue = shop.queue({ limits: [tokens] })
  await queue.setLimit('tpm', 'a', { rate: null }, { by: 'ann', reason: 'free' })
  const inspector = inspectorOf(redis, shop)
  const found = await inspector.limitValue(queue.name, 'tpm', { model: 'a' })
  expect(found).toMatchObject({ inForce: {}, used: undefined, most: undefined, retryAfterMs: 0 })
  const plain = shop.queue({ rate: '1/s' })
  await plain.getShape()
  expect(await inspector.limitValues(plain.name)).toBeUndefined()
  expect(await inspector.limitValue(plain.name, 'tpm', { model: 'a' })).toBeUndefined()
})
