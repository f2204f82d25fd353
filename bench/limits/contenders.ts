import { Ratelimit } from '@upstash/ratelimit'
import type { Redis } from 'ioredis'
import { BurstyRateLimiter, RateLimiterRedis } from 'rate-limiter-flexible'
import { createLimiter, type Limiter, type LimiterOptions } from 'sluice/limits'
import { upstashOver } from './upstash-redis.ts'

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

export const ALGORITHMS = [
  'fixed-window',
  'sliding-window-log',
  'sliding-window-counter',
  'token-bucket',
  'leaky-bucket',
  'gcra',
] as const
export type Ours = (typeof ALGORITHMS)[number]
export const PEERS = [
  'rate-limiter-flexible RateLimiterRedis',
  'rate-limiter-flexible BurstyRateLimiter',
  '@upstash/ratelimit fixedWindow',
  '@upstash/ratelimit slidingWindow',
  '@upstash/ratelimit tokenBucket',
] as const
export type Peer = (typeof PEERS)[number]
export type Contender = Ours | Peer
export const CONTENDERS: readonly Contender[] = [...ALGORITHMS, ...PEERS]

/** The contenders with the same algorithm, or the most similar one. */
export const COMPARABLE: Readonly<Record<Ours, { readonly peers: readonly Peer[]; readonly onlyNearest?: true }>> = {
  'fixed-window': { peers: ['rate-limiter-flexible RateLimiterRedis', '@upstash/ratelimit fixedWindow'] },
  'sliding-window-log': { peers: ['@upstash/ratelimit slidingWindow'], onlyNearest: true },
  'sliding-window-counter': { peers: ['@upstash/ratelimit slidingWindow'] },
  'token-bucket': { peers: ['rate-limiter-flexible BurstyRateLimiter', '@upstash/ratelimit tokenBucket'] },
  'leaky-bucket': { peers: ['rate-limiter-flexible BurstyRateLimiter', '@upstash/ratelimit tokenBucket'] },
  gcra: { peers: ['rate-limiter-flexible BurstyRateLimiter', '@upstash/ratelimit tokenBucket'] },
}

/** The options of one of our limiters. */
export function ruleOf(algorithm: Ours, { limit, periodS, burst }: Quota): LimiterOptions {
  return { name: algorithm, algorithm, rate: { limit, period: periodS * 1000 }, burst, timeoutMs: 5000 }
}

/** rate-limiter-flexible rejects a refusal with a result object; an Error is a real failure. */
export async function passes(consuming: Promise<unknown>): Promise<boolean> {
  try {
    await consuming
    return true
  } catch (refusal) {
    if (refusal instanceof Error) throw refusal
    return false
  }
}

export function flexible(redis: Redis, keyPrefix: string, points: number, duration: number): RateLimiterRedis {
  return new RateLimiterRedis({ storeClient: redis, keyPrefix, points, duration })
}

export function takeFrom(limiter: Limiter): Take {
  return async (key) => (await limiter.take(key)).allowed
}

const ours = (algorithm: Ours): Open => {
  return (redis, quota) => takeFrom(createLimiter(redis, ruleOf(algorithm, quota)))
}

const upstash = (limiterOf: (quota: Quota) => ConstructorParameters<typeof Ratelimit>[0]['limiter']): Open => {
  return (redis, quota) => {
    const limiter = limiterOf(quota)
    const one = new Ratelimit({ redis: upstashOver(redis), limiter, analytics: false, ephemeralCache: false })
    return async (key) => (await one.limit(key)).success
  }
}

const OPENS: Readonly<Record<Contender, Open>> = {
  'fixed-window': ours('fixed-window'),
  'sliding-window-log': ours('sliding-window-log'),
  'sliding-window-counter': ours('sliding-window-counter'),
  'token-bucket': ours('token-bucket'),
  'leaky-bucket': ours('leaky-bucket'),
  gcra: ours('gcra'),
  'rate-limiter-flexible RateLimiterRedis': (redis, { limit, periodS }) => {
    const limiter = flexible(redis, 'rlf', limit, periodS)
    return (key) => passes(limiter.consume(key))
  },
  'rate-limiter-flexible BurstyRateLimiter': (redis, { limit, periodS, burst }) => {
    const limiter = new BurstyRateLimiter(
      flexible(redis, 'rlf-rate', limit, periodS),
      flexible(redis, 'rlf-burst', burst, periodS),
    )
    return (key) => passes(limiter.consume(key))
  },
  '@upstash/ratelimit fixedWindow': upstash(({ limit, periodS }) => Ratelimit.fixedWindow(limit, `${periodS} s`)),
  '@upstash/ratelimit slidingWindow': upstash(({ limit, periodS }) => Ratelimit.slidingWindow(limit, `${periodS} s`)),
  '@upstash/ratelimit tokenBucket': upstash(({ limit, periodS, burst }) =>
    Ratelimit.tokenBucket(limit, `${periodS} s`, burst),
  ),
}

export function openContender(contender: Contender, redis: Redis, quota: Quota): Take {
  return OPENS[contender](redis, quota)
}
