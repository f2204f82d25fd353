import { expect, test, vi } from 'vitest'
import { compareFillLevels, TopList } from '../../src/inspect/fill-level.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { many } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, writesOn } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('those in which jobs wait come first, the fullest at the top', async () => {
  const shapes = { idle: {}, few: { capacity: 100 }, half: { capacity: 4 }, full: { capacity: 3 }, open: {} }
  const jobs = { idle: 0, few: 9, half: 2, full: 3, open: 20 }
  const queues = await Promise.all(
    Object.entries(shapes).map(async ([name, shape]) => {
      const queue = shop.queueNamed(name, { rate: '1/h', ...shape })
      await queue.addBulk(many(jobs[name as keyof typeof jobs]))
      return queue.name
    }),
  )
  const inspector = inspectorOf(redis, shop)
  expect(await inspector.fullest(queues, 10)).toEqual(['full', 'half', 'few', 'open', 'idle'])
  expect(await inspector.fullest(queues, 2)).toEqual(['full', 'half'])
  const statuses = await inspector.status(queues)
  const sorted = statuses.flatMap((status) => status ?? []).sort(compareFillLevels)
  expect(sorted.map(({ name }) => name)).toEqual(['full', 'half', 'few', 'open', 'idle'])
})

test('the fullest of 300 are found in ten round trips', async () => {
  const client = redis.client()
  const inspector = new Inspector({ connection: client, prefix: redis.prefix })
  const names = Array.from({ length: 300 }, (_, i) => `none${i}`)
  expect(await writesOn(client, () => inspector.fullest(names, 10))).toBe(10)
})

test('a list of the first is that of all, sorted and cut', () => {
  const numbers = Array.from({ length: 5000 }, (_, i) => (i * 7919) % 5000)
  for (const count of [1, 3, 99, 5000, 6000]) {
    const top = new TopList<number>(count, (one, other) => one - other)
    for (const one of numbers) top.add(one)
    expect(top.sorted()).toEqual(numbers.toSorted((one, other) => one - other).slice(0, count))
  }
})

/** A queue with one job, and an inspector with a client of its own. */
async function inspected() {
  const queue = shop.queue({ rate: '1/h' })
  await queue.add('job', {})
  const client = redis.client()
  await client.ping()
  const inspector = shop.keep(new Inspector({ connection: client, prefix: redis.prefix }))
  return { queue, client, inspector }
}

test('very many are read in parts, and each is told of once', async () => {
  const { queue, client, inspector } = await inspected()
  const names = Array.from({ length: 900 }, (_, i) => (i % 300 === 0 ? queue.name : `nobody-${i}`))
  const batches = vi.spyOn(client, 'pipeline')
  const found: number[] = []
  for await (const { waiting } of inspector.statuses(names)) found.push(waiting)
  expect(found).toEqual([1, 1, 1])
  expect(batches.mock.calls.length).toBeGreaterThanOrEqual(5)
  batches.mockRestore()
  expect((await inspector.status(names)).map((status) => status?.waiting)).toEqual(
    names.map((name) => (name === queue.name ? 1 : undefined)),
  )
})

test('a stream of very many reads a little ahead, and ends with the error of a read that fails', async () => {
  const { queue, client, inspector } = await inspected()
  const reads = vi.spyOn(client, 'pipeline')
  const stream = inspector.statuses(Array.from({ length: 900 }, () => queue.name))
  expect((await stream.next()).value?.waiting).toBe(1)
  expect(reads.mock.calls.length).toBeGreaterThan(1)
  expect(reads.mock.calls.length).toBeLessThan(10)
  reads.mockRestore()
  client.disconnect()
  let read = 1
  const rest = (async () => {
    for await (const { waiting } of stream) read += waiting
  })()
  await expect(rest).rejects.toThrow('Connection is closed')
  expect(read).toBeLessThan(100)
})
