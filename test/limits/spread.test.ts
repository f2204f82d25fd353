import { expect, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { combine, InvalidLimitError, LimitConflictError, type LimiterOptions } from '../../src/limits/index.ts'
import { partControls } from '../../src/limits/spread-keys.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, keysWith, times, useLimiters } from './support/limiters.ts'
import { KEY_OF_PART } from './support/part-keys.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)
const { prefix } = redis
const TOGETHER = { rate: '1/h', burst: 3 } as const
const SPREAD = { ...TOGETHER, spread: 'key' } as const

test('a spread limit is one limit for each key, whatever part it falls into', async () => {
  const api = limiter({ name: 'each', ...SPREAD })
  const answers = await Promise.all(KEY_OF_PART.flatMap((key) => times(5, () => api.take(key))))
  expect(countAllowed(answers)).toBe(3 * KEY_OF_PART.length)
  const peeks = await Promise.all(KEY_OF_PART.map((key) => limiter({ name: 'each', ...SPREAD }).peek(key)))
  expect(peeks.map(({ remaining }) => remaining)).toEqual(KEY_OF_PART.map(() => 0))
})

test('all that is known of a key lies under the tag of its part', async () => {
  const names = ['first', 'second']
  for (const name of names) {
    const api = limiter({ name, ...SPREAD, algorithm: 'token-bucket' })
    await api.take('ada')
    await api.block('ada', 60_000)
    await api.wait('ada', { timeoutMs: 0 }).catch(() => {})
  }
  const found = await Promise.all(names.map((name) => keysWith(client, `:${name}:`)))
  const tags = new Set(found.flat().map((key) => /\{(keys:\w:)\}/.exec(key)?.[1]))
  // Its state, its block, its switch, what the take charged, and the turn.
  expect(found.map(({ length }) => length)).toEqual([4, 4])
  expect(tags.size).toBe(1)
})

test('combined limits that are spread, and one that is not, are charged all or none', async () => {
  const perUser = limiter({ name: 'per-user', ...SPREAD })
  const perHour = limiter({ name: 'per-hour', algorithm: 'fixed-window', rate: '9/h', spread: 'key' })
  const all = limiter({ name: 'all', rate: '1/h', burst: 5 })
  const api = combine([perUser, perHour, all])
  const take = (user: string) => api.take({ 'per-user': user, 'per-hour': user })
  const answers = await Promise.all(['ada', 'bob', 'eve'].flatMap((user) => times(4, () => take(user))))
  expect(countAllowed(answers)).toBe(5)
  const left = await Promise.all(['ada', 'bob', 'eve'].map((user) => perHour.peek(user)))
  expect(left.reduce((sum, { remaining }) => sum + 9 - remaining, 0)).toBe(5)
})

test('penalty, reward, block and reset find the key', async () => {
  const api = limiter({ name: 'verbs', ...SPREAD })
  for (const key of KEY_OF_PART.slice(0, 8)) {
    await api.penalty(key, 3)
    expect(await api.take(key)).toMatchObject({ allowed: false })
    await api.reward(key, 1)
    expect(await api.take(key)).toMatchObject({ allowed: true, remaining: 0 })
    await api.reset(key)
    expect(await api.peek(key)).toMatchObject({ remaining: 3 })
    await api.block(key, 60_000)
    expect(await api.take(key)).toMatchObject({ allowed: false })
    await api.block(key, 0)
    expect(await api.take(key)).toMatchObject({ allowed: true })
  }
})

test('a place that is given back is told to those who wait for the same key, in whatever part', async () => {
  const rooms = limiter({ name: 'rooms', algorithm: 'concurrency', concurrency: 1, leaseMs: 60_000, spread: 'key' })
  const keys = KEY_OF_PART.slice(0, 5)
  const held = await Promise.all(keys.map((key) => rooms.take(key)))
  const waits = keys.map((key) => rooms.wait(key, { timeoutMs: 20_000 }))
  const subscribed = () => client.pubsub('NUMSUB', ...partControls(prefix, 'rooms').map((part) => `${part}:wake`))
  await expect.poll(async () => (await subscribed()).filter((count) => Number(count) > 0)).toHaveLength(keys.length)
  await Promise.all(held.map(({ lease }) => lease?.release()))
  expect(countAllowed(await Promise.all(waits))).toBe(keys.length)
})

test('leases of memory are taken from the part of the key', async () => {
  const api = limiter({
    name: 'memory',
    rate: '1/h',
    burst: 10,
    spread: 'key',
    sync: { intervalMs: 60_000, share: 0.5 },
  })
  const answers = await Promise.all(KEY_OF_PART.slice(0, 6).flatMap((key) => times(20, () => api.take(key))))
  expect(countAllowed(answers)).toBe(60)
})

test('the rules of tiers are spread too', async () => {
  const tiers = { free: { rate: '1/h', burst: 1 } }
  const api = limiter({ name: 'tiers', ...SPREAD, tiers, tierOf: (key) => (key === 'ada' ? 'free' : undefined) })
  const answers = await Promise.all(['ada', 'bob'].flatMap((key) => times(5, () => api.take(key))))
  expect(countAllowed(answers)).toBe(4)
})

const refusals: readonly (readonly [what: string, options: Partial<LimiterOptions>, message: RegExp])[] = [
  ['another word', { spread: 'slot' as 'key' }, /spread must be 'key'; got "slot"/],
  ['a prefix with a hash tag', { prefix: '{acme}' }, /prefix '\{acme\}': its hash tag puts all keys into one slot/],
  ['maxKeys', { maxKeys: 5 }, /maxKeys: no node sees all keys/],
  ['reservedShare', { reservedShare: 0.5 }, /reservedShare: queues cannot share a limit that is spread/],
]

test.each(refusals)('spread does not go with %s', (_, options, message) => {
  expect(() => limiter({ name: 'refused', ...SPREAD, ...options })).toThrow(InvalidLimitError)
  expect(() => limiter({ name: 'refused', ...SPREAD, ...options })).toThrow(message)
})

test.each([
  ['spread', SPREAD, TOGETHER],
  ['together', TOGETHER, SPREAD],
] as const)('a limit whose keys are %s stays so, also for a higher version', async (how, one, other) => {
  const name = `stays-${how}`
  await limiter({ name, ...one }).take('ada')
  const before = await keysWith(client, name)
  for (const version of [{}, { version: 2 }]) {
    const asking = limiter({ name, ...other, ...version }).take('ada')
    await expect(asking).rejects.toThrow(LimitConflictError)
    await expect(asking).rejects.toThrow("use another name: 'spread' cannot be changed")
  }
  expect(await keysWith(client, name)).toEqual(before)
})

test('a queue can not share a spread limit', async () => {
  const shape = (limit: object) =>
    ({ limits: [{ name: 'upstream', rate: '1/h', burst: 3, prefix, ...limit }] }) as never
  const open = (limit: object) => new ShapedQueue('mails', { connection: client, prefix, shape: shape(limit) })
  expect(() => open({ shared: true, spread: 'key' })).toThrow(InvalidLimitError)
  expect(() => open({ shared: true, spread: 'key' })).toThrow(
    /spread of limit "upstream" must be .even., as the limits of a queue/,
  )

  await limiter({ name: 'upstream', ...SPREAD }).take('ada')
  for (const version of [undefined, 2]) {
    const queue = open({ shared: true, version })
    await expect(queue.add('mail', {})).rejects.toThrow(LimitConflictError)
    expect(await queue.count()).toBe(0)
    await queue.close()
  }
  expect(await limiter({ name: 'upstream', ...SPREAD }).peek('ada')).toMatchObject({ remaining: 2 })
})
