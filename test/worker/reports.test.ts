import { expect, test, vi } from 'vitest'
import { HeldClockMemory } from '../../src/reports/held-clocks.ts'
import { StartCounts } from '../../src/reports/start-counts.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

test('a worker tells of itself when it comes, of its starts, and that it is gone', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 5 })
  await queue.waitUntilReady()
  const base = queue.toKey('')
  const worker = shop.worker(queue, async () => {}, { concurrency: 7 })
  const departed = departuresOf(worker)
  await expect.poll(() => client.hlen(`${base}meta:workers`)).toBe(1)
  const row = JSON.parse((await client.hget(`${base}meta:workers`, worker.id)) as string)
  expect(row).toMatchObject({ pid: process.pid, concurrency: 7, started: 0, state: 'running' })
  expect(Math.abs(row.seen - Date.now())).toBeLessThan(60_000)
  await queue.addBulk(jobs(10))
  await departed.reach(10)
  await worker.close()
  expect(await client.hlen(`${base}meta:workers`)).toBe(0)
  const starts = await client.hgetall(`${base}meta:starts`)
  expect(starts).toMatchObject({ count: '10', waits: '10' })
  expect(starts).not.toHaveProperty('early')
  const counted = Object.entries(starts).filter(([field]) => field.startsWith('l:'))
  expect(counted.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(10)
  for (const seconds of [2, 15, 120]) {
    const samples = await client.lrange(`${base}meta:series:${seconds}`, 0, -1)
    expect(samples.length).toBeGreaterThan(0)
    expect(JSON.parse(samples[0] as string)).toHaveLength(19)
  }
})

test('one that is told not to writes nothing', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 5 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {}, { report: false })
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(2))
  await departed.reach(2)
  await worker.close()
  expect(
    await client.exists(queue.toKey('meta:starts'), queue.toKey('meta:workers'), queue.toKey('meta:series:2')),
  ).toBe(0)
})

test('a worker of a queue without a shape keeps nothing of its starts', async () => {
  const counted = vi.spyOn(StartCounts.prototype, 'add')
  const queue = shop.queue()
  const worker = shop.worker(queue, async () => {}, { allowUnshaped: true })
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(3))
  await departed.reach(3)
  expect(counted).not.toHaveBeenCalled()
  vi.restoreAllMocks()
})

test('a report that is on its way is no error of a worker that is closed by force', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const errors: string[] = []
  for (let i = 0; i < 8; i++) {
    const worker = shop.worker(queue, async () => {})
    worker.on('error', ({ message }) => errors.push(message))
    await worker.waitUntilReady()
    await worker.close(true)
  }
  expect(errors).toEqual([])
})

test('a wait is divided by what held the queue meanwhile; what nothing tells of was for want of a worker', () => {
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 1000, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 2000, heldUs: [500, 0, 0, 200, 300] })
  clocks.add({ atUs: 3000, heldUs: [500, 1000, 0, 200, 300] })
  expect(clocks.split(1000, 3000)).toEqual([500, 1000, 0, 200, 300])
  expect(clocks.split(1500, 2500)).toEqual([250, 500, 0, 100, 150])
  expect(clocks.split(0, 1000)).toEqual([0, 0, 0, 0, 1000])
  expect(clocks.split(2500, 9000)).toEqual([0, 500, 0, 0, 6000])
  expect(new HeldClockMemory().split(5, 9)).toEqual([0, 0, 0, 0, 4])
})

test('a clock of Redis that went back begins anew', () => {
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 9000, heldUs: [9000, 0, 0, 0, 0] })
  clocks.add({ atUs: 1000, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 2000, heldUs: [1000, 0, 0, 0, 0] })
  expect(clocks.split(1000, 2000)).toEqual([1000, 0, 0, 0, 0])
})

test('starts are counted by how late they were, and waits by their length', () => {
  const counts = new StartCounts()
  counts.add(10_000_000, 400, 0)
  counts.add(10_000_000, 5000, 9_950_000)
  counts.add(10_000_000, 1_000_000, undefined)
  counts.add(10_000_000, -2, undefined)
  expect(counts.fields()).toEqual({
    ...{ count: 4, early: 1, latenessUs: 1_005_400 },
    ...{ 'l:500': 2, 'l:5000': 1, 'l:inf': 1 },
  })
  expect(counts.latenessMaxUs).toBe(1_000_000)
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 0, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 10_000_000, heldUs: [10_000_000, 0, 0, 0, 0] })
  const waits = { waits: 2, waitMs: 10_050, 'w:10000': 1, 'w:100': 1, 'waited:rate': 10_050 }
  expect(counts.waitFields(clocks)).toEqual(waits)
})
