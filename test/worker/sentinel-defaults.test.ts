import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { sentinelRetryMs, withSentinelDefaults } from '../../src/redis/sentinel-defaults.ts'

const sentinels = [{ host: '127.0.0.1', port: 1 }]

test('a connection by way of Sentinels is soon tried again, and what the program gives counts', () => {
  const given = { sentinels, name: 'mymaster', connectTimeout: 7 }
  const completed = withSentinelDefaults(given) as Record<string, unknown>
  expect(completed).toMatchObject(given)
  expect((completed.retryStrategy as (attempt: number) => number)(2)).toBeLessThanOrEqual(300)
  const own = () => 1
  expect(withSentinelDefaults({ sentinels, retryStrategy: own })).toMatchObject({
    retryStrategy: own,
    connectTimeout: 2000,
  })
  const plain = { host: '127.0.0.1' }
  expect(withSentinelDefaults(plain)).toBe(plain)
  const client = new Redis({ sentinels, name: 'mymaster', lazyConnect: true })
  onTestFinished(() => client.disconnect())
  expect(withSentinelDefaults(client as never)).toBe(client)
})

test('attempts are frequent for as long as a failover takes, then rarer, and spread', () => {
  const sumOf = (random: number, attempts: number) =>
    Array.from({ length: attempts }, (_, i) => sentinelRetryMs(i + 1, random)).reduce((sum, ms) => sum + ms, 0)
  expect([sentinelRetryMs(1, 0), sentinelRetryMs(1, 1), sentinelRetryMs(2, 0), sentinelRetryMs(40, 1)]).toEqual([
    50, 150, 200, 300,
  ])
  expect(sumOf(0, 40)).toBeGreaterThan(7000)
  expect([sentinelRetryMs(60, 0), sentinelRetryMs(60, 1)]).toEqual([10_000, 20_000])
})
