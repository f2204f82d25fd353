import { expect, test } from 'vitest'
import {
  CostTooHighError,
  combine,
  createLimiter,
  InvalidCostError,
  InvalidInputError,
  InvalidKeyError,
  InvalidLimitError,
  InvalidRateError,
  LimitConflictError,
  type LimiterOptions,
  type LimitKey,
} from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { keysWith, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const refused = async (running: Promise<unknown>) => running.then(String, (error: unknown) => error)

const window = { algorithm: 'fixed-window' } as const
const lease = { algorithm: 'concurrency', concurrency: 2 } as const
const tiers = { free: { rate: '1/s' } }
const creations: readonly (readonly [
  what: string,
  options: object,
  message: RegExp,
  error?: typeof InvalidRateError,
])[] = [
  [
    'an unknown algorithm',
    { algorithm: 'token' },
    /algorithm must be one of 'fixed-window', .*'concurrency'; got "token"/,
  ],
  ['a rate of zero', { rate: '0/s' }, /rate must be '50\/s'.*got '0\/s'/, InvalidRateError],
  ['a rate below zero', { rate: { limit: -1, period: 1000 } }, /rate must be .*"limit":-1/, InvalidRateError],
  ['a rate without a unit', { rate: '100' }, /got '100'/, InvalidRateError],
  ['a period of zero', { rate: { limit: 1, period: 0 } }, /"period":0/, InvalidRateError],
  [
    'a window shorter than a ms',
    { ...window, rate: { limit: 5, period: 0.5 } },
    /fixed-window must be a whole number of ms/,
  ],
  ['a window of a ms and a half', { ...window, rate: { limit: 5, period: 1.5 } }, /at least 1; got 1.5/],
  ['a burst of 0', { burst: 0 }, /burst must be a whole number >= 1; got 0/],
  ['a burst of one and a half', { burst: 1.5 }, /got 1.5/],
  ['a missing rate', { rate: undefined }, /a limit of gcra needs rate; got none/],
  ['a missing concurrency', { algorithm: 'concurrency', rate: undefined }, /concurrency needs concurrency; got none/],
  ['concurrency with a rate', lease, /a limit of concurrency has no rate: it needs concurrency/],
  ['a rate with concurrency', { concurrency: 5 }, /a limit of gcra has no concurrency: it needs rate/],
  [
    'a concurrency of 0',
    { ...lease, rate: undefined, concurrency: 0 },
    /concurrency must be a whole number >= 1; got 0/,
  ],
  ['a lease of no time', { ...lease, rate: undefined, leaseMs: 0 }, /leaseMs must be a whole number of ms >= 1; got 0/],
  [
    'an unknown align',
    { ...window, align: 'year' },
    /align must be 'epoch', 'first', 'day', 'week' or 'month'; got "year"/,
  ],
  ["align 'day' with an hourly rate", { ...window, rate: '5/h', align: 'day' }, /'day' needs a rate per day.*got 5\/h/],
  [
    "align 'month' with a weekly rate",
    { ...window, rate: '5/week', align: 'month' },
    /'month' needs a rate per month, as '10000\/month'; got 5\/week/,
  ],
  [
    'an unknown time zone',
    { ...window, rate: '5/day', align: 'day', timeZone: 'Mars' },
    /timeZone must be an IANA name.*"Mars"/,
  ],
  ['tiers without tierOf', { tiers }, /tiers and tierOf belong together/],
  ['tierOf without tiers', { tierOf: { joe: 'free' } }, /tiers and tierOf belong together/],
  ['a tier with a wrong rate', { tiers: { free: { rate: '0/s' } }, tierOf: {} }, /got '0\/s'/, InvalidRateError],
  ['a tier with a bad name', { tiers: { 'a:b': {} }, tierOf: {} }, /a limit needs a name.*got "a:b"/],
  ['a share of 1', { burst: 10, reservedShare: 1 }, /reservedShare must be a number from 0 to below 1; got 1/],
  [
    'a share too large for the burst',
    { burst: 3, reservedShare: 0.75 },
    /leaves queues less than 1 of burst 3: set burst to at least 4/,
  ],
  ['a wait before lending below zero', { lendAfterMs: -1 }, /lendAfterMs must be a number of ms >= 0; got -1/],
  ['an unknown mode', { mode: 'maybe' }, /mode must be 'enforce', 'shadow' or 'off'; got "maybe"/],
  ['an unknown onError', { onError: 'ignore' }, /onError must be 'throw', 'allow' or 'deny'; got "ignore"/],
  ['an onFailure that is no function', { onFailure: true }, /onFailure must be a function; got true/],
  ['no time for Redis', { timeoutMs: 0 }, /timeoutMs must be a number of ms > 0; got 0/],
  ['no keys', { maxKeys: 0 }, /maxKeys must be a whole number >= 1; got 0/],
  ['a version that is no number', { version: '2' }, /version must be a whole number; got "2"/],
  [
    'a prefix that ends in a colon',
    { prefix: 'app:' },
    /prefix must be a string without a colon at its end; got "app:"/,
  ],
  ['no name', { name: undefined }, /a limit needs a name of 1 to 64 letters.*got undefined/],
  ['an empty name', { name: '' }, /got ""/],
  ['a name with a colon', { name: 'a:b' }, /got "a:b"/],
  ['a name with braces', { name: '{a}' }, /got "\{a\}"/],
  ['a name too long', { name: 'n'.repeat(65) }, /got "nnn/],
]

test.each(creations)(
  '%s is refused, and says what was expected',
  async (_, options, message, error = InvalidLimitError) => {
    const create = () => limiter({ name: 'refused', rate: '1/s', ...(options as object) } as LimiterOptions)
    expect(create).toThrow(error)
    expect(create).toThrow(message)
  },
)

test('a refused creation, and a limiter that nobody asks, store nothing', async () => {
  limiter({ name: 'unasked', rate: '1/s' })
  for (const [, options] of creations) {
    expect(() =>
      createLimiter(client, {
        name: 'refused',
        prefix: redis.prefix,
        rate: '1/s',
        ...(options as object),
      } as LimiterOptions),
    ).toThrow()
  }
  expect(await keysWith(client, redis.prefix)).toEqual([])
})

test('a share that leaves queues just one unit is taken', () => {
  limiter({ name: 'just-one', rate: '1/s', burst: 5, reservedShare: 0.8 })
})

test('a cost above the burst can never pass: both are named, and nothing is stored', async () => {
  const error = await refused(limiter({ name: 'costly', rate: '1/s', burst: 3 }).take('joe', { cost: 4 }))
  expect(error).toBeInstanceOf(CostTooHighError)
  expect(error).toMatchObject({
    cost: 4,
    burst: 3,
    message: expect.stringMatching(/cost 4 exceeds .*\b3\b.* to at least 4/),
  })
  const daily = limiter({ name: 'costly', algorithm: 'sliding-window-log', rate: '5/day' })
  expect(await refused(daily.take('joe', { cost: 6 }))).toMatchObject({ cost: 6, burst: 5 })
  expect(await keysWith(client, '{costly}')).toEqual([])
})

test('bad costs are refused, and charge nothing', async () => {
  const api = limiter({ name: 'costs', rate: '1/h', burst: 3 })
  for (const cost of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, '1' as unknown as number]) {
    for (const asked of [api.take('joe', { cost }), api.peek('joe', { cost }), api.wait('joe', { cost })]) {
      expect(await refused(asked)).toBeInstanceOf(InvalidCostError)
    }
  }
  const leases = limiter({ name: 'lease-costs', ...lease })
  await expect(leases.take('joe', { cost: 1.5 })).rejects.toThrow('cost must be a whole number of leases; got 1.5')
  await expect(api.penalty('joe', Number.NaN)).rejects.toThrow('units must be a number; got NaN')
  await expect(api.block('joe', -1)).rejects.toThrow('block needs a number of ms >= 0; got -1')
  await expect(api.setMode('on' as 'off')).rejects.toThrow("mode must be 'enforce', 'shadow' or 'off'")
  await expect(leases.penalty('joe')).rejects.toThrow('they cannot be charged')
  expect((await api.peek('joe')).remaining).toBe(3)
})

test.each([
  ['points', 5, "rate: '5/15min'"],
  ['duration', 0, 'reset(key)'],
  ['blockDuration', 60, 'block(key, ms)'],
  ['insuranceLimiter', {}, 'onError'],
])('%s of another package is refused, and the error says what to do', (option, value, said) => {
  const make = () => limiter({ name: 'other', rate: '1/s', [option]: value } as never)
  expect(make).toThrow(InvalidLimitError)
  expect(make).toThrow(said)
})

test('a limit of 0 and a window for a call are refused, and the error says what to do; a debt is read as a time', async () => {
  expect(() => limiter({ name: 'none', rate: '0/s' })).toThrow(/got '0\/s'\. To let nothing pass.*block the key/)
  const api = limiter({ name: 'debt', algorithm: 'token-bucket', rate: '1/h', burst: 2 })
  await expect(api.take('joe', { duration: 60 } as never)).rejects.toThrow(/no option 'duration'.*tiers/)
  await api.penalty('joe', 5)
  const { allowed, remaining, retryAfterMs } = await api.peek('joe')
  expect([allowed, remaining]).toEqual([false, 0])
  // Three units are owed, and one is asked for.
  expect(Math.abs(retryAfterMs - 4 * 3_600_000)).toBeLessThan(120_000)
})

test('bad keys are refused', async () => {
  const api = limiter({ name: 'keys', rate: '1/h' })
  const bad = ['', 'k'.repeat(4097), Number.NaN, null, {}, [], [''], ['a', null], [['a']]]
  for (const key of bad) {
    const error = await refused(api.take(key as LimitKey))
    expect([key, error]).toEqual([key, expect.any(InvalidKeyError)])
  }
  expect((await api.take('k'.repeat(4096))).allowed).toBe(true)
})

test('a key of an unknown tier is refused; one without a tier has the own rule', async () => {
  const table = { eve: 'gold' }
  const api = limiter({ name: 'tiers', rate: '1/h', tiers: { free: { burst: 3 } }, tierOf: { ...table, joe: 'free' } })
  await expect(api.take('eve')).rejects.toThrow('limit "tiers" has the tiers \'free\'; got "gold"')
  expect([(await api.take('joe')).limit, (await api.take('ann')).limit, (await api.take('toString')).limit]).toEqual([
    3, 1, 1,
  ])
})

test('combine refuses what it can not ask together', async () => {
  const one = limiter({ name: 'one', rate: '1/h' })
  expect(() => combine([])).toThrow('combine needs at least one limit')
  expect(() => combine([one, limiter({ name: 'one', rate: '2/h' })])).toThrow('limit "one" is given twice')
  const other = createLimiter(redis.client(), { name: 'other', rate: '1/h' })
  expect(() => combine([one, other])).toThrow('"one" and "other" have different clients')
  await expect(combine([one]).take({ two: 'joe' })).rejects.toThrow('there is no limit "two" here; there are "one"')
  for (const [wrong, came] of [
    ['ada', '"ada"'],
    [['ada'], '["ada"]'],
    [null, 'null'],
    [7, '7'],
  ]) {
    const expected = `keys of combined limits must be an object of keys by the names of the limits, such as { "one": 'ada' }; got ${came}`
    await expect(combine([one]).take(wrong as never)).rejects.toThrow(expected)
    await expect(combine([one]).peek(wrong as never)).rejects.toThrow(expected)
  }
  await expect(combine([one]).take({}, 2 as never)).rejects.toThrow('options of combined limits must be an object')
  await expect(combine([one]).take({}, { costs: 2 as never })).rejects.toThrow('costs of combined limits must be')
  await expect(combine([one]).take({}, { costs: { two: 1 } })).rejects.toThrow('there is no limit "two"')
})

test('options that a call does not have are refused, and charge nothing', async () => {
  const [limit, other] = [
    limiter({ name: 'calls', rate: '1/h', burst: 5 }),
    limiter({ name: 'calls-too', rate: '1/h' }),
  ]
  const both = combine([limit, other])
  const calls: readonly [Promise<unknown>, RegExp][] = [
    [limit.take('ada', { csot: 2 } as never), /take has no option 'csot'; it has cost/],
    [limit.take('ada', 2 as never), /take takes an object of options, of cost; got 2/],
    [limit.take('ada', null as never), /got null/],
    [limit.peek('ada', { costs: 2 } as never), /peek has no option 'costs'/],
    [limit.wait('ada', { timeout: 2 } as never), /wait has no option 'timeout'; it has cost, timeoutMs/],
    [both.take({ calls: 'ada' }, { csot: 2 } as never), /take has no option 'csot'; it has cost, costs/],
  ]
  for (const [call, message] of calls) {
    const refusal = await refused(call)
    expect(refusal).toBeInstanceOf(InvalidInputError)
    expect(String(refusal)).toMatch(message)
  }
  expect((await limit.peek('ada')).remaining).toBe(5)
  expect(() => combine(['calls'] as never)).toThrow(/combine takes a list of limiters.*got "calls"/)
})

test('two definitions of one name: the second is refused, both are named, and the first stays', async () => {
  await limiter({ name: 'conflict', rate: '60/min', burst: 2 }).take()
  const second = limiter({ name: 'conflict', rate: '90/min', burst: 2 })
  const error = await refused(second.take())
  expect(error).toBeInstanceOf(LimitConflictError)
  expect(error).toMatchObject({
    limitName: 'conflict',
    given: expect.stringContaining('90/min'),
    stored: expect.stringContaining('60/min'),
  })
  expect((error as Error).message).toMatch(/already defined as .*"60\/min".*; got .*"90\/min"/)
  const calls = [second.take(), second.peek(), second.wait(), second.penalty(), second.block('joe', 1), second.reset()]
  for (const refusal of await Promise.all(calls.map(refused))) expect(refusal).toBeInstanceOf(LimitConflictError)
  // However it is written, it is the same limit.
  expect((await limiter({ name: 'conflict', rate: { limit: 60, period: 60_000 }, burst: 2 }).take()).allowed).toBe(true)
})
