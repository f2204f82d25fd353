import { QueueKeys } from 'bullmq'
import { expect, test } from 'vitest'
import { checkJobId } from '../../src/admission/job-options.ts'
import { InvalidJobIdError, ShapedFlowProducer } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, ownKeys, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const GENERATED = /^[0-9A-Z]{14,}$/

test.each(Object.keys(new QueueKeys('bull').getKeys('q')).filter((key) => key !== ''))(
  "BullMQ's own key '%s' is no job id",
  (key) => {
    expect(() => checkJobId(key)).toThrow(InvalidJobIdError)
  },
)

test.each(['waiting', 'dn', 'metrics', 'priority'])("nor is '%s'", (key) => {
  expect(() => checkJobId(key)).toThrow(InvalidJobIdError)
})

test('a refused id is told why, wherever a job comes in', async () => {
  const queue = shop.queue({ capacity: 5 })
  const { connection, prefix } = redis
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const child = { name: 'job', queueName: queue.name, opts: { jobId: 'a:b' } }
  const attempts = [
    () => queue.add('job', {}, { jobId: 'a:b' }),
    () => queue.offer('job', {}, { jobId: 'a:b' }),
    () => queue.addWhenFree('job', {}, { jobId: 'a:b' }),
    () => queue.addBulk([...many(1), { name: 'job', data: {}, opts: { jobId: 'a:b' } }]),
    () => flows.add({ name: 'job', queueName: queue.name, children: [child] }),
    () => flows.addBulk([child]),
  ]
  for (const attempt of attempts) {
    const error = await rejection(attempt())
    expect(error).toBeInstanceOf(InvalidJobIdError)
    expect(error.message).toBe(
      "job id 'a:b' must not contain ':', which separates the parts of BullMQ's keys; use another character",
    )
  }
  expect((await rejection(queue.add('job', {}, { jobId: 'active' }))).message).toBe(
    "job id 'active' is one of BullMQ's own key names: it would break the queue; use another id",
  )
  expect(await queue.count()).toBe(0)
})

test.each([{ capacity: 5 }, { rate: '50/s' }, {}])('an empty id is none, as in BullMQ: %j', async (shape) => {
  const queue = shop.queue(shape)
  const { connection, prefix } = redis
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const job = { name: 'job', data: {}, opts: { jobId: '' } }
  const { ids } = await queue.addOnce([job], { key: 'k', fingerprint: 'f' })
  const added = [
    await queue.add('job', {}, { jobId: '' }),
    ...(await queue.addBulk([job, job])),
    (await flows.add({ ...job, queueName: queue.name })).job,
  ]
  const all = [...ids, ...added.map(({ id }) => id)]
  expect(all.every((id) => typeof id === 'string' && id.length > 0)).toBe(true)
  expect(new Set(all).size).toBe(5)
  expect(await queue.count()).toBe(5)
})

test('ids of schedulers pass', async () => {
  const queue = shop.queue({ capacity: 5 })
  checkJobId('repeat:daily:1700000000000')
  const job = await queue.upsertJobScheduler('daily', { every: 86_400_000 })
  expect(job.id).toMatch(/^repeat:daily:\d+$/)
})

test('a given id stays what it is', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 5 })
  const id = 'Order_42 – späť/ü'
  expect((await queue.add('job', { n: 1 }, { jobId: id })).id).toBe(id)
  expect(await queue.getJob(id)).toMatchObject({ id, data: { n: 1 } })
  expect((await new Taker(shop, queue).take()).id).toBe(id)
})

test('a queue with a capacity makes ids that a repeated command can be told by', async () => {
  const queue = shop.queue({ capacity: 5 })
  const [one] = [await queue.add('job', { n: 1 })]
  const bulk = await queue.addBulk(many(2))
  const offer = await queue.offer('job', { n: 4 })
  for (const job of [one, ...bulk, ...(offer.accepted ? [offer.job] : [])]) {
    expect(job.id).toMatch(GENERATED)
    expect((await queue.getJob(job.id!))?.data).toEqual(job.data)
  }
  expect(await queue.count()).toBe(4)
})

test('also a producer that does not declare it, from its first job on', async () => {
  const queue = shop.queue({ capacity: 5 })
  await queue.waitUntilReady()
  const other = shop.queueNamed(queue.name)
  expect((await other.add('job', {})).id).toMatch(GENERATED)
})

test('nor does a queue need a capacity for such ids', async () => {
  const queue = shop.queue({ rate: '50/s' })
  expect((await queue.add('job', {})).id).toMatch(GENERATED)
  for (const { id } of await queue.addBulk(many(2))) expect(id).toMatch(GENERATED)
})

test("a queue without a shape keeps BullMQ's numbers", async () => {
  const unshaped = shop.queue()
  expect((await unshaped.add('job', {})).id).toBe('1')
  expect((await unshaped.addBulk(many(2))).map(({ id }) => id)).toEqual(['2', '3'])
  expect(await ownKeys(unshaped)).toEqual([])
})
