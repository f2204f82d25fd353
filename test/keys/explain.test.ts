import { expect, test } from 'vitest'
import { holdText } from '../../packages/cli/src/queue-text.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { QueueLimit, ShapedQueue } from '../../src/index.ts'
import type { Explanation } from '../../src/inspect/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const RPM: QueueLimit = { name: 'rpm', by: 'model', rate: '10/h' }
const HOUR_MS = 3_600_000

const add = (queue: ShapedQueue, id: string, keys: Record<string, string>, more: ShapedJobsOptions = {}) =>
  queue.add('job', {}, { jobId: id, keys, ...more })

const inMs = ({ at }: Explanation, time: Date | undefined) => (time as Date).getTime() - at.getTime()

async function explained(queue: ShapedQueue, id: string): Promise<Explanation> {
  return (await inspectorOf(redis, shop).explain(queue.name, id)) ?? expect.fail(`expected job ${id} to be there`)
}

test('a job names the limit and the value that hold its lane, and when it starts at the earliest', async () => {
  const queue = shop.queue({ limits: [RPM] })
  for (let i = 0; i < 4; i++) await add(queue, `a${i}`, { model: 'gpt-large' })
  for (let i = 0; i < 300; i++) await add(queue, `b${i}`, { model: 'b' })
  await departuresOf(shop.worker(queue, async () => {})).reach(2)
  await expect.poll(async () => (await explained(queue, 'a3')).lane).toEqual({ ahead: 2 })
  const found = await explained(queue, 'a3')
  expect(found.keys).toEqual({ model: 'gpt-large' })
  expect(found.hold).toMatchObject({ cause: 'limits', limit: 'rpm', keys: { model: 'gpt-large' } })
  expect(holdText(found.hold!)).toBe('limit rpm of model gpt-large')
  expect(inMs(found, found.hold?.until)).toBeGreaterThan(HOUR_MS / 10 - 60_000)
  expect(inMs(found, found.hold?.until)).toBeLessThanOrEqual(HOUR_MS / 10)
  expect(found).toMatchObject({ ahead: 2, isAheadAtLeast: true })
  expect(found.assumptions).toEqual([
    'Limit "rpm" of model gpt-large allows it then, if the jobs ahead of it take as much.',
    'No job is added ahead of it, and no job ahead of it is removed.',
    'At least 2 jobs are ahead of it, and other lanes may wait for the same limit: it starts no sooner, unless settled costs give units back.',
  ])
  expect(inMs(found, found.startsAt)).toBeGreaterThan(0.3 * HOUR_MS - 60_000)
  expect(inMs(found, found.startsAt)).toBeLessThanOrEqual(0.3 * HOUR_MS)
  expect(found.parts.limits).toBe(found.waitedMs)
})

test('a job behind none of those that are held is not counted behind them', async () => {
  const queue = shop.queue({ rate: '20/s', groups: {}, limits: [RPM] })
  for (let i = 0; i < 100; i++) {
    await add(queue, `x${i}`, { model: 'a' }, { group: { id: `x${i % 5}` } })
  }
  const worker = shop.worker(queue, async () => {})
  await departuresOf(worker).reach(1)
  await expect.poll(() => queue.getGroupsCountByStatus()).toMatchObject({ limited: 5, waiting: 0 })
  await worker.close()
  await add(queue, 'free1', { model: 'b' }, { group: { id: 'x1' } })
  await add(queue, 'free2', { model: 'c' }, { group: { id: 'x2' } })
  const found = await explained(queue, 'free2')
  expect(found).toMatchObject({ ahead: 1, lane: { ahead: 0 }, hold: { cause: 'workers' } })
  expect(inMs(found, found.startsAt)).toBeLessThan(1000)
  expect(await explained(queue, 'x99')).toMatchObject({
    hold: { limit: 'rpm', keys: { model: 'a' } },
    group: { id: 'x4' },
  })
})

