import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, type Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Each job starts at the slot that it was granted first, however busy the machine is. */
const ON_TIME = { maxLatenessMs: 60_000 }

const of = (id: string, count: number, opts: object = {}) =>
  Array.from({ length: count }, () => ({ name: id, data: {}, opts: { group: { id }, ...opts } }))

const bySlot = (departures: readonly Seen[]) =>
  [...departures].sort((one, other) => one.departureTimeUs - other.departureTimeUs).map(({ name }) => name)

/**
 * The largest difference between what two groups got, each over its weight, in any stretch of departures. Start-time fair
 * queueing bounds it by the sum of their largest costs over their weights.
 */
function unfairness(order: readonly string[], weights: Readonly<Record<string, number>>, cost = 1): number {
  const names = Object.keys(weights)
  let worst = 0
  for (const one of names) {
    for (const other of names) {
      let [sum, least] = [0, 0]
      for (const name of order) {
        if (name === one) sum += cost / (weights[one] as number)
        if (name === other) sum -= cost / (weights[other] as number)
        least = Math.min(least, sum)
        worst = Math.max(worst, sum - least)
      }
    }
  }
  return worst
}

test('groups with jobs share in proportion to their weights, over two workers', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: {}, ...ON_TIME })
  const weights = { one: 1, two: 2, four: 4 }
  for (const [id, weight] of Object.entries(weights)) {
    await queue.setGroup(id, { weight }, { by: 'test', reason: 'weights' })
    await queue.addBulk(of(id, 60 * weight))
  }
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 20 }))
  const departures = await departuresOf(...workers).reach(420)
  // Up to here all three have jobs.
  const order = bySlot(departures).slice(0, 350)
  expect(unfairness(order, weights)).toBeLessThanOrEqual(2)
  expect(order.filter((name) => name === 'four').length).toBeGreaterThanOrEqual(199)
})

test('costs count: a group whose jobs cost twice as much starts half as many', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 2, groups: {}, ...ON_TIME })
  await queue.addBulk([...of('cheap', 120), ...of('dear', 60, { cost: 2 })])
  const departures = await departuresOf(shop.worker(queue, async () => {}, { concurrency: 20 })).reach(180)
  const order = bySlot(departures).slice(0, 150)
  expect(unfairness(order, { cheap: 1, dear: 0.5 })).toBeLessThanOrEqual(1 + 2)
})

test('a tenant that always keeps one job waiting gets its share and no more', async () => {
  const queue = shop.queue({ rate: '500/s', groups: {}, ...ON_TIME })
  await queue.addBulk([...of('big', 150), ...of('keeps', 1)])
  const worker = shop.worker(queue, async ({ name }) => {
    if (name === 'keeps') await queue.addBulk(of('keeps', 1))
  })
  const departed = departuresOf(worker)
  await departed.until((all) => all.filter(({ name }) => name === 'big').length === 150)
  const kept = departed.all.filter(({ name }) => name === 'keeps').length
  expect(kept).toBeLessThanOrEqual(152)
  expect(kept).toBeGreaterThan(50)
})

test('a new group waits for at most one job of each other, whatever its name', async () => {
  const queue = shop.queue({ rate: '500/s', groups: {}, ...ON_TIME })
  const others = Array.from({ length: 20 }, (_, i) => `m${i}`)
  for (const id of others) await queue.addBulk(of(id, 10))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 4 }))
  await departed.reach(30)
  await queue.addBulk([...of('zzz', 1), ...of('aaa', 1)])
  const before = departed.all.length
  const all = await departed.until((seen) => ['zzz', 'aaa'].every((id) => seen.some(({ name }) => name === id)))
  const order = bySlot(all)
  // Jobs granted before the two came may still be on their way.
  for (const id of ['zzz', 'aaa']) expect(order.indexOf(id) - before).toBeLessThanOrEqual(others.length + 2 + 30)
  expect(order.indexOf('zzz')).toBeLessThan(order.indexOf('aaa'))
})
