import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { ShardedQueue } from '../../src/sharding/index.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { useRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const { connection, prefix } = useRedis(import.meta.url)
const RATE = 300
const BURST = 6
const SHAPE = { rate: `${RATE}/s`, burst: BURST, capacity: 500, groups: {}, audit: 500 } as const
const STATES = ['waiting', 'prioritized', 'delayed', 'waiting-children', 'active'] as const

// As docs/sharding.md says, under "The number of shards".
test('a move to a queue with more shards: each job runs once, groups keep their order, and the bound holds', async () => {
  const shop = new ShardShop({ connection, prefix })
  const order: string[] = []
  const process = async ({ data }: { data: { group: string; n: number } }) => {
    order.push(`${data.group} ${data.n}`)
  }
  const open = (name: string, shards: number) => {
    const queue = shop.queue(name, { shards, shape: SHAPE })
    return { queue, work: () => shop.worker(name, process, { shards, concurrency: 12, shape: SHAPE }) }
  }
  const expected: string[] = []
  const produce = async (queue: ShardedQueue, from: number) => {
    for (let n = from; n < from + 12; n++) {
      for (const group of ['a', 'b', 'c', 'd', 'e']) {
        await queue.add('job', { group, n }, { group: { id: group }, ...(n === from ? { delay: 50 } : {}) })
        expected.push(`${group} ${n}`)
      }
    }
  }
  const old = open('old', 2)
  await produce(old.queue, 0)
  const oldWorker = old.work()
  const ends = [endsOf(oldWorker)]
  const renewed = open('new', 5)
  await renewed.queue.pause({ by: 'test', reason: 'the old queue is not empty yet' })
  ends.push(endsOf(renewed.work()))
  await produce(renewed.queue, 100)
  await ends[0]?.reach(60)
  const left = async () => Object.values(await old.queue.getJobCounts(...STATES))
  await expect.poll(left).toEqual([0, 0, 0, 0, 0])
  expect(ends[1]?.ids).toEqual([])
  await sleep((1000 * BURST) / RATE)
  await renewed.queue.resume()
  await ends[1]?.reach(60)
  expect(order.toSorted()).toEqual(expected.toSorted())
  expect(order.findIndex((one) => Number(one.split(' ')[1]) >= 100)).toBe(60)
  const slots = [await shop.slotsUs(old.queue), await shop.slotsUs(renewed.queue)].flat()
  expect(slots).toHaveLength(120)
  expect(worstWindow(slots, { rate: SHAPE.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  await oldWorker.close()
  await old.queue.obliterate()
  await renewed.queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
}, 30_000)

test('the same name with another number, once the queue is empty and obliterated', async () => {
  const shop = new ShardShop({ connection, prefix })
  const old = shop.queue('kept', { shards: 2, shape: SHAPE })
  const worker = shop.worker('kept', async () => undefined, { shards: 2, concurrency: 4, shape: SHAPE })
  const ends = endsOf(worker)
  await old.add('job', {})
  const other = () => shop.queue('kept', { shards: 3, shape: SHAPE })
  await expect(other().add('job', {})).rejects.toMatchObject({ name: 'ShardCountError', expected: 2, given: 3 })
  await ends.reach(1)
  await worker.close()
  await old.obliterate()
  await old.close()
  const renewed = other()
  expect((await renewed.add('job', {})).id).toBeDefined()
  expect(await renewed.meter()).toMatchObject({ shards: 3, depth: 1 })
  await renewed.obliterate({ force: true })
}, 30_000)
