import { expect, test } from 'vitest'
import { combine, InvalidInputError } from '../../../../src/limits/index.ts'
import { useLimiters } from '../../../../test/limits/support/limiters.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import type { RateLimitOptions } from '../../src/limits/rate-limit-options.ts'

const redis = useRedis(import.meta.url)
const { limiter } = useLimiters(redis)
const limit = limiter({ name: 'a', rate: '1/s' })
const both = combine([limit, limiter({ name: 'b', rate: '1/s' })])
const key = () => 'joe'

test.each<[string, object, string]>([
  ['nothing', undefined as never, 'rateLimit takes an object of options, of limit, key'],
  ['no limit', { key }, 'limit must be a limiter, limiters joined by combine'],
  ['a limit that is none', { limit: 5, key }, 'got 5'],
  ['tiers without a default', { limit: { free: limit }, key }, 'by tier with a default; got an object of free'],
  ['a tier that is no limit', { limit: { default: limit, free: {} }, key }, 'got an object of default, free'],
  ['no key', { limit }, 'key must be a function; got undefined'],
  ['a key that is no function', { limit, key: 'joe' }, 'key must be a function; got "joe"'],
  ['a key of a limit that there is not', { limit: both, key: { c: key } }, "key names limit 'c'; the limits are a, b"],
  ['a key that is no function, of one limit', { limit: both, key: { b: 'joe' } }, 'key must be a function; got "joe"'],
  ['a cost of 0', { limit, key, cost: 0 }, 'cost must be above 0; got 0'],
  ['a cost that is none', { limit, key, cost: '1' }, 'cost must be a function; got "1"'],
  ['a cost of a limit that there is not', { limit: both, key, cost: { c: 1 } }, "cost names limit 'c'"],
  ['a tier that is no function', { limit, key, tier: 'free' }, 'tier must be a function; got "free"'],
  ['a skip that is no function', { limit, key, skip: true }, 'skip must be a function; got true'],
  ['an onLimit that is no function', { limit, key, onLimit: {} }, 'onLimit must be a function; got {}'],
  [
    'headers of no known form',
    { limit, key, headers: ['draft-8'] },
    "headers must be a list of 'draft-10', 'draft-7', 'draft-6'",
  ],
  ['headers that are no list', { limit, key, headers: 'draft-10' }, 'got "draft-10"'],
  ['a field that is none', { limit, key, shadowHeader: 'x shadow' }, 'shadowHeader must be the name of a header field'],
  ['a bucket without a name', { limit, key, bucket: '' }, 'bucket must be a name; got ""'],
  [
    'an allow list that is none',
    { limit, key, allow: ['10.0.0.1'] },
    'allow takes an object of options, of addresses, trustProxy, keys; got ["10.0.0.1"]',
  ],
  [
    'no allow list',
    { limit, key, allow: null },
    'allow takes an object of options, of addresses, trustProxy, keys; got null',
  ],
  [
    'allowed addresses that are none',
    { limit, key, allow: { addresses: ['here'] } },
    'allow.addresses must be a list of addresses',
  ],
  ['allowed keys that are no list', { limit, key, allow: { keys: 'joe' } }, 'allow.keys must be a list; got "joe"'],
  [
    'an allowed key that is none',
    { limit, key, allow: { keys: [''] } },
    'a key must be a string of 1 to 4096 characters',
  ],
  ['a queue of several limits', { limit: both, key, burstQueue: { maxWaiting: 1 } }, 'burstQueue needs one limit'],
  [
    'a queue without a bound',
    { limit, key, burstQueue: {} },
    'burstQueue.maxWaiting must be a whole number >= 0; got undefined',
  ],
  ['no queue', { limit, key, burstQueue: null }, 'burstQueue takes an object of options, of maxWaiting'],
  [
    'a queue of a negative time',
    { limit, key, burstQueue: { maxWaiting: 1, maxWaitMs: -1 } },
    'burstQueue.maxWaitMs must be',
  ],
  [
    'a delay that is none',
    { limit, key, burstQueue: { maxWaiting: 1, delay: true } },
    "burstQueue.delay must be a whole number >= 0 or 'nodelay'",
  ],
  [
    'an option of a queue that there is not',
    { limit, key, burstQueue: { maxWaiting: 1, burst: 2 } },
    "burstQueue has no option 'burst'",
  ],
  [
    'an option that there is not',
    { limit, key, keyGenerator: key },
    "rateLimit has no option 'keyGenerator'; it has limit, key",
  ],
])('%s is told', (_title, options, message) => {
  const make = () => rateLimit(options as RateLimitOptions)
  expect(make).toThrow(message)
  expect(make).toThrow(InvalidInputError)
})

test('every option that is right makes a middleware', () => {
  const allow = { addresses: ['10.0.0.0/8'], trustProxy: 1, keys: ['joe', 7, ['a', 'b']] }
  const more = {
    cost: () => 1,
    skip: () => false,
    onLimit: () => {},
    headers: [],
    shadowHeader: 'X-Shadow',
    bucket: 'b',
  }
  const burstQueue = { maxWaiting: 3, maxWaitMs: 100, delay: 'nodelay' as const }
  expect(rateLimit({ limit, key, allow, burstQueue, ...more })).toHaveProperty('enter')
  expect(rateLimit({ limit: { default: limit, pro: both }, key, tier: () => 'pro' })).toHaveProperty('enter')
  expect(rateLimit({ limit: both, key: { b: key }, cost: { a: 2, b: () => 3 } })).toHaveProperty('enter')
})