test('of several limits that hold a job, the one that lets it go last is named first, and what it costs is told', async () => {
  const limits: QueueLimit[] = [
    { name: 'rpm', by: 'model', rate: '60/h' },
    { name: 'tpm', by: 'model', rate: '1000/h', burst: 1000, unit: 'tokens' },
  ]
  const queue = shop.queue({ limits })
  for (const id of ['a', 'b']) await add(queue, id, { model: 'm' }, { costs: { tokens: 600 } })
  await departuresOf(shop.worker(queue, async () => {})).reach(1)
  await expect.poll(async () => (await explained(queue, 'b')).hold?.limit).toBe('tpm')
  const found = await explained(queue, 'b')
  const keys = { model: 'm' }
  expect(found).toMatchObject({ cost: 1, costs: { tokens: 600 }, hold: { keys, others: [{ limit: 'rpm', keys }] } })
  expect(inMs(found, found.hold?.until)).toBeGreaterThan(0.19 * HOUR_MS)
  expect(inMs(found, found.hold?.others?.[0]?.until)).toBeLessThanOrEqual(60_000)
  expect(found.assumptions[0]).toContain('Limit "tpm"')
})

test('an offer says the same of a job that comes into a lane that waits', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: {}, limits: [RPM] })
  for (const id of ['a0', 'a1', 'a2']) await add(queue, id, { model: 'a' }, { group: { id: 'acme' } })
  const worker = shop.worker(queue, async () => {})
  await departuresOf(worker).reach(1)
  await expect.poll(async () => (await explained(queue, 'a2')).hold?.limit).toBe('rpm')
  await worker.close()
  for (let i = 0; i < 50; i++) await add(queue, `b${i}`, { model: 'b' }, { group: { id: 'other' } })
  const offer = await queue.offer('job', {}, { jobId: 'a3', keys: { model: 'a' }, group: { id: 'acme' } })
  if (!offer.accepted) throw new Error('expected a place')
  const found = await explained(queue, 'a3')
  expect(offer.position).toBe(2)
  expect(found.ahead).toBe(2)
  expect(Math.abs(inMs(found, found.startsAt) - inMs(found, offer.startsAt))).toBeLessThan(100)
  expect(inMs(found, offer.startsAt)).toBeGreaterThan(0.3 * HOUR_MS - 60_000)
})

test('a key that stands with its group, and a job without a group', async () => {
  const queue = shop.queue({ groups: {}, limits: [{ name: 'endpoint', by: ['group', 'host'], rate: '1/h' }] })
  for (const id of ['a', 'b']) await add(queue, id, { host: 'h' }, { group: { id: 'acme' } })
  for (const id of ['c', 'd']) await add(queue, id, { host: 'h' })
  await departuresOf(shop.worker(queue, async () => {})).reach(2)
  await expect.poll(async () => (await explained(queue, 'b')).hold?.keys).toEqual({ group: 'acme', host: 'h' })
  await expect.poll(async () => (await explained(queue, 'd')).hold?.keys).toEqual({ group: '', host: 'h' })
  expect(holdText((await explained(queue, 'b')).hold!)).toBe('limit endpoint of group acme, host h')
  expect(holdText((await explained(queue, 'd')).hold!)).toBe('limit endpoint of no group, host h')
})

test('a paused group is named before the limits of its lanes', async () => {
  const queue = shop.queue({ groups: {}, limits: [RPM] })
  for (const id of ['a', 'b']) await add(queue, id, { model: 'a' }, { group: { id: 'acme' } })
  await departuresOf(shop.worker(queue, async () => {})).reach(1)
  await expect.poll(async () => (await explained(queue, 'b')).hold?.limit).toBe('rpm')
  await queue.pauseGroup('acme')
  expect((await explained(queue, 'b')).hold).toMatchObject({ cause: 'pause', group: 'acme' })
})

test('jobs that wait before a limit has keys are explained without a write', async () => {
  const queue = shop.queue({ groups: { rate: '1/h' } })
  for (const id of ['a', 'b']) await add(queue, id, { model: 'a' }, { group: { id: 'acme' } })
  await queue.setShape({ limits: [RPM] }, { by: 'test', reason: 'test' })
  expect(await explained(queue, 'b')).toMatchObject({ keys: { model: 'a' }, state: 'prioritized' })
})
