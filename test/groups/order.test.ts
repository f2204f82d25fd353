import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

function bulk(group: string, count: number, opts: object = {}) {
  return Array.from({ length: count }, (_, i) => ({
    name: `${group}${i}`,
    data: {},
    opts: { group: { id: group }, ...opts },
  }))
}

test('a tenant with one job is served next to one with a hundred', async () => {
  const queue = shop.queue({ rate: '200/s', groups: {}, maxLatenessMs: 60_000 })
  await queue.addBulk(bulk('big', 100))
  await queue.addBulk(bulk('small', 1))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  const departures = await departed.reach(101)
  expect(departures.findIndex(({ name }) => name === 'small0')).toBeLessThanOrEqual(2)
  expect(departures.filter(({ name }) => name.startsWith('big')).map(({ name }) => name)).toEqual(
    Array.from({ length: 100 }, (_, i) => `big${i}`),
  )
})
