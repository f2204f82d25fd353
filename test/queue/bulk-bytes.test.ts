import { describe, expect, test } from 'vitest'
import { QueueFullError, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const MIB = 1024 * 1024

/** Jobs of so many bytes each. The text takes two bytes for each of its letters. */
function large(count: number, bytes = MIB / 8, opts: object = {}) {
  return Array.from({ length: count }, (_, n) => ({ name: 'job', data: { n, text: 'é'.repeat(bytes / 2) }, opts }))
}

/** How many bytes each script took that this queue sent, since now. */
async function scriptBytes(queue: ShapedQueue): Promise<number[]> {
  const client = (await queue.getBackend().client) as unknown as {
    runCommand(name: string, args: unknown[]): Promise<unknown>
  }
  const run = client.runCommand.bind(client)
  const sizes: number[] = []
  client.runCommand = (name, args) => {
    sizes.push(args.reduce<number>((sum, argument) => sum + Buffer.byteLength(Buffer.from(String(argument))), 0))
    return run(name, args)
  }
  return sizes
}

const SHAPES = [
  ['without a shape', undefined],
  ['without a capacity', { rate: '1/h' }],
  ['with a capacity', { rate: '1/h', capacity: 40 }],
] as const

describe.each(SHAPES)('a queue %s', (_name, shape) => {
  test('takes a bulk in scripts of 512 KiB at most, in its order', async () => {
    const queue = shop.queue(shape)
    const sizes = await scriptBytes(queue)
    const jobs = await queue.addBulk(large(20))
    expect(Math.max(...sizes)).toBeLessThan((MIB / 2) * 1.05)
    expect(sizes.filter((size) => size > MIB / 8)).toHaveLength(7)
    expect((await queue.getWaiting()).map(({ id, data }) => [id, data.n])).toEqual(jobs.map(({ id }, n) => [id, n]))
  })

  test('takes jobs that are added beside each other in such scripts too', async () => {
    const queue = shop.queue(shape)
    await queue.add('first', {})
    const sizes = await scriptBytes(queue)
    const jobs = await Promise.all(large(20).map(({ name, data }) => queue.add(name, data)))
    expect(Math.max(...sizes)).toBeLessThan((MIB / 2) * 1.05)
    expect((await queue.getWaiting()).slice(1).map(({ id, data }) => [id, data.n])).toEqual(
      jobs.map(({ id }, n) => [id, n]),
    )
  })
})

test('a job that is larger than a part is one by itself', async () => {
  const queue = shop.queue({ capacity: 3 })
  const sizes = await scriptBytes(queue)
  await queue.addBulk(large(3, 2 * MIB))
  expect(sizes.filter((size) => size > MIB)).toHaveLength(3)
  expect(Math.max(...sizes)).toBeLessThan(2.05 * MIB)
})

test('a job is sent once, large or small, to a queue that is full too', async () => {
  const queue = shop.queue({ capacity: 1 })
  await queue.add('job', {})
  const sizes = await scriptBytes(queue)
  const [job] = large(1, MIB)
  await rejection(queue.add('job', job!.data))
  await rejection(queue.add('job', {}))
  expect(sizes.map((size) => size > MIB)).toEqual([true, false])
})

test('a bulk of more than 100 jobs comes in parts of 50, and one of 100 in one', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await queue.waitUntilReady()
  const sizes = await scriptBytes(queue)
  await queue.addBulk(many(100))
  expect(sizes).toHaveLength(1)
  sizes.length = 0
  await queue.addBulk(many(101))
  // With a claim of the places before, and one that releases what is left of it.
  expect(sizes).toHaveLength(1 + 3 + 1)
})

test('a bulk that comes in parts is admitted whole or not at all', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 20 })
  await queue.addBulk(large(3, 10))
  const error = await rejection<QueueFullError>(queue.addBulk(large(18)))
  expect(error).toBeInstanceOf(QueueFullError)
  expect(error).toMatchObject({ depth: 3, capacity: 20 })
  expect(await queue.count()).toBe(3)
})

test('of two that race for the places one comes in, whole', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 20 })
  const other = shop.queueNamed(queue.name)
  await Promise.all([queue.waitUntilReady(), other.waitUntilReady()])
  const outcomes = await Promise.allSettled([queue.addBulk(large(12)), other.addBulk(large(12))])
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  expect(await queue.count()).toBe(12)
})

test('a full queue drops as many jobs for it as for a small one', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 10, overflow: 'drop-oldest' })
  await queue.addBulk(large(8, 10))
  await queue.addBulk(large(9))
  expect((await queue.getWaiting()).map(({ data }) => data.n)).toEqual([7, 0, 1, 2, 3, 4, 5, 6, 7, 8])
  expect((await queue.getFailed()).map(({ data }) => data.n).toSorted()).toEqual([0, 1, 2, 3, 4, 5, 6])
  expect((await queue.meter()).droppedTotal).toBe(7)
})

test('of jobs that are added beside each other and do not all fit, each is answered by itself', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 10 })
  const refusals = eventsOf('refused', queue)
  await queue.add('first', {})
  const outcomes = await Promise.allSettled(large(20).map(({ name, data }) => queue.add(name, data)))
  expect(outcomes.map(({ status }) => status === 'fulfilled')).toEqual(Array.from({ length: 20 }, (_, n) => n < 9))
  expect(refusals.all).toHaveLength(11)
  expect((await new Taker(shop, queue).take()).name).toBe('first')
})
