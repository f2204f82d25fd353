import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Ratelimit } from '@upstash/ratelimit'
import type { Redis } from 'ioredis'
import { BurstyRateLimiter, RateLimiterRedis } from 'rate-limiter-flexible'
import { createLimiter, type LimiterOptions } from 'sluice/limits'
import { mostWithin } from '../workers/demo/windows.ts'
import { atLeast, compared, rounds } from './harness/compare.ts'
import { type Figure, inTurn, type Row, withClient } from './harness/figure.ts'
import { type Cost, costOf } from './harness/redis.ts'
import { ascending, sum } from './harness/statistics.ts'

/** The quota, the same for all contenders. */
interface Quota {
  readonly limit: number
  readonly periodS: number
  /** Burst in units, for buckets. */
  readonly burst: number
}

/** Requests one unit for a key. */
type Take = (key: string) => Promise<boolean>
type Open = (redis: Redis, quota: Quota) => Take

const ours = (algorithm: Algorithm, name: string = algorithm, of?: Partial<Quota>): Open => {
  return (redis, quota) => {
    const { limit, periodS, burst } = { ...quota, ...of }
    const options = { name, algorithm, rate: { limit, period: periodS * 1000 }, burst, timeoutMs: 5000 }
    const limiter = createLimiter(redis, options as LimiterOptions)
    return async (key) => (await limiter.take(key)).allowed
  }
}

function flexible(redis: Redis, keyPrefix: string, points: number, duration: number): RateLimiterRedis {
  return new RateLimiterRedis({ storeClient: redis, keyPrefix, points, duration })
}

