import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Inspector } from '../../src/inspect/index.ts'
import { BAND, priorityHeads } from '../../src/inspect/priorities.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { writesOn } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const writesOf = (run: () => Promise<unknown>) => writesOn(client, run)

const spread = fc.oneof(fc.integer({ min: 1, max: 80 }), fc.integer({ min: 1, max: 2 ** 21 }))
const some = fc.uniqueArray(spread, { maxLength: 120 })
/** Those that lie closely together far away are the hardest to find. */
const cluster = fc
  .tuple(fc.integer({ min: 1, max: 2 ** 21 - 600 }), fc.uniqueArray(fc.nat(500), { maxLength: 90 }))
  .map(([from, offsets]) => offsets.map((offset) => from + offset))

test('the first job of each of the 64 least priorities is found in at most eight round trips', async () => {
  const set = `${redis.prefix}:set`
  await fc.assert(
    fc.asyncProperty(some, cluster, async (one, other) => {
      const all = [...new Set([...one, ...other])].sort((a, b) => a - b)
      await client.del(set)
      const members = all.flatMap((priority) => [1, 2].map((n) => [priority * BAND + n, `${priority}-${n}`]))
      if (members.length > 0) await client.zadd(set, ...members.flat())
      let heads: unknown
      const trips = await writesOf(async () => {
        heads = await priorityHeads(client, set, { least: 0, most: 64 })
      })
      expect(heads).toEqual(all.slice(0, 64).map((priority) => ({ priority, id: `${priority}-1` })))
      expect(trips).toBeLessThanOrEqual(8)
    }),
    { numRuns: 60 },
  )
})

test('the state of a queue whose jobs age takes as many round trips, however many priorities there are', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 100, priorityAgeingMs: 60_000 })
  const inspector = new Inspector({ connection: client, prefix: redis.prefix })
  const read = () => inspector.status([queue.name])
  await queue.addBulk([1, 2].map((priority) => ({ name: 'job', data: {}, opts: { priority } })))
  await read()
  const few = await writesOf(read)
  const more = Array.from({ length: 18 }, (_, i) => ({ name: 'job', data: {}, opts: { priority: 3 + i } }))
  await queue.addBulk([...more, { name: 'job', data: {}, opts: {} }])
  expect(await writesOf(read)).toBe(few)
  expect(few).toBeLessThanOrEqual(6)
})
