import { Queue, Worker } from 'bullmq'
import { describe, expect, test } from 'vitest'
import type { DepartureReply } from '../../src/departure/reply.ts'
import { createShapedBackend } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

describe('the end of a job tells a worker why it got no other', () => {
  async function stopAfter(name: string, prepare: (queue: Queue) => Promise<unknown>): Promise<DepartureReply> {
    const { connection, prefix } = shop
    const queue = shop.keep(new Queue(name, { connection, prefix }))
    const worker = shop.keep(new Worker(name, null, { connection, prefix }, createShapedBackend))
    const replies: DepartureReply[] = []
    const looping = {
      id: worker.id,
      allowUnshaped: true,
      isEnding: () => true,
      keepLock: () => undefined,
    }
    worker.getBackend().exchangeFor(looping).loop = {
      horizonUs: 0,
      running: 1,
      nowMs: 0,
      fetchesOnFinish: true,
      exchanged: ({ reply }) => replies.push(reply as DepartureReply),
    }
    await queue.addBulk(Array.from({ length: 2 }, () => ({ name: 'job', data: {} })))
    const job = await worker.getNextJob('token')
    await prepare(queue)
    await job!.moveToCompleted('done', 'token')
    expect(replies.length).toBe(1)
    return replies[0]!
  }

  test("BullMQ's own limit: for so long it need not ask", async () => {
    const reply = await stopAfter('limited', async (queue) => {
      await queue.setGlobalRateLimit(1, 60_000)
      await queue.rateLimit(60_000)
    })
    expect(reply.stop).toBe('limited')
    expect(reply.limitedMs).toBeGreaterThan(50_000)
  })

  test('a pause', async () => {
    expect((await stopAfter('paused', (queue) => queue.pause())).stop).toBe('halted')
  })

  test('no job waits', async () => {
    expect((await stopAfter('empty', (queue) => queue.drain())).stop).toBe('empty')
  })
})

test('a manual rate limit shows in getRateLimitTtl, and removeRateLimitKey ends it', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.rateLimit(60_000)
  // Another process, with classes of BullMQ: it has not heard of the shape.
  const { connection, prefix } = shop
  const other = shop.keep(new Queue(queue.name, { connection, prefix }, createShapedBackend))
  const leftMs = await other.getRateLimitTtl()
  expect(leftMs).toBeGreaterThan(50_000)
  expect(leftMs).toBeLessThanOrEqual(60_000)
  expect(await other.removeRateLimitKey()).toBe(1)
  expect(await other.getRateLimitTtl()).toBe(-2)
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('removeRateLimitKey leaves a pause that was asked for otherwise', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.pauseUntil(new Date(Date.now() + 60_000), { reason: 'maintenance' })
  expect(await queue.removeRateLimitKey()).toBe(0)
  expect(await queue.getRateLimitTtl()).toBeGreaterThan(50_000)
})

test('a job that is retried later answers as BullMQ does when no other waits', async () => {
  const { connection, prefix } = shop
  const queue = shop.keep(new Queue('retried', { connection, prefix }, createShapedBackend))
  const worker = shop.keep(new Worker(queue.name, null, { connection, prefix }, createShapedBackend))
  await queue.add('job', {}, { attempts: 2, backoff: 60_000 })
  const job = await worker.getNextJob('token')
  expect(await job!.moveToFailed(new Error('later'), 'token', true)).toEqual([])
})
