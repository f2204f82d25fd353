import { expect, onTestFinished, test } from 'vitest'
import { QueueFullError, ShapedQueue, ShapedQueueEvents, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const base = { connection: redis.connection, prefix: redis.prefix }

async function open(name: string, shape: object) {
  const events = new ShapedQueueEvents(name, { ...base, lastEventId: '0' })
  onTestFinished(() => events.close())
  await events.waitUntilReady()
  const queue = new ShapedQueue(name, { ...base, shape })
  onTestFinished(() => queue.close())
  return { events, queue }
}

test('a refusal says how many there were, as text', async () => {
  const { events, queue } = await open('full', { capacity: 1 })
  const heard = new Promise((resolve) => events.once('refused', resolve))
  await queue.add('first', {})
  await expect(queue.add('second', {})).rejects.toThrow(QueueFullError)
  expect(await heard).toEqual({ count: '1', depth: '1', capacity: '1' })
})

test('a job that overflow drops is named', async () => {
  const { events, queue } = await open('over', { capacity: 1, overflow: 'drop-oldest' })
  const heard = new Promise((resolve) => events.once('dropped', resolve))
  const { id } = await queue.add('first', {})
  await queue.add('second', {})
  expect(await heard).toEqual({ jobId: id, overflow: 'drop-oldest' })
})

test('a job that expires is named with its deadline, and a listener that is off hears nothing', async () => {
  const { events, queue } = await open('late', { rate: '10/s' })
  const off = () => expect.unreachable()
  events.on('expired', off).off('expired', off)
  const heard = new Promise((resolve) => events.once('expired', resolve))
  await queue.waitUntilReady()
  const mustStartBefore = Date.now() + 60_000
  const { id } = await queue.add('late', {}, { mustStartBefore })
  await queue.pauseUntil(mustStartBefore + 10, { reason: 'so that it expires' })
  const worker = new ShapedWorker('late', async () => undefined, base)
  worker.on('error', () => undefined)
  onTestFinished(() => worker.close())
  expect(await heard).toEqual({ jobId: id, deadline: String(mustStartBefore) })
})
