import { describe, expect, test } from 'vitest'
import { InvalidCostError } from '../../src/index.ts'
import { ALGORITHMS } from '../../src/limits/definition.ts'
import { rejection, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

describe.each(ALGORITHMS)('a limit of %s', (algorithm) => {
  const terms = algorithm === 'concurrency' ? { concurrency: 1 } : { rate: '1/day' as const }
  const limits = [{ name: 'tokens', unit: 'tokens', algorithm, ...terms }]

  test('does not hold what takes nothing of it, and is not charged for that', async () => {
    const queue = shop.queue({ limits })
    const taker = new Taker(shop, queue)
    const none = { costs: { tokens: 0 } }
    await queue.addBulk([1, 2, 3].map((n) => ({ name: `free-${n}`, data: {}, opts: none })))
    for (let n = 1; n <= 3; n++) expect((await taker.take()).name).toBe(`free-${n}`)
    await queue.add('first', {}, { costs: { tokens: 1 } })
    const first = await taker.take()
    expect(first.name).toBe('first')
    await queue.add('free-4', {}, none)
    await queue.add('second', {}, { costs: { tokens: 1 } })
    expect((await taker.take()).name).toBe('free-4')
    expect(await taker.tryTake()).toBeUndefined()
  })

  test('lets what takes nothing of it leave together with what ends', async () => {
    const queue = shop.queue({ limits })
    await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'free', data: {}, opts: { costs: { tokens: 0 } } })))
    await departuresOf(shop.worker(queue, async () => undefined, { concurrency: 4 })).reach(20)
  })
})

test.each([
  [-1, 'costs.tokens must be a number from 0 to 1000000000; got -1'],
  [Number.NaN, 'costs.tokens must be a number from 0 to 1000000000; got NaN'],
  ['2', 'costs.tokens must be a number from 0 to 1000000000; got "2"'],
])('a cost of %j is refused by name', async (cost, message) => {
  const error = await rejection(shop.queue().add('job', {}, { costs: { tokens: cost as number } }))
  expect(error).toBeInstanceOf(InvalidCostError)
  expect(error.message).toBe(message)
})

test('the cost of the rate is still above 0', async () => {
  expect(await rejection(shop.queue().add('job', {}, { cost: 0 }))).toBeInstanceOf(InvalidCostError)
})
