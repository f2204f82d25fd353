import type { Redis } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { expect, onTestFinished, test } from 'vitest'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection } from './support/own-redis.ts'
import { asks, ends } from './support/scripts.ts'

const redis = useRedis(import.meta.url)

test('clients of ioredis 5 carry queue and worker, also over a connection that is lost', async () => {
  const { prefix } = redis
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  // BullMQ's types name the ioredis that it was built with; at run time it takes any that works alike.
  const client = () => {
    const made = new Redis5({ ...quickConnection(proxy.url), connectionName: prefix }) as unknown as Redis
    made.on('error', () => {})
    onTestFinished(() => made.disconnect())
    return made
  }
  const fleet = new Fleet()
  const queue = fleet.queue('five', { connection: client(), prefix, shape: { rate: '200/s', burst: 5, capacity: 50 } })
  await queue.waitUntilReady()
  fleet.worker('five', { connection: client(), prefix, concurrency: 5 })
  const dropped = [proxy.dropReplyOf(asks), proxy.dropReplyOf(ends)]
  const ids = idsOf(await queue.addBulk(Array.from({ length: 40 }, () => ({ name: 'job', data: {} }))))
  await fleet.until(() => fleet.completed.length === ids.length)
  await Promise.all(dropped)

  expect([...fleet.completed].sort()).toEqual([...ids].sort())
  expect(fleet.departures).toHaveLength(ids.length)
  expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
  expect(worstExcess(fleet.slotsUs, { intervalUs: 5000, burst: 5 })).toBeLessThanOrEqual(0)
  await queue.addBulk(Array.from({ length: 50 }, () => ({ name: 'job', data: {}, opts: { delay: 60_000 } })))
  await expect(queue.add('job', {})).rejects.toThrow('is full (50 of 50)')
})
