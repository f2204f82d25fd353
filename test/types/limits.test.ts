import type { Cluster, Redis } from 'ioredis'
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5'
import { expectTypeOf, test } from 'vitest'
import {
  type Algorithm,
  type CombinedAnswer,
  type CombinedLimiter,
  combine,
  createLimiter,
  type Lease,
  type LimitAnswer,
  type Limiter,
  type LimiterOptions,
  type LimitKey,
  type LimitRedis,
} from '../../src/limits/index.ts'

// What tsc says of this file is the test: nothing of it runs.
declare const limiter: Limiter
declare const combined: CombinedLimiter
declare const redis: Redis
declare const cluster: Cluster
declare const redis5: Redis5
declare const cluster5: Cluster5
const never = () => false as boolean
const options: LimiterOptions = { name: 'api', rate: '5/s' }

test('clients of ioredis 6 and 5, of one Redis and of a cluster, are accepted', () => {
  expectTypeOf<Redis>().toExtend<LimitRedis>()
  expectTypeOf<Cluster>().toExtend<LimitRedis>()
  expectTypeOf<Redis5>().toExtend<LimitRedis>()
  expectTypeOf<Cluster5>().toExtend<LimitRedis>()
  if (never()) {
    for (const client of [redis, cluster, redis5, cluster5]) {
      expectTypeOf(createLimiter(client, options)).toEqualTypeOf<Limiter>()
    }
    // @ts-expect-error an address is no client
    createLimiter('redis://127.0.0.1', options)
  }
})

test('an answer says all that a caller needs, and what may be missing', () => {
  expectTypeOf<Awaited<ReturnType<Limiter['take']>>>().toEqualTypeOf<LimitAnswer>()
  expectTypeOf<Awaited<ReturnType<Limiter['peek']>>>().toEqualTypeOf<LimitAnswer>()
  expectTypeOf<Awaited<ReturnType<Limiter['wait']>>>().toEqualTypeOf<LimitAnswer>()
  expectTypeOf<Awaited<ReturnType<Limiter['penalty']>>>().toEqualTypeOf<LimitAnswer>()
  expectTypeOf<Awaited<ReturnType<Limiter['block']>>>().toEqualTypeOf<void>()
  expectTypeOf<LimitAnswer['allowed']>().toEqualTypeOf<boolean>()
  expectTypeOf<LimitAnswer['limit' | 'remaining' | 'retryAfterMs']>().toEqualTypeOf<number>()
  expectTypeOf<LimitAnswer['resetAt']>().toEqualTypeOf<Date>()
  expectTypeOf<LimitAnswer['policy']>().toEqualTypeOf<string>()
  expectTypeOf<LimitAnswer['wouldRefuse' | 'undecided' | 'sharesKey']>().toEqualTypeOf<true | undefined>()
  expectTypeOf<LimitAnswer['lease']>().toEqualTypeOf<Lease | undefined>()
  expectTypeOf<Awaited<ReturnType<Lease['release']>>>().toEqualTypeOf<boolean>()
})

test('combined limits answer as one, and each', () => {
  expectTypeOf<Awaited<ReturnType<CombinedLimiter['take']>>>().toEqualTypeOf<CombinedAnswer>()
  expectTypeOf<CombinedAnswer>().toExtend<LimitAnswer>()
  expectTypeOf<CombinedAnswer['answers']>().toEqualTypeOf<readonly LimitAnswer[]>()
  expectTypeOf(combine).returns.toEqualTypeOf<CombinedLimiter>()
  if (never()) {
    void combined.take({ api: 'joe', all: 7 }, { cost: 2, costs: { api: 5 } })
    // @ts-expect-error a cost is a number
    void combined.take({ api: 'joe' }, { costs: { api: '5' } })
  }
})

test('a key is text, a number, or several of these', () => {
  expectTypeOf<LimitKey>().toEqualTypeOf<string | number | readonly (string | number)[]>()
  if (never()) {
    void limiter.take(['10.0.0.1', 7], { cost: 2 })
    void limiter.wait('joe', { timeoutMs: 5, maxWaiting: 20, nodelay: 5, signal: AbortSignal.abort() })
    // @ts-expect-error nothing is no key
    void limiter.take(null)
    // @ts-expect-error no such option
    void limiter.take('joe', { costs: 2 })
  }
})

test('wrong options are errors', () => {
  expectTypeOf<LimiterOptions['algorithm']>().toEqualTypeOf<Algorithm | undefined>()
  // @ts-expect-error no such algorithm
  const unknown: LimiterOptions = { name: 'api', rate: '5/s', algorithm: 'token' }
  // @ts-expect-error a field that does not exist
  const misspelt: LimiterOptions = { name: 'api', rates: '5/s' }
  // @ts-expect-error keys are all that limits are spread by
  const spread: LimiterOptions = { name: 'api', rate: '5/s', spread: 'slot' }
  // @ts-expect-error a limit has a name
  const nameless: LimiterOptions = { rate: '5/s' }
  // @ts-expect-error a tier has no algorithm of its own
  const tiers: LimiterOptions = { name: 'api', rate: '5/s', tiers: { free: { algorithm: 'gcra' } }, tierOf: {} }
  expectTypeOf([unknown, misspelt, spread, nameless, tiers]).toEqualTypeOf<LimiterOptions[]>()
})
