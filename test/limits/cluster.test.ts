import { expect, test } from 'vitest'
import { combine, createLimiter, type LimiterOptions } from '../../src/limits/index.ts'
import { scriptsOfNodes, useCluster } from './support/cluster.ts'
import { countAllowed, keysWith, PATIENT, times } from './support/limiters.ts'

const cluster = useCluster()
const limiter = (options: LimiterOptions) => createLimiter(cluster.client, { ...PATIENT, ...options })

/** How many scripts all nodes ran meanwhile. */
async function countScripts(act: () => Promise<unknown>): Promise<number> {
  return (await scriptsOfNodes(cluster.client, act)).reduce((sum, count) => sum + count, 0)
}

/** The node that a key of a limit is on. */
async function nodeOf(name: string): Promise<string | undefined> {
  const nodes = cluster.client.nodes('master')
  const found = await Promise.all(
    nodes.map(async (node) => (await node.keys(`*${name}*`)).length > 0 && node.options.port),
  )
  return found.find((port) => port !== false)?.toString()
}

test('limits of all kinds lie on all nodes, each with its keys in one slot, and let exactly the limit pass', async () => {
  const rules = [
    { rate: '20/day', burst: 20 },
    { algorithm: 'fixed-window', rate: '20/day' },
    { algorithm: 'sliding-window-counter', rate: '20/day' },
    { algorithm: 'concurrency', concurrency: 20 },
  ] as const
  const limits = times(12, (i) =>
    limiter({ name: `kind-${i}`, maxKeys: 2, ...(rules[i % rules.length] as (typeof rules)[0]) }),
  )
  const answers = await Promise.all(limits.flatMap((limit) => times(30, () => limit.take('joe'))))
  for (const { name } of limits) {
    expect([name, countAllowed(answers.filter(({ policy }) => policy === name))]).toEqual([name, 20])
  }
  expect(new Set(await Promise.all(limits.map(({ name }) => nodeOf(name)))).size).toBe(3)
})

test('waiting, blocking, settling, modes and reset work on a cluster', async () => {
  const api = limiter({ name: 'verbs', rate: '20/s', maxKeys: 5 })
  await Promise.all(times(3, () => api.wait('joe')))
  await api.penalty('joe', 100)
  expect((await api.peek('joe')).allowed).toBe(false)
  await api.reset('joe')
  await api.block('joe', 60_000)
  expect((await api.take('joe')).allowed).toBe(false)
  await api.block('joe', 0)
  await api.reward('joe', 1)
  expect((await api.take('joe')).allowed).toBe(true)
  await api.setMode('off')
  expect((await api.take('joe')).allowed).toBe(true)
  const places = limiter({ name: 'places', algorithm: 'concurrency', concurrency: 1 })
  const { lease } = await places.take('joe')
  expect([await lease?.extend(), await lease?.release()]).toEqual([true, true])
})

test('limits that share a hash tag are one script', async () => {
  const limits = times(4, (i) =>
    limiter({ name: `tagged-${i}`, prefix: '{acme}', rate: '1/h', burst: i === 2 ? 1 : 5 }),
  )
  const api = combine(limits)
  await api.peek()
  const keys = Object.fromEntries(limits.map(({ name }, i) => [name, `key-${i}`]))
  expect(await countScripts(async () => expect(await api.take(keys)).toMatchObject({ allowed: true }))).toBe(1)
  expect(await countScripts(async () => expect(await api.take(keys)).toMatchObject({ policy: 'tagged-2' }))).toBe(1)
  expect((await api.peek(keys)).answers.map(({ remaining }) => remaining)).toEqual([4, 4, 0, 4])
})

test('limits in several slots: what was charged is given back when a later one refuses', async () => {
  const wide = limiter({ name: 'wide', prefix: '{a}', rate: '9/h', burst: 9 })
  const places = limiter({ name: 'held', prefix: '{c}', algorithm: 'concurrency', concurrency: 5 })
  const narrow = limiter({ name: 'narrow', prefix: '{b}', rate: '1/h' })
  const after = limiter({ name: 'after', prefix: '{d}', rate: '9/h', burst: 9 })
  const api = combine([wide, places, narrow, after])
  const keys = { wide: 'joe', held: 'joe', narrow: 'joe', after: 'joe' }
  const left = () =>
    Promise.all([wide, places, narrow, after].map(async (limit) => (await limit.peek('joe')).remaining))
  expect(await api.take(keys, { costs: { wide: 3, held: 2 } })).toMatchObject({ allowed: true, policy: 'narrow' })
  expect(await left()).toEqual([6, 3, 0, 8])
  const refused = await api.take(keys, { costs: { wide: 3, held: 2 } })
  expect(refused).toMatchObject({ allowed: false, policy: 'narrow' })
  expect(refused.retryAfterMs).toBeGreaterThan(0)
  expect(await left()).toEqual([6, 3, 0, 8])
  expect(await keysWith(cluster.client, '{b}:limit:narrow')).not.toEqual([])
})

test('limits in several slots: one in shadow gets back no more than it charged', async () => {
  const shadow = limiter({ name: 'in-shadow', prefix: '{a}', rate: '1/h', mode: 'shadow' })
  const narrow = limiter({ name: 'refuses', prefix: '{b}', rate: '1/h' })
  const api = combine([shadow, narrow])
  expect((await api.take()).allowed).toBe(true)
  expect((await api.take()).allowed).toBe(false)
  expect((await shadow.peek()).remaining).toBe(0)
})
