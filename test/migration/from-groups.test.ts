import { Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { GroupFullError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const of = (id: string, count: number) =>
  Array.from({ length: count }, () => ({ name: id, data: {}, opts: { group: { id } } }))

test('limit, concurrency and maxSize of groups are fields of the shape', async () => {
  const queue = shop.queue({ groups: { rate: { limit: 50, period: 1000 }, concurrency: 2, capacity: 20 } })
  await queue.addBulk(of('acme', 20))
  await expect(queue.add('acme', {}, { group: { id: 'acme' } })).rejects.toBeInstanceOf(GroupFullError)
  await queue.addBulk(of('globex', 5))
  const departures = await departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 })).reach(25)
  for (const group of ['acme', 'globex']) {
    const slots = departures.filter(({ name }) => name === group).map(({ departureTimeUs }) => departureTimeUs)
    expect(excess(slots, 20_000)).toBeLessThanOrEqual(rounding(20_000))
  }
})

test('setGroupConcurrency and setGroupRateLimit become setGroup', async () => {
  const queue = shop.queue({ groups: { rate: '1/h', concurrency: 1 } })
  await queue.addBulk(of('initech', 3))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 2 }))
  await departed.reach(1)
  await queue.setGroup('initech', { rate: '100/s', concurrency: 2 }, { by: 'ops', reason: 'a bigger plan' })
  await departed.reach(3)
})

test('pauseGroup and resumeGroup are the same', async () => {
  const queue = shop.queue({ rate: '100/s', groups: {} })
  await queue.addBulk([...of('held', 3), ...of('free', 3)])
  await queue.pauseGroup('held', { by: 'ops', reason: 'its server asked for a break' })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(3)
  expect(departed.all.map(({ name }) => name)).toEqual(['free', 'free', 'free'])
  expect(await queue.getGroupJobsCount('held')).toBe(3)
  await queue.resumeGroup('held')
  await departed.reach(6)
})

test('rateLimitGroup and RateLimitError are the same', async () => {
  const queue = shop.queue({ groups: {} })
  let limited = 0
  const worker = shop.worker(queue, async (job) => {
    if (job.name !== 'held' || limited > 0) return
    limited += 1
    await worker.rateLimitGroup(job, 1000)
    throw Worker.RateLimitError()
  })
  const completed = eventsOf('completed', worker)
  await queue.addBulk([...of('held', 2), ...of('free', 2)])
  await completed.reach(4)
  expect(completed.all.map(({ name }) => name)).toEqual(['free', 'free', 'held', 'held'])
})

test("jobs without a group go first with ungrouped: 'first'", async () => {
  const queue = shop.queue({ rate: '200/s', groups: { ungrouped: 'first' } })
  await queue.addBulk([...of('acme', 1), { name: 'none', data: {} }])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect((await departed.reach(2)).map(({ name }) => name)).toEqual(['none', 'acme'])
})
