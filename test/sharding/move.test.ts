import { setTimeout as sleep } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer } from '../../src/index.ts'
import { shardPrefix } from '../../src/redis/shards.ts'
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

test('a move of delayed and prioritized jobs, flows and schedulers: nothing is lost, and old workers go on', async () => {
  const shop = new ShardShop({ connection, prefix })
  const ended: string[] = []
  const process = async (job: Job) => {
    const { name, data } = job
    if (name === 'parent') expect(Object.keys(await job.getChildrenValues())).toHaveLength(2)
    ended.push(name === 'tick' ? `tick of ${data.from}` : `${name} ${data.n}`)
  }
  const open = (name: string, shards: number) => {
    const queue = shop.queue(name, { shards, shape: SHAPE })
    return { queue, work: () => shop.worker(name, process, { shards, concurrency: 12, shape: SHAPE }) }
  }
  const flows = new ShapedFlowProducer({ connection, prefix: shardPrefix(prefix, 'mixed-old', 1) })
  onTestFinished(() => flows.close())
  const old = open('mixed-old', 2)
  await old.queue.waitUntilReady()
  await old.queue.add('delayed', { n: 0 }, { delay: 700 })
  await old.queue.add('delayed', { n: 1 }, { delay: 700, group: { id: 'a' } })
  await old.queue.add('prioritized', { n: 0 }, { priority: 5 })
  const child = (n: number) => ({ name: 'child', data: { n }, queueName: 'mixed-old' })
  await flows.add({ name: 'parent', data: { n: 0 }, queueName: 'mixed-old', children: [child(0), child(1)] })
  const scheduled = (queue: ShardedQueue, from: string) =>
    queue.queueOfGroup('a').then((shard) => shard.upsertJobScheduler('ticks', { every: 100 }, ticksOf(from)))
  await scheduled(old.queue, 'old')
  old.work()
  await expect.poll(() => ended.filter((one) => one === 'tick of old').length).toBeGreaterThan(1)
  // The steps of docs/sharding.md.
  const renewed = open('mixed-new', 5)
  await renewed.queue.pause({ by: 'test', reason: 'the old queue is not empty yet' })
  renewed.work()
  await renewed.queue.add('prioritized', { n: 1 }, { priority: 5 })
  await scheduled(renewed.queue, 'new')
  for (const shard of old.queue.each) {
    for (const { key } of await shard.getJobSchedulers()) await shard.removeJobScheduler(key)
  }
  const left = async () => Object.values(await old.queue.getJobCounts(...STATES))
  await expect.poll(left, { timeout: 10_000 }).toEqual([0, 0, 0, 0, 0])
  const before = ended.filter((one) => !one.startsWith('tick'))
  expect(before.toSorted()).toEqual(['child 0', 'child 1', 'delayed 0', 'delayed 1', 'parent 0', 'prioritized 0'])
  expect(ended).not.toContain('tick of new')
  await sleep((1000 * BURST) / RATE)
  await renewed.queue.resume()
  await expect.poll(() => ended.includes('prioritized 1') && ended.includes('tick of new')).toBe(true)
  const slots = [await shop.slotsUs(old.queue), await shop.slotsUs(renewed.queue)].flat()
  expect(worstWindow(slots, { rate: SHAPE.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  expect(await old.queue.count()).toBe(0)
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
}, 30_000)

/** Jobs of a scheduler that have a group. */
function ticksOf(from: string) {
  return { name: 'tick', data: { from }, opts: { group: { id: 'a' } } as never }
}

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
