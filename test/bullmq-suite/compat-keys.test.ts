import { expect, it } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { dumpKeys, keyDifferences } from './compat-keys.ts'

const test = useRedis(import.meta.url)
const redis = test.client()

async function fill(prefix: string): Promise<void> {
  await redis.hset(`${prefix}:q:1`, { name: 'job', parentKey: `${prefix}:q:0` })
  await redis.rpush(`${prefix}:q:wait`, '1', '2')
  await redis.zadd(`${prefix}:q:delayed`, 5, '3')
  await redis.set(`${prefix}:q:1:lock`, 'token', 'PX', 60_000)
  await redis.xadd(`${prefix}:q:events`, '*', 'event', 'added')
  await redis.hset(`${prefix}:q:meta:ended:17956839706`, '1', '1795683970635')
}

it('two queues with the same contents under different prefixes do not differ', async () => {
  const [one, other] = [`${test.prefix}-one`, `${test.prefix}-two`]
  await Promise.all([fill(one), fill(other)])
  await redis.del(`${other}:q:meta:ended:17956839706`)
  const dump = await dumpKeys(redis, one)
  expect(Object.keys(dump)).toHaveLength(5)
  expect(keyDifferences(dump, await dumpKeys(redis, other))).toEqual([])
  await redis.persist(`${other}:q:1:lock`)
  await redis.hset(`${other}:q:1`, 'name', 'changed')
  await redis.lpop(`${other}:q:wait`)
  const names = keyDifferences(dump, await dumpKeys(redis, other)).map((line) => line.split(': ')[0])
  expect(names).toEqual(['<prefix>:q:1', '<prefix>:q:1:lock', '<prefix>:q:wait'])
})

it('names what only one has', () => {
  expect(keyDifferences({ a: 1 }, { b: 2 })).toEqual(['a: missing, stock has 1', 'b: 2, stock has no such key'])
})