/** rate-limiter-flexible rejects a refusal with a result object; an Error is a real failure. */
function passing(limiter: { consume(key: string): Promise<unknown> }): Take {
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
type Peer = keyof typeof PEERS

const BUCKETS: readonly Peer[] = ['rate-limiter-flexible BurstyRateLimiter', '@upstash/ratelimit tokenBucket']
/** The contenders with the same algorithm, or the most similar one. */
const COMPARABLE = {
  'fixed-window': ['rate-limiter-flexible RateLimiterRedis', '@upstash/ratelimit fixedWindow'],
  'sliding-window-log': ['@upstash/ratelimit slidingWindow'],
  'sliding-window-counter': ['@upstash/ratelimit slidingWindow'],
  'token-bucket': BUCKETS,
  'leaky-bucket': BUCKETS,
  gcra: BUCKETS,
} as const satisfies Record<string, readonly Peer[]>
type Algorithm = keyof typeof COMPARABLE
const ALGORITHMS = Object.keys(COMPARABLE) as Algorithm[]

const CONTENDERS: Readonly<Record<string, Open>> = {
  ...Object.fromEntries(ALGORITHMS.map((algorithm) => [algorithm, ours(algorithm)])),
  ...PEERS,
}

/** All requests pass, or almost none. */
const LOADS = {
  allowed: { quota: { limit: 1_000_000, periodS: 60, burst: 1_000_000 }, least: 0.99, most: 1 },
  refused: { quota: { limit: 1, periodS: 60, burst: 1 }, least: 0, most: 0.05 },
} as const
type Load = keyof typeof LOADS

const KEYS = Array.from({ length: 100 }, (_, i) => `user-${String(i).padStart(3, '0')}`)
/** Warm-up calls per key: scripts are loaded, limits defined, and limits of one unit used up. */
const WARM_UP = 3

/** What a decision costs on an otherwise idle, empty Redis. */
async function decisions(redis: Redis, take: Take, load: Load, concurrency: number, ms: number): Promise<Cost> {
  await redis.flushdb()
  for (let i = 0; i < WARM_UP; i++) await Promise.all(KEYS.map(take))
  let [asked, passed] = [0, 0]
  const cost = await costOf(redis, async () => {
    const untilMs = performance.now() + ms
    const caller = async () => {
      while (performance.now() < untilMs) if (await take(KEYS[asked++ % KEYS.length] as string)) passed += 1
    }
    await Promise.all(Array.from({ length: concurrency }, caller))
    return { units: asked }
  })
  const { least, most } = LOADS[load]
  if (passed < least * asked || passed > most * asked)
    throw new Error(`${passed} of ${asked} passed where nearly all were ${load}`)
  return cost
}

const limitsDecisions: Figure = {
  name: 'limits-decisions',
  title:
    'Decisions of sluice/limits over the fastest library that does the same: median of interleaved rounds, the first ' +
    'discarded; 100 keys in turn; CPU of the client, time inside scripts and calls to Redis per decision',
  headings: ['', 'asked', 'reached', 'ok', 'other libraries'],
  run: ({ redis, quick }) =>
    withClient(redis, (client) =>
      inTurn([1, 100], (concurrency) =>
        inTurn(['allowed', 'refused'] as const, async (load) => {
          const names = Object.keys(CONTENDERS)
          const takes = new Map(names.map((name) => [name, (CONTENDERS[name] as Open)(client, LOADS[load].quota)]))
          const measured = await rounds(quick, names, (name) =>
            decisions(client, takes.get(name) as Take, load, concurrency, quick ? 150 : 1000),
          )
          return ALGORITHMS.map((ours) => {
            // What is compared with the log only is the nearest to it.
            const asked = concurrency === 1 || ours === 'sliding-window-log' ? undefined : atLeast(1.2)
            const over: readonly string[] = COMPARABLE[ours]
            return compared<string>(`${ours}, ${concurrency} at once, ${load}`, measured, { ours, over, asked })
          })
        }),
      ),
    ),
}

const PERIOD_MS = 1000
/** Answers arrive some ms after the decision: windows are shortened by this, so that the delay cannot fill one more. */
const SLACK_MS = 10
const BEFORE_MS = 150
const AFTER_MS = 40
const OVERLOAD = 3
/** After this time, what a limiter at rest had accumulated is used up. */
const SETTLED_MS = 2 * PERIOD_MS
const QUOTA: Quota = { limit: 100, periodS: PERIOD_MS / 1000, burst: 100 }
/** Its burst is a second window in addition to the first: twice as much passes permanently. */
const TWO_LIMITS = 'rate-limiter-flexible BurstyRateLimiter'
/** More at once would be too slow for the critical moments. */
const ATTACKED_TOGETHER = 4

const until = (ms: number): Promise<void> => sleep(Math.max(0, ms - Date.now()))

/** Asks for so many units at once, and records when they passed, ms. */
async function ask(take: Take, key: string, units: number, passedMs: number[]): Promise<void> {
  const one = async () => {
    if (await take(key)) passedMs.push(Date.now())
  }
  await Promise.all(Array.from({ length: units }, one))
}

/** The largest number in any window of one period. */
const mostOf = (passedMs: readonly number[]): number => mostWithin(ascending(passedMs), PERIOD_MS - SLACK_MS)

/**
 * The boundary attack: the limit just before the end of a window, and again just after it. Windows begin at whole
 * seconds or with the first unit: both are tried, each with its own key.
 */
async function attack(take: Take, key: string): Promise<number> {
  const boundaryMs = (Math.floor(Date.now() / PERIOD_MS) + 2) * PERIOD_MS
  const once = async (opens: boolean) => {
    const passedMs: number[] = []
    await until(boundaryMs - PERIOD_MS + AFTER_MS / 2)
    if (opens) await ask(take, `${key}-${opens}`, 1, passedMs)
    await until(boundaryMs - BEFORE_MS)
    await ask(take, `${key}-${opens}`, QUOTA.limit, passedMs)
    await until(boundaryMs + AFTER_MS)
    await ask(take, `${key}-${opens}`, QUOTA.limit, passedMs)
    return mostOf(passedMs)
  }
  return Math.max(...(await Promise.all([false, true].map(once))))
}

/** Requests three times the limit, unit by unit, for several periods after it has settled. */
async function overload(take: Take, key: string, periods: number) {
  const passedMs: number[] = []
  const fromMs = Date.now() + SETTLED_MS
  const forMs = SETTLED_MS + periods * PERIOD_MS
  const asking: Promise<void>[] = []
  for (let atMs = 0; atMs < forMs; atMs += PERIOD_MS / QUOTA.limit / OVERLOAD) {
    await until(fromMs - SETTLED_MS + atMs)
    asking.push(ask(take, key, 1, passedMs))
  }
  await Promise.all(asking)
  const settledMs = passedMs.filter((ms) => ms >= fromMs)
  const counted = settledMs.filter((ms) => ms < fromMs + periods * PERIOD_MS).length
  return { most: mostOf(passedMs), mostSettled: mostOf(settledMs), share: counted / (QUOTA.limit * periods) }
}

/** The memory of all keys that belong to a limiter's key, including their names. */
async function bytesOf(redis: Redis, key: string): Promise<number> {
  const names: string[] = []
  for await (const page of redis.scanStream({ match: `*:${key}*` })) names.push(...(page as string[]))
  return sum(await Promise.all(names.map(async (name) => (await redis.memory('USAGE', name, 'SAMPLES', 0)) ?? 0)))
}

async function choosing(redis: Redis, periods: number): Promise<Row[]> {
  await redis.flushdb()
  const opens: Readonly<Record<string, Open>> = {
    ...CONTENDERS,
    'gcra with burst 1': ours('gcra', 'even', { burst: 1 }),
  }
  const names = Object.keys(opens).filter((name) => name !== TWO_LIMITS)
  // Keys of equal length, since they count towards the bytes.
  const all = names.map((name, i) => ({ name, take: (opens[name] as Open)(redis, QUOTA), key: `user-${100 + i}` }))
  await Promise.all(all.map(({ take, key }) => take(`first-${key}`)))
  const attacked: number[] = []
  for (let at = 0; at < all.length; at += ATTACKED_TOGETHER) {
    const together = all.slice(at, at + ATTACKED_TOGETHER)
    attacked.push(...(await Promise.all(together.map(({ take, key }) => attack(take, `attacked-${key}`)))))
  }
  const overloaded = all.map(async ({ name, take, key }, i): Promise<Row> => {
    const { most, mostSettled, share } = await overload(take, key, periods)
    const bytes = await bytesOf(redis, key)
    const cells = [attacked[i], most, mostSettled, share.toFixed(3), bytes].map(String)
    const values = { boundary: attacked[i], most, mostSettled, share, bytes }
    return { setup: name, reached: cells.join(', '), cells, values }
  })
  return Promise.all(overloaded)
}

const limitsChoosing: Figure = {
  name: 'limits-choosing',
  title:
    `100 per second, bursts of 100: the most within 1 s (less ${SLACK_MS} ms) under the boundary attack and under ` +
    'three times the limit, from rest and after 2 s; the share of the limit that passed then; bytes of a busy key',
  headings: ['', 'boundary attack', 'overload from rest', 'overload settled', 'share', 'bytes per key'],
  run: ({ redis, quick }) => withClient(redis, (client) => choosing(client, quick ? 3 : 10)),
}

export const limits: readonly Figure[] = [limitsDecisions, limitsChoosing]
