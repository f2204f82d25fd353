import type { Job } from 'bullmq'
import { expect, test, vi } from 'vitest'
import { useSluice } from '../../packages/cli/test/sluice-process.ts'
import type { Shape } from '../../src/index.ts'
import { shardPrefix } from '../../src/redis/shards.ts'
import type { ShardedWorker } from '../../src/sharding/index.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { useRedis } from '../support/redis.ts'
import { ShardShop } from './support/shop.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const sluice = useSluice(redis)
const RATE = 40
const BURST = 4
const SHAPE: Shape = { rate: `${RATE}/s`, burst: BURST, capacity: 500, groups: {}, audit: 1000 }
const JOBS = 30

test('killed wherever, a move goes on when it is run again, and ends as if it had not been', async () => {
  const shop = new ShardShop({ connection, prefix })
  const ran: string[] = []
  const process = async ({ name, id, queueName, data }: Job) => {
    ran.push(name === 'tick' ? `${id?.split(':').at(-1)}` : `${queueName} ${data.n}`)
  }
  const workers: ShardedWorker[] = []
  const open = (name: string, shards: number) => {
    const queue = shop.queue(name, { shards, shape: SHAPE })
    workers.push(shop.worker(name, process, { shards, concurrency: 10, shape: SHAPE }))
    return queue
  }
  const [old, renewed] = [open('old', 2), open('new', 3)]
  await Promise.all([old.waitUntilReady(), renewed.waitUntilReady()])
  const group = { id: 'a' }
  const shard = await old.queueOfGroup('a')
  await shard.setGroup('a', { weight: 3 }, { by: 'ops', reason: 'enterprise' })
  await shard.upsertJobScheduler('ticks', { every: 300 }, { name: 'tick', opts: { group } as never })
  // One shard takes all of them or none: until it has been leased places for them, it has one.
  const toAdd = Array.from({ length: JOBS }, (_, n) => ({ name: 'job', data: { n }, opts: { group } }))
  await vi.waitFor(() => old.addBulk(toAdd), 60_000)
  const key = `${shardPrefix(prefix, 'new', 0)}:new:meta:move`
  const client = redis.client()
  const recorded = () => client.hgetall(key)
  const begin = () => sluice.start(['shards', 'move', 'old', 'new', '--reason', 'three shards'])
  const points: readonly ((stderr: string) => Promise<unknown>)[] = [
    async () => (await recorded())['begun:1'],
    async (stderr) => stderr.includes('old: '),
    async (stderr) => stderr.includes('old is empty'),
  ]
  for (const isThere of points) {
    const running = begin()
    let code: unknown
    void running.ended.then((ended) => {
      code = ended
    })
    await expect
      .poll(async () => code ?? (await isThere(running.stderr)), { interval: 1, timeout: 60_000 })
      .toBeTruthy()
    running.child.kill('SIGKILL')
    await running.ended
    if (isThere === points[0]) await renewed.add('job', { n: 0 })
  }
  const last = await begin().ended
  expect(last).toMatchObject({ code: 0, stdout: expect.stringContaining('new is resumed') })
  await expect.poll(() => ran.includes('new 0')).toBe(true)
  const jobs = ran.filter((one) => one.includes(' '))
  expect(jobs.toSorted()).toEqual([...Array.from({ length: JOBS }, (_, n) => `old ${n}`), 'new 0'].toSorted())
  const ticks = ran.filter((one) => !one.includes(' '))
  expect(new Set(ticks).size).toBe(ticks.length)
  const there = await renewed.queueOfGroup('a')
  await expect.poll(async () => (await there.getJobScheduler('ticks'))?.every).toBe(300)
  expect((await there.getGroup('a')).overrides).toMatchObject({ weight: { value: 3, by: 'ops' } })
  expect((await renewed.meter()).each.map(({ paused }) => paused)).toEqual([false, false, false])
  const slots = [await shop.slotsUs(old), await shop.slotsUs(renewed)].flat()
  expect(worstWindow(slots, { rate: `${RATE}/s`, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  await Promise.all(workers.map((worker) => worker.close()))
  for (const queue of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})
