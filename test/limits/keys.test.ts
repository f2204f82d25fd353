import { expect, test } from 'vitest'
import { ALGORITHMS, type Algorithm } from '../../src/limits/definition.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, keysWith, statesWith, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const rules = ALGORITHMS.map((algorithm) =>
  algorithm === 'concurrency' ? { algorithm, concurrency: 50 } : { algorithm, rate: '50/h' as const, burst: 50 },
)

/** Bytes of a key after fifty takes, MEMORY USAGE; the name of the key is about 60 of them. */
const MOST_BYTES: Readonly<Record<Algorithm, number>> = {
  gcra: 200,
  'token-bucket': 200,
  'leaky-bucket': 200,
  'fixed-window': 200,
  'sliding-window-counter': 200,
  // These two are as large as the limit: about 20 and about 40 bytes for each unit that counts.
  'sliding-window-log': 200 + 50 * 20,
  concurrency: 200 + 50 * 40,
}

test.each([[{}], [{ sync: { intervalMs: 60_000 } }], [{ spread: 'key' as const }]])(
  'calls without a key share a state that no key names (%j)',
  async (more) => {
    const api = limiter({ name: `keyless-${Object.keys(more)}`, algorithm: 'fixed-window', rate: '9/day', ...more })
    const keys = ['all', '*', ':', '[]', '~', ['*', '*']]
    for (const key of keys) await api.take(key, { cost: 9 })
    expect((await api.take()).allowed).toBe(true)
    await api.block(undefined, 60_000)
    expect((await api.take(undefined, { cost: 2 })).allowed).toBe(false)
    await api.reset()
    await api.penalty(undefined, 4)
    expect((await api.peek()).remaining).toBe(5)
    for (const key of keys) expect([key, (await api.peek(key)).allowed]).toEqual([key, false])
  },
)

// Fault table, row 25.
test.each(rules)(
  '$algorithm: one key for any number of requests, which expires by itself, of a stated size',
  async (rule) => {
    const name = `one-${rule.algorithm}`
    const api = limiter({ name, ...rule })
    const answers = []
    for (let i = 0; i < 60; i++) answers.push(await api.take('joe'))
    expect(countAllowed(answers)).toBe(50)
    const keys = await statesWith(client, `{${name}}:`)
    expect(keys).toHaveLength(1)
    const [key] = keys as [string]
    expect(await client.pttl(key)).toBeGreaterThan(0)
    expect(await client.memory('USAGE', key, 'SAMPLES', 0)).toBeLessThanOrEqual(MOST_BYTES[rule.algorithm])
  },
)

test.each(rules)(
  '$algorithm: asking, settling, blocking and waiting leave nothing that stays for ever',
  async (rule) => {
    const name = `all-${rule.algorithm}`
    const api = limiter({ name, ...rule })
    await api.peek('nobody')
    expect(await keysWith(client, `{${name}}:`)).toEqual([])
    await api.take('joe')
    await api.block('eve', 60_000)
    if (rule.algorithm !== 'concurrency') {
      await api.penalty('joe', 60)
      await api.reward('ann', 2)
      const stop = new AbortController()
      const waits = [api.wait('bob', { cost: 50 }), api.wait('bob', { signal: stop.signal })]
      await waits[0]
      stop.abort()
      await waits[1]?.catch(() => {})
    }
    const keys = await keysWith(client, `{${name}}:`)
    expect(keys.length).toBeGreaterThan(1)
    const left = await Promise.all(keys.map(async (key) => [key, (await client.pttl(key)) > 0]))
    expect(left).toEqual(keys.map((key) => [key, true]))
  },
)

test('a state is gone once it says nothing any more', async () => {
  const api = limiter({ name: 'gone', rate: '100/s' })
  await api.take('joe')
  await expect.poll(() => statesWith(client, '{gone}:')).toEqual([])
})

test('beyond the maximum number of keys all further ones share one state, and their answers say so', async () => {
  const api = limiter({ name: 'bounded', rate: '3/h', burst: 3, maxKeys: 2 })
  for (const key of ['ann', 'bob']) expect(await api.take(key)).not.toHaveProperty('sharesKey')
  const others = [await api.take('eve'), await api.take('joe'), await api.take('sue'), await api.take('tom')]
  expect(others).toMatchObject([
    { allowed: true, sharesKey: true, remaining: 2 },
    { allowed: true, sharesKey: true, remaining: 1 },
    { allowed: true, sharesKey: true, remaining: 0 },
    { allowed: false, sharesKey: true },
  ])
  expect(await api.take('ann')).toMatchObject({ allowed: true, remaining: 1 })
  for (let i = 0; i < 50; i++) await api.take(`one-more-${i}`)
  expect(await keysWith(client, '{bounded}:g:')).toHaveLength(2)
  // A key that is forgotten makes room.
  await api.reset('bob')
  expect(await api.take('eve')).toMatchObject({ allowed: true, remaining: 2 })
})

test('a key makes room once it says nothing any more', async () => {
  const api = limiter({ name: 'room', rate: '20/s', maxKeys: 1 })
  await api.take('ann')
  await expect.poll(async () => 'sharesKey' in (await api.peek('bob'))).toBe(false)
  expect(await api.take('bob')).not.toHaveProperty('sharesKey')
})

test('those that wait are as many keys as there may be', async () => {
  const api = limiter({ name: 'waiters', rate: '1/h', maxKeys: 2 })
  for (let i = 0; i < 5; i++) await api.wait(`key-${i}`, { timeoutMs: 0 }).catch(() => {})
  expect(await statesWith(client, '{waiters}:g:')).toHaveLength(2)
})

test('the answer to a penalty says whether the key has a unit left', async () => {
  const api = limiter({ name: 'left', rate: '1/h', burst: 5 })
  const answers = [await api.penalty('joe', 4), await api.penalty('joe'), await api.reward('joe')]
  expect(answers.map(({ allowed }) => allowed)).toEqual([true, false, true])
  for (const answer of answers) expect(answer).not.toHaveProperty('sharesKey')
})

test('the answer to a penalty says that the key shares its state', async () => {
  const api = limiter({ name: 'settled', rate: '1/h', burst: 5, maxKeys: 1 })
  await api.take('ann')
  expect(await api.penalty('bob')).toMatchObject({ allowed: true, sharesKey: true })
  expect(await api.penalty('bob', 4)).toMatchObject({ allowed: false, sharesKey: true })
})

test('no key is where another one has its waiters', async () => {
  const api = limiter({ name: 'apart', rate: '1/h' })
  await api.wait('joe')
  const stop = new AbortController()
  const waiting = api.wait('joe', { signal: stop.signal }).catch(() => {})
  await expect.poll(() => keysWith(client, '{apart}:g:joe')).toHaveLength(2)
  try {
    expect((await api.take(['joe', 'waiting'])).allowed).toBe(true)
  } finally {
    stop.abort()
    await waiting
  }
})
