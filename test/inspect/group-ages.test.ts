import { expect, test } from 'vitest'
import { createMetrics } from '../../src/metrics/index.ts'
import { readScrape, sample } from '../metrics/support/scrape.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

// The age of the head of a queue with groups is that of the job that came first, whether it has a group or not.
const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = new Workshop(redis)

const HOUR_MS = 3_600_000

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
