import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, excess, jobs, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('a queue for each group: each group has a rate of its own, and a full one holds none of the others up', async () => {
  const shape = { rate: '50/s', capacity: 20 }
  const groups = ['acme', 'globex'].map((group) => shop.queueNamed(`mails-${group}`, shape))
  await groups[0]!.addBulk(jobs(20))
  await expect(groups[0]!.add('one more', {})).rejects.toThrow('is full')
  await groups[1]!.addBulk(jobs(5))
  const departed = groups.map((queue) => departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 })))
  await departed[1]!.reach(5)
  expect(departed[0]!.all.length).toBeLessThan(20)
  for (const { all } of departed) {
    expect(
      excess(
        all.map(({ departureTimeUs }) => departureTimeUs),
        20_000,
      ),
    ).toBeLessThanOrEqual(rounding(20_000))
  }
})

test('the local limit of one group is changed at run time, as with setGroupConcurrency or a group’s rate', async () => {
  const queue = shop.queueNamed('mails-initech', { rate: '1/h', concurrency: 1 })
  await queue.addBulk(jobs(3))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 2 }))
  await departed.reach(1)
  await queue.setShape({ rate: '100/s', concurrency: 2 }, { by: 'ops', reason: 'a bigger plan' })
  await departed.reach(3)
})

test('pausing one group leaves the others alone', async () => {
  const [held, free] = ['held', 'free'].map((group) => shop.queueNamed(`mails-${group}`, { rate: '100/s' }))
  await held!.addBulk(jobs(3))
  await free!.addBulk(jobs(3))
  await held!.pauseUntil(Date.now() + 3_600_000, 'its server asked for a break')
  const departed = departuresOf(
    shop.worker(held!, async () => {}),
    shop.worker(free!, async () => {}),
  )
  await departed.reach(3)
  expect(await held!.getWaitingCount()).toBe(3)
})
