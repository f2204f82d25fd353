import { expect, test } from 'vitest'
import { refusalResponse } from '../../packages/gateway/src/responses/refusal.ts'
import { CannotStartInTimeError, ScheduleClosedError, ShapedFlowProducer, WaitTimeoutError } from '../../src/index.ts'
import { many } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { closedFor } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Of what is refused until then. */
async function refusedUntil(opensAt: Date, add: Promise<unknown>): Promise<ScheduleClosedError> {
  const error = await add.then(
    () => undefined,
    (refusal: unknown) => refusal,
  )
  expect(error).toBeInstanceOf(ScheduleClosedError)
  const closed = error as ScheduleClosedError
  expect(closed).toMatchObject({ opensAt, startsAt: opensAt })
  expect(Math.abs(closed.retryAfterMs - (opensAt.getTime() - Date.now()))).toBeLessThan(1000)
  return closed
}

test('while the schedule of a queue is closed, each way in is refused with the time of opening', async () => {
  const { rate, opensAt } = closedFor(3)
  const queue = shop.queue({ rate, onClosed: 'refuse' })
  const error = await refusedUntil(opensAt, queue.add('job', {}))
  expect(error).toBeInstanceOf(CannotStartInTimeError)
  expect(error.message).toContain(`queue "${queue.name}" is closed until ${opensAt.toISOString()}: try again in `)
  for (const count of [2, 300]) await refusedUntil(opensAt, queue.addBulk(many(count)))
  expect(await queue.offer('job', {})).toMatchObject({ accepted: false, opensAt, depth: 0 })
  await expect(queue.addWhenFree('job', {}, { timeoutMs: 20 })).rejects.toThrow(WaitTimeoutError)
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  await refusedUntil(
    opensAt,
    flows.add({ name: 'parent', queueName: shop.queue({}).name, children: [{ name: 'child', queueName: queue.name }] }),
  )
  const at = { policyName: 'jobs', instance: '/', forms: [], clockMs: Date.now() } as never
  const response = refusalResponse(error, at)
  expect(response?.status).toBe(429)
  expect(JSON.stringify(response)).toContain(`The queue is closed until ${opensAt.toISOString()}.`)
  expect(await queue.getJobCounts('waiting', 'delayed')).toMatchObject({ waiting: 0, delayed: 0 })

  // What comes later, and what a scheduler brings, waits.
  await queue.add('job', {}, { delay: 4 * 3_600_000 })
  await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'tick' })
  expect((await queue.meter()).depth).toBe(2)
  await queue.setShape({ onClosed: 'wait' }, { by: 'test', reason: 'accept' })
  expect(await queue.offer('job', {})).toMatchObject({ accepted: true })
})

test('a group with a closed schedule of its own is refused alone; shadow mode only counts', async () => {
  const { rate, opensAt } = closedFor(2)
  const queue = shop.queue({ groups: {}, onClosed: 'refuse' })
  await queue.setGroup('acme', { rate }, { by: 'test', reason: 'quiet hours' })
  const of = (id: string) => ({ group: { id } })
  const error = await refusedUntil(opensAt, queue.add('job', {}, of('acme')))
  expect(error.groupId).toBe('acme')
  expect(error.message).toContain(`group "acme" of queue "${queue.name}" is closed until`)
  await queue.add('job', {}, of('other'))
  const bulk = ['other', 'acme'].map((id) => ({ name: 'job', data: {}, opts: of(id) }))
  await refusedUntil(opensAt, queue.addBulk(bulk))
  expect((await queue.meter()).depth).toBe(1)
  await queue.setShape({ mode: 'shadow' }, { by: 'test', reason: 'try' })
  await queue.add('job', {}, of('acme'))
  expect(await redis.client().hget(queue.toKey('meta:meter'), 'shadowRefused')).toBe('1')
})

test('a closed limit refuses the jobs that it counts, also where only the value of one of its keys is closed', async () => {
  const { rate, opensAt } = closedFor(2)
  const limits = [
    { name: 'calls', unit: 'calls', rate },
    { name: 'model', by: 'model', rate: '50/s' },
  ]
  const queue = shop.queue({ limits, onClosed: 'refuse' })
  const error = await refusedUntil(opensAt, queue.add('job', {}))
  expect(error).toMatchObject({ limitName: 'calls', groupId: undefined })
  expect(error.message).toContain(`limit "calls" of queue "${queue.name}" is closed until`)
  const free = { costs: { calls: 0 } }
  await queue.add('job', {}, free)
  const later = closedFor(3)
  await queue.setLimit('model', 'a', { rate: later.rate }, { by: 'test', reason: 'quiet hours' })
  const of = (model: string) => ({ ...free, keys: { model } })
  expect(await refusedUntil(later.opensAt, queue.add('job', {}, of('a')))).toMatchObject({ limitName: 'model' })
  await queue.add('job', {}, of('b'))
  const bulk = ['a', 'b'].map((model) => ({ name: 'job', data: {}, opts: of(model) }))
  await refusedUntil(later.opensAt, queue.addBulk(bulk))
  // Both must be open.
  await refusedUntil(later.opensAt, queue.add('job', {}, { keys: { model: 'a' } }))
  const atOnce = await Promise.allSettled(Array.from({ length: 20 }, () => queue.add('job', {}, of('a'))))
  expect(atOnce.every(({ status }) => status === 'rejected')).toBe(true)
  expect((await queue.meter()).depth).toBe(2)
})

test('adds at once are refused like one while the schedule of the queue is closed', async () => {
  const { rate } = closedFor(2)
  const queue = shop.queue({ rate, onClosed: 'refuse' })
  const atOnce = await Promise.allSettled(Array.from({ length: 20 }, () => queue.add('job', {})))
  expect(atOnce.every(({ status }) => status === 'rejected')).toBe(true)
})

test('a fixed rate refuses nothing, nor does a schedule that is open', async () => {
  for (const rate of ['50/s', { schedule: [{ rate: '50/s' }] }]) {
    const queue = shop.queue({ rate, onClosed: 'refuse' })
    expect(await queue.offer('job', {})).toMatchObject({ accepted: true })
  }
})
