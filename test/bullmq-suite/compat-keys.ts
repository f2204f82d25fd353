import type { Redis } from 'ioredis'

/** The contents of every key below a prefix, by the rest of its name. */
export type KeyDump = Readonly<Record<string, unknown>>

/** Stands for the prefix in names and values, so that two queues can be compared. */
const PREFIX = '<prefix>'

async function readValue(redis: Redis, key: string): Promise<unknown> {
  const type: string = await redis.type(key)
  switch (type) {
    case 'string':
      return redis.get(key)
    case 'hash':
      return Object.fromEntries(Object.entries(await redis.hgetall(key)).sort())
    case 'list':
      return redis.lrange(key, 0, -1)
    case 'set':
      return (await redis.smembers(key)).sort()
    case 'zset':
      return redis.zrange(key, '0', '-1', 'WITHSCORES')
    case 'stream':
      // Without the ids: they are Redis's clock.
      return (await redis.xrange(key, '-', '+')).map(([, fields]) => fields)
    default:
      throw new Error(`Expected a type of key that BullMQ uses, got "${type}" for "${key}"`)
  }
}

/** Reads all keys below a prefix, but those of Sluice: it may remember for a while what it ended. */
export async function dumpKeys(redis: Redis, prefix: string): Promise<KeyDump> {
  const names = (await redis.keys(`${prefix}:*`)).filter((name) => !name.includes(':meta:')).sort()
  const dump: Record<string, unknown> = {}
  for (const name of names) {
    const value = { value: await readValue(redis, name), expires: (await redis.pttl(name)) >= 0 }
    dump[name.replace(prefix, PREFIX)] = JSON.parse(JSON.stringify(value).replaceAll(prefix, PREFIX))
  }
  return dump
}

/** One line for each key that is not the same in both. */
export function keyDifferences(stock: KeyDump, ours: KeyDump): string[] {
  return [...new Set([...Object.keys(stock), ...Object.keys(ours)])].sort().flatMap((name) => {
    const [expected, got] = [JSON.stringify(stock[name]), JSON.stringify(ours[name])]
    return expected === got ? [] : [`${name}: ${got ?? 'missing'}, stock has ${expected ?? 'no such key'}`]
  })
}
