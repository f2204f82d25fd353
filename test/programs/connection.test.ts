import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { checkRedis, reconnectDelayMs } from '../../src/programs/connection.ts'
import { StartError } from '../../src/programs/errors.ts'
import { startRedis } from '../../workers/services/redis.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

test('reconnecting is spread between 1 and 20 seconds', () => {
  expect([1, 2, 5, 1000].map((attempt) => reconnectDelayMs(attempt, 0))).toEqual([1000, 1000, 1000, 1000])
  expect([1, 2, 5, 1000].map((attempt) => reconnectDelayMs(attempt, 1))).toEqual([2000, 4000, 20_000, 20_000])
  expect(reconnectDelayMs(5, 0.5)).toBe(10_500)
})

test('a Redis that answers and evicts nothing is accepted', async () => {
  await expect(checkRedis(redis.url)).resolves.toBeUndefined()
})

test('a Redis that may evict jobs is refused, with the remedy', async () => {
  const evicting = await startRedis({ ignoreGiven: true, args: ['--maxmemory-policy', 'allkeys-lru'] })
  try {
    const check = checkRedis(evicting.url)
    await expect(check).rejects.toThrow(StartError)
    await expect(check).rejects.toThrow(/expected maxmemory-policy noeviction, got allkeys-lru \(set it with/)
  } finally {
    await evicting.stop()
  }
})

test('a Redis that is not there is named, with the reason and without the password', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  const failure = checkRedis(`redis://:CANARY@127.0.0.1:${port}`)
  await expect(failure).rejects.toThrow(StartError)
  await expect(failure).rejects.toThrow(`cannot use Redis at 127.0.0.1:${port}: connect ECONNREFUSED`)
  await expect(failure).rejects.not.toThrow(/CANARY/)
})
