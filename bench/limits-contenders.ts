import { createHash } from 'node:crypto'
import { Ratelimit } from '@upstash/ratelimit'
import type { Redis } from 'ioredis'
import { BurstyRateLimiter, RateLimiterRedis } from 'rate-limiter-flexible'
import { createLimiter, type Limiter, type LimiterOptions } from 'sluice/limits'

/** The quota, the same for all contenders. */
export interface Quota {
  readonly limit: number
  readonly periodS: number
  /** Burst in units, for buckets. */
  readonly burst: number
}

/** Requests one unit for a key. */
export type Take = (key: string) => Promise<boolean>

type Open = (redis: Redis, quota: Quota) => Take

/** The options of one of our limiters. */
export function ruleOf(algorithm: Ours, { limit, periodS, burst }: Quota): LimiterOptions {
  return { name: algorithm, algorithm, rate: { limit, period: periodS * 1000 }, burst, timeoutMs: 5000 }
}

export function takeFrom(limiter: Limiter): Take {
  return async (key) => (await limiter.take(key)).allowed
}

const ours = (algorithm: Ours): Open => {
  return (redis, quota) => takeFrom(createLimiter(redis, ruleOf(algorithm, quota)))
}

export function flexible(redis: Redis, keyPrefix: string, points: number, duration: number): RateLimiterRedis {
  return new RateLimiterRedis({ storeClient: redis, keyPrefix, points, duration })
}

/** rate-limiter-flexible rejects a refusal with a result object; an Error is a real failure. */
export function passing(limiter: { consume(key: string): Promise<unknown> }): Take {
  return async (key) => {
    try {
      await limiter.consume(key)
      return true
    } catch (refusal) {
      if (refusal instanceof Error) throw refusal
      return false
    }
  }
}

/** A flag that only Upstash's servers accept; a plain Redis refuses the script. */
const SHEBANG = /^#!.*/

const sha1 = (text: string): string => createHash('sha1').update(text).digest('hex')

type UpstashOptions = ConstructorParameters<typeof Ratelimit>[0]

/** The part of `@upstash/redis` that `@upstash/ratelimit` uses, over ioredis: its scripts, by hash where it is known. */
function upstashOver(redis: Redis): UpstashOptions['redis'] {
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
  return adapter as unknown as UpstashOptions['redis']
}

const upstash = (limiterOf: (quota: Quota) => UpstashOptions['limiter']): Open => {
  return (redis, quota) => {
    const options = { redis: upstashOver(redis), analytics: false, ephemeralCache: false } as const
    const limiter = new Ratelimit({ ...options, limiter: limiterOf(quota) })
    return async (key) => (await limiter.limit(key)).success
  }
}

const OURS = {
  'fixed-window': ours('fixed-window'),
  'sliding-window-log': ours('sliding-window-log'),
  'sliding-window-counter': ours('sliding-window-counter'),
  'token-bucket': ours('token-bucket'),
  'leaky-bucket': ours('leaky-bucket'),
  gcra: ours('gcra'),
} satisfies Record<string, Open>
const PEERS = {
  'rate-limiter-flexible RateLimiterRedis': (redis, { limit, periodS }) =>
    passing(flexible(redis, 'rlf', limit, periodS)),
  'rate-limiter-flexible BurstyRateLimiter': (redis, { limit, periodS, burst }) => {
    const [rate, bursts] = [flexible(redis, 'rlf-rate', limit, periodS), flexible(redis, 'rlf-burst', burst, periodS)]
    return passing(new BurstyRateLimiter(rate, bursts))
  },
  '@upstash/ratelimit fixedWindow': upstash(({ limit, periodS }) => Ratelimit.fixedWindow(limit, `${periodS} s`)),
  '@upstash/ratelimit slidingWindow': upstash(({ limit, periodS }) => Ratelimit.slidingWindow(limit, `${periodS} s`)),
  '@upstash/ratelimit tokenBucket': upstash(({ limit, periodS, burst }) =>
    Ratelimit.tokenBucket(limit, `${periodS} s`, burst),
  ),
} satisfies Record<string, Open>

export type Ours =
  | 'fixed-window'
  | 'sliding-window-log'
  | 'sliding-window-counter'
  | 'token-bucket'
  | 'leaky-bucket'
  | 'gcra'
type Peer = keyof typeof PEERS
export type Contender = Ours | Peer
export const CONTENDERS: Readonly<Record<Contender, Open>> = { ...OURS, ...PEERS }

const BUCKETS: readonly Peer[] = ['rate-limiter-flexible BurstyRateLimiter', '@upstash/ratelimit tokenBucket']
/** The contenders with the same algorithm, or the most similar one. */
export const COMPARABLE: Readonly<Record<Ours, readonly Peer[]>> = {
  'fixed-window': ['rate-limiter-flexible RateLimiterRedis', '@upstash/ratelimit fixedWindow'],
  'sliding-window-log': ['@upstash/ratelimit slidingWindow'],
  'sliding-window-counter': ['@upstash/ratelimit slidingWindow'],
  'token-bucket': BUCKETS,
  'leaky-bucket': BUCKETS,
  gcra: BUCKETS,
}
