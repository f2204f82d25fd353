import { Queue } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, settled, Workshop } from '../worker/support.ts'

// Workers that sleep because every group is held hear of jobs that stock clients add, by BullMQ's marker alone.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

/** Workers asleep until the one group with jobs may go, in an hour. */
async function asleep(options: object = {}) {
  const queue = shop.queue({ groups: {} })
  await queue.setGroup('held', { rate: '1/hour' }, { by: 'test', reason: 'test' })
  await queue.addBulk([1, 2].map(() => ({ name: 'held', data: {}, opts: { group: { id: 'held' } } })))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, options))
  const calls = workers.map((worker) => callsOf(worker))
  const departed = departuresOf(...workers)
  await departed.reach(1)
  // The end of the job may have said until when they sleep: then a worker asks because it is told of news.
  await settled(queue, redis.client(), ...calls)
  await Promise.all(calls.map((one) => one.until((all) => all.at(-1)?.reply.stop === 'closed')))
  await settled(queue, redis.client(), ...calls)
  const asked = () => calls.reduce((sum, { all }) => sum + all.length, 0)
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  return { queue, stock, departed, calls, asked }
}

test.each([
  ['of another group', { group: { id: 'free' } }],
  ['of another group with a priority', { group: { id: 'free' }, priority: 3 }],
  ['without a group', {}],
  ['that is soon due', { group: { id: 'free' }, delay: 300 }],
])(
  'a job of a stock producer %s starts at once while all groups are held',
  async (_, options) => {
    const { stock, departed } = await asleep()
    await stock.add('free', {}, options as object)
    const [, second] = await departed.reach(2)
    expect(second?.name).toBe('free')
  },
  // Not woken, they sleep for an hour.
  300_000,
)

test('jobs of the held group wake no worker', async () => {
  const { queue, asked, calls } = await asleep()
  const before = asked()
  for (let i = 0; i < 5; i++) await queue.add('held', {}, { group: { id: 'held' } })
  await queue.addBulk([1, 2].map(() => ({ name: 'held', data: {}, opts: { group: { id: 'held' } } })))
  await settled(queue, redis.client(), ...calls)
  // Each was called once to see that it listens.
  expect(asked()).toBe(before + calls.length)
})
