import { type Job, type JobsOptions, Queue } from 'bullmq'
import { describe, expect, test } from 'vitest'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import { readScrape, sample } from '../../packages/metrics/test/support/scrape.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

// The age of the head of a queue with groups is that of the oldest job that may leave, whether it has a group or not.
const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = new Workshop(redis)

const HOUR_MS = 3_600_000
const BY = { by: 'ada', reason: 'test' }

test.each([
  ['', {}],
  [' that age', { priorityAgeingMs: 60_000 }],
])('views show the age of the oldest of jobs with and without a group%s', async (_, shape) => {
  const queue = shop.queue({ rate: '100/s', groups: {}, ...shape })
  const inspector = inspectorOf(redis, shop)
  const nowMs = Date.now()
  const add = (hours: number, opts: object) => queue.add('job', {}, { ...opts, timestamp: nowMs - hours * HOUR_MS })
  const hoursOf = (ms: number | undefined) => ms! / HOUR_MS
  const expectHours = async (hours: number, oldest = hours) => {
    const status = await statusOf(inspector, queue.name)
    expect(hoursOf((await queue.meter()).headAgeMs)).toBeCloseTo(hours, 1)
    expect(hoursOf(status.headAgeMs)).toBeCloseTo(hours, 1)
    expect(hoursOf(status.oldestAgeMs)).toBeCloseTo(oldest, 1)
    const metrics = createMetrics({ connection, prefix, queues: [queue.name] })
    const scrape = readScrape(await metrics.text())
    await metrics.close()
    const ofQueue = (name: string) => (sample(scrape, name, { queue: queue.name }) as number) * 1000
    expect(hoursOf(ofQueue('sluice_head_age_seconds'))).toBeCloseTo(hours, 1)
    expect(hoursOf(ofQueue('sluice_oldest_age_seconds'))).toBeCloseTo(oldest, 1)
  }
  await add(1, {})
  await expectHours(1)
  await add(5, { group: { id: 'a', priority: 9 } })
  await expectHours(5)
  await add(3, { group: { id: 'b' } })
  await expectHours(5)
  await add(8, { priority: 4 })
  await expectHours(5, 8)
})

/** Adds a job that has waited for so long, to a group or to none. */
function addOld(queue: ShapedQueue, hours: number, id?: string, opts: object = {}) {
  return queue.add('job', id, { ...opts, timestamp: Date.now() - hours * HOUR_MS, ...(id ? { group: { id } } : {}) })
}

/** The ages of the head and of the oldest job, hours: every view has the same head. */
async function agesOf(queue: ShapedQueue): Promise<[head: number, oldest: number]> {
  const [meter, status] = [await queue.meter(), await statusOf(inspectorOf(redis, shop), queue.name)]
  const [head, seen, oldest] = [meter, status]
    .flatMap((view) => view.headAgeMs! / HOUR_MS)
    .concat(status.oldestAgeMs! / HOUR_MS)
  expect(seen).toBeCloseTo(head!, 1)
  return [Math.round(head!), Math.round(oldest!)]
}

describe('the head of a queue with groups', () => {
  const queueOf = (name: string, shape: object) => shop.queueNamed(name, { mode: 'enforce', ...shape })

  test('the job of a paused group is not the head while another may leave', async () => {
    const queue = queueOf('paused', { groups: {} })
    await queue.pauseGroup('paused', BY)
    await addOld(queue, 9, 'paused')
    expect(await agesOf(queue)).toEqual([9, 9])
    await addOld(queue, 2, 'a')
    await addOld(queue, 3, 'b')
    expect(await agesOf(queue)).toEqual([3, 9])
    await addOld(queue, 4, undefined, { priority: 1 })
    expect(await agesOf(queue)).toEqual([4, 9])
    await addOld(queue, 1)
    expect(await agesOf(queue)).toEqual([3, 9])
    await queue.resumeGroup('paused', BY)
    expect(await agesOf(queue)).toEqual([9, 9])
  })

  test('where all groups are held, it is that of a group held by its rate, then by running jobs, then by a pause', async () => {
    const queue = queueOf('held', { groups: { concurrency: 1 } })
    await queue.setGroup('limited', { rate: '1/h' }, BY)
    await queue.pauseGroup('paused', BY)
    await addOld(queue, 9, 'paused')
    for (const [id, hours] of [
      ['maxed', 6],
      ['limited', 2],
    ] as const) {
      await addOld(queue, hours, id)
      await addOld(queue, hours, id)
    }
    const taker = new Taker(shop, queue)
    const taken = [await taker.take(), await taker.take()]
    const limited = taken.find(({ data }) => data === 'limited')
    await taker.complete(limited as Job)
    // What holds each group is found out when jobs are asked for.
    expect(await taker.tryTake()).toBeUndefined()
    expect((await queue.meter()).groups).toMatchObject({ waiting: 0, limited: 1, maxed: 1, paused: 1 })
    expect(await agesOf(queue)).toEqual([2, 9])
    await queue.pauseGroup('limited', BY)
    expect(await agesOf(queue)).toEqual([6, 9])
    await queue.pauseGroup('maxed', BY)
    expect(await agesOf(queue)).toEqual([9, 9])
  })

  test('a job behind more groups than are read is the head as long as its group is in line', async () => {
    const queue = queueOf('many', { groups: {} })
    await addOld(queue, 5, 'first')
    await addOld(queue, 5, 'first')
    for (let i = 0; i < 20; i++) await addOld(queue, 1, `g${i}`)
    await new Taker(shop, queue).take()
    expect(await agesOf(queue)).toEqual([5, 5])
    await queue.pauseGroup('first', BY)
    expect(await agesOf(queue)).toEqual([1, 5])
  })
})

test('a job of a stock producer whose group has no valid id is one without a group', async () => {
  const queue = shop.queue({ mode: 'enforce', groups: {} })
  const stock = new Queue(queue.name, { connection, prefix })
  for (const id of [{}, '', null]) {
    await stock.add('job', {}, { priority: 1, timestamp: Date.now() - HOUR_MS, group: { id } } as JobsOptions)
    expect(await agesOf(queue)).toEqual([1, 1])
    await stock.drain()
  }
  await stock.close()
})

test('without groups, where jobs age, it is that of the job that leaves next, whatever its priority', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 9, priorityAgeingMs: 600_000 })
  const inspector = inspectorOf(redis, shop)
  const add = (minutes: number, opts: object) => {
    return queue.add('job', {}, { ...opts, timestamp: Date.now() - minutes * 60_000 })
  }
  await add(0, { priority: 1 })
  // It counts as 6 levels more important.
  const { id } = await add(60, { priority: 5, cost: 9 })
  const client = redis.client()
  const ids = (await queue.getJobs(['prioritized'])).map((job) => job.id as string)
  // As of a stock producer: since when they wait follows from their options.
  for (const one of ids) await client.hdel(queue.toKey(one), 'queuedAt')
  const taker = shop.worker(queue, null)
  const expectMinutes = async (minutes: number) => {
    const askedMs = performance.now()
    const [status, meter] = [await statusOf(inspector, queue.name), await queue.meter()]
    const tookMs = performance.now() - askedMs
    expect([status.headAgeMs! / 60_000, meter.headAgeMs! / 60_000].map(Math.round)).toEqual([minutes, minutes])
    expect(Math.abs(Number(status.nextDepartureAt) - Number(meter.nextDepartureAt))).toBeLessThan(1000 + tookMs)
  }
  await expectMinutes(60)
  expect((await taker.getNextJob('token'))?.id).toBe(id)
  await expectMinutes(0)
})
