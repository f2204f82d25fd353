import { createHash } from 'node:crypto'
import type { Ratelimit } from '@upstash/ratelimit'
import type { Redis } from 'ioredis'

type RatelimitRedis = ConstructorParameters<typeof Ratelimit>[0]['redis']

/** A flag that only Upstash's servers accept; a plain Redis refuses the script. */
const SHEBANG = /^#!.*/

const sha1 = (text: string): string => createHash('sha1').update(text).digest('hex')

/**
 * The part of `@upstash/redis` that `@upstash/ratelimit` uses, over ioredis: its scripts, by their hash where they are
 * known.
 */
export function upstashOver(redis: Redis): RatelimitRedis {
  const hashes = new Map<string, string>()
  const adapter = {
    evalsha(theirs: string, keys: string[], args: (string | number)[]): Promise<unknown> {
      const hash = hashes.get(theirs)
      if (hash === undefined) return Promise.reject(new Error('NOSCRIPT No matching script.'))
      return redis.evalsha(hash, keys.length, ...keys, ...args)
    },
    eval(script: string, keys: string[], args: (string | number)[]): Promise<unknown> {
      const plain = script.replace(SHEBANG, '')
      hashes.set(sha1(script), sha1(plain))
      return redis.eval(plain, keys.length, ...keys, ...args)
    },
  }
  return adapter as unknown as RatelimitRedis
}
