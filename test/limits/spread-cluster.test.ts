import type { Cluster, Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { Decider } from '../../src/limits/decider.ts'
import type { LimitRule, LimitWire } from '../../src/limits/definition.ts'
import { combine, createLimiter, type Limiter, type LimiterOptions } from '../../src/limits/index.ts'
import { LimitSet } from '../../src/limits/limit.ts'
import { LimitClient } from '../../src/limits/limit-client.ts'
import { partControls, SPREAD_PARTS } from '../../src/limits/spread-keys.ts'
import { uniqueId } from '../../src/redis/ids.ts'
import { createModel } from './model/model.ts'
import { scriptsOfNodes, useCluster } from './support/cluster.ts'
import { countAllowed, keysWith, PATIENT, statesWith, times } from './support/limiters.ts'
import { KEY_OF_PART } from './support/part-keys.ts'

const cluster = useCluster()
const nodes = () => cluster.client.nodes('master')
const limiter = (options: LimiterOptions, client = cluster.client) => createLimiter(client, { ...PATIENT, ...options })
const SPREAD = { rate: '1/h', burst: 3, spread: 'key' } as const

/** Another program's client. */
function anotherClient(): Cluster {
  const client = cluster.client.duplicate()
  onTestFinished(() => client.disconnect())
  return client
}

const scriptsOf = (act: () => Promise<unknown>) => scriptsOfNodes(cluster.client, act)

/** The keys that hold that text, each with how long it stays: ms, -1 for good. */
async function lifetimesOf(text: string): Promise<Map<string, number>> {
  const found = await keysWith(cluster.client, text)
  const lifetimes = await Promise.all(found.map((key) => cluster.client.pttl(key)))
  return new Map(found.map((key, i) => [key, lifetimes[i] as number]))
}

async function forGood(text: string): Promise<string[]> {
  return [...(await lifetimesOf(text))].filter(([, ms]) => ms === -1).map(([key]) => key)
}

const peekAll = (one: Limiter) => Promise.all(KEY_OF_PART.map((key) => one.peek(key)))

test('each part lies in another 16th of the slots', async () => {
  const [node] = nodes() as [Redis]
  const slots = (await Promise.all(
    partControls('sluice', 'any').map((control) => node.call('CLUSTER', 'KEYSLOT', control)),
  )) as number[]
  const places = slots.map((slot) => Math.floor(slot / (16_384 / SPREAD_PARTS)))
  expect(places.toSorted((a, b) => a - b)).toEqual(times(SPREAD_PARTS, (i) => i))
})

test('all nodes decide about keys of one limit, each about a third of many', async () => {
  const api = limiter({ name: 'thirds', ...SPREAD })
  await api.peek()
  const users = times(900, (i) => `user-${i}`)
  const scripts = await scriptsOf(async () => {
    for (const user of users) await api.take(user)
  })
  expect(scripts.reduce((sum, count) => sum + count, 0)).toBe(users.length)
  for (const count of scripts) expect(count).toBeGreaterThan(users.length / 4)
})

interface Decided {
  readonly nowUs: number
  readonly allowed: boolean
  readonly waitUs: number
  readonly left: number
  readonly lease: number
}

/** Keeps asking for the keys; what was decided for each, in the order of Redis's clock. */
async function hammer(clients: readonly Cluster[], rule: LimitRule, keys: readonly string[], rounds: number) {
  const { base } = new LimitSet({ name: `exact-${rule.algorithm}`, ...rule, spread: 'key' })
  const decided = new Map<string, Decided[]>(keys.map((key) => [key, []]))
  let leases = 0
  const askAs = async (client: Cluster) => {
    for (let round = 0; round < rounds; round++) {
      const asked = keys
        .flatMap((key) => [key, key])
        .map(async (key) => {
          const lease = ++leases
          const named = rule.algorithm === 'concurrency' ? uniqueId() : undefined
          const said = await Decider.of(client).decide([base.part(key, 1, named)], true, PATIENT.timeoutMs)
          const one = { nowUs: said.nowUs, allowed: said.allowed, waitUs: said.waitUs(0), left: said.left(0), lease }
          decided.get(key)?.push(one)
        })
      await Promise.all(asked)
    }
  }
  await Promise.all(clients.map(askAs))
  for (const list of decided.values()) list.sort((one, other) => one.nowUs - other.nowUs)
  return { wire: JSON.parse(base.wire) as LimitWire, decided }
}

const rules: readonly LimitRule[] = [
  { algorithm: 'gcra', rate: '20/s', burst: 3 },
  { algorithm: 'token-bucket', rate: '20/s', burst: 3 },
  { algorithm: 'leaky-bucket', rate: '20/s', burst: 3 },
  { algorithm: 'fixed-window', rate: { limit: 4, period: 100 } },
  { algorithm: 'sliding-window-log', rate: { limit: 4, period: 100 } },
  { algorithm: 'sliding-window-counter', rate: { limit: 4, period: 100 } },
  { algorithm: 'concurrency', concurrency: 4, leaseMs: 100 },
]

test.each(rules)(
  '$algorithm: what three programs are told at once about spread keys is what the model says',
  async (rule) => {
    const keys = KEY_OF_PART.filter((_, part) => part % 2 === 0)
    const { wire, decided } = await hammer([cluster.client, anotherClient(), anotherClient()], rule, keys, 40)
    let refused = 0
    for (const [key, list] of decided) {
      const model = createModel(wire)
      for (const [i, { nowUs, allowed, waitUs, left, lease }] of list.entries()) {
        model.now = nowUs
        const offset = model.earliest(1)
        if (offset <= 0) model.commit(1, 0, lease)
        else refused += 1
        const expected = [offset <= 0, Math.ceil(offset), Math.max(0, Math.floor(model.view().left))]
        expect([allowed, waitUs, left], `${key}, decision ${i}`).toEqual(expected)
      }
    }
    expect(refused).toBeGreaterThan(0)
  },
)

test('what stays for good of a limit does not grow with its users, and the rest goes by itself', async () => {
  const plain = limiter({ name: 'stays', rate: '100/s', burst: 5, spread: 'key' })
  const places = limiter({ name: 'stays-too', algorithm: 'concurrency', concurrency: 2, leaseMs: 1000, spread: 'key' })
  const versioned = limiter({ name: 'stays-with-version', rate: '100/s', burst: 5, spread: 'key', version: 1 })
  const use = async (from: number) => {
    await Promise.all(
      times(200, async (i) => {
        const user = `${from + i}@example.com`
        await Promise.all([
          plain.take(user),
          versioned.take(user),
          plain.block(user, 500),
          plain.wait(user, { cost: 5 }).catch(() => {}),
        ])
        const { lease } = await places.take(user)
        if (i % 2 === 0) await lease?.release()
      }),
    )
  }
  const whatStays = [
    ...['stays', 'stays-too', 'stays-with-version'].map((name) => `sluice:limit:{${name}}`),
    'sluice:limit:{stays-with-version}:switch',
    ...partControls('sluice', 'stays-with-version').flatMap((part) => [part, `${part}:switch`]),
  ].sort()
  await use(0)
  expect(await forGood('stays')).toEqual(whatStays)
  await use(200)
  expect(await forGood('stays')).toEqual(whatStays)
  await plain.setMode('shadow')
  await plain.setMode(null)
  const told = [...whatStays, ...partControls('sluice', 'stays')].sort()
  await use(400)
  expect(await forGood('stays')).toEqual(told)
  await expect.poll(() => statesWith(cluster.client, 'stays'), { timeout: 60_000, interval: 200 }).toEqual(told)
})

test('a mode that is set holds for every key in every program once setMode has resolved', async () => {
  const here = limiter({ name: 'modes', ...SPREAD })
  const there = limiter({ name: 'modes', ...SPREAD }, anotherClient())
  await Promise.all(KEY_OF_PART.map((key) => there.take(key, { cost: 3 })))
  const passed = async () => countAllowed(await Promise.all(KEY_OF_PART.map((key) => there.take(key))))
  expect(await passed()).toBe(0)
  await here.setMode('shadow')
  expect((await peekAll(there)).filter(({ allowed, wouldRefuse }) => allowed && wouldRefuse)).toHaveLength(SPREAD_PARTS)
  await here.setMode('off')
  expect(await passed()).toBe(SPREAD_PARTS)
  await here.setMode(null)
  expect(await passed()).toBe(0)
})

test('an older mode that comes late to a part is not taken', async () => {
  const api = limiter({ name: 'late', ...SPREAD })
  await api.take('ada', { cost: 3 })
  await api.setMode('off')
  const say = (control: string, mode: string, atUs: number | '') =>
    LimitClient.of(cluster.client).run<[number, number]>('set-limit-mode', [control], [mode, atUs])
  const [atUs] = await say('sluice:limit:{late}', 'off', '')
  for (const part of partControls('sluice', 'late')) await say(part, 'off', atUs)
  for (const part of partControls('sluice', 'late')) expect((await say(part, 'enforce', atUs - 1))[0]).toBe(atUs)
  expect((await api.take('ada')).allowed).toBe(true)
})

test('a higher version holds for every key in every program once the first call of a newer one was answered', async () => {
  const old = limiter({ name: 'versions', ...SPREAD, version: 1 }, anotherClient())
  const without = limiter({ name: 'versions', ...SPREAD }, anotherClient())
  const limits = async (one: Limiter) => new Set((await peekAll(one)).map(({ limit }) => limit))
  expect(await limits(without)).toEqual(new Set([3]))
  expect(await limits(old)).toEqual(new Set([3]))
  await limiter({ name: 'versions', ...SPREAD, burst: 2, version: 2 }).take('ada')
  const asked = await Promise.all([old, without].map((one) => Promise.all(KEY_OF_PART.map((key) => one.take(key)))))
  expect(new Set(asked.flat().map(({ limit }) => limit))).toEqual(new Set([2]))
  expect(await limits(without)).toEqual(new Set([2]))
})

test('a program that died while it told the parts of a version: the next one tells the rest', async () => {
  const old = limiter({ name: 'halfway', ...SPREAD, version: 1 }, anotherClient())
  await peekAll(old)
  const { definition } = new LimitSet({ name: 'halfway', ...SPREAD, burst: 2 })
  const told = ['sluice:limit:{halfway}', ...partControls('sluice', 'halfway').slice(0, 6)]
  for (const control of told)
    await LimitClient.of(cluster.client).run('define-limit', [control], [definition, 2, 'test'])
  await limiter({ name: 'halfway', ...SPREAD, burst: 2, version: 2 }).take('ada')
  expect(new Set((await peekAll(old)).map(({ limit }) => limit))).toEqual(new Set([2]))
})

test.each([
  ['an older version', { version: 1 }],
  ['no version', {}],
])(
  'a node that lost what the name stands for learns it from the parts, told by a program with %s',
  async (what, version) => {
    const name = what.replaceAll(' ', '-')
    const old = limiter({ name, ...SPREAD, ...version }, anotherClient())
    await old.take('ada')
    await limiter({ name, ...SPREAD, burst: 2, version: 2 }).take('ada')
    await cluster.client.unlink(`sluice:limit:{${name}}`, `sluice:limit:{${name}}:switch`)
    expect(await old.take('ada')).toMatchObject({ allowed: false, limit: 2 })
    expect(await cluster.client.hget(`sluice:limit:{${name}}`, 'version')).toBe('2')
  },
)

test('spread limits of one key are one script, all or none; with other keys they are asked slot after slot', async () => {
  const second = limiter({ name: 'per-second', ...SPREAD })
  const day = limiter({ name: 'per-day', algorithm: 'fixed-window', rate: '2/day', spread: 'key', prefix: 'acme' })
  const api = combine([second, day])
  const [ada, bob] = [KEY_OF_PART[1], KEY_OF_PART[2]] as [string, string]
  await api.peek()
  const scripts = async (act: () => Promise<unknown>) => (await scriptsOf(act)).reduce((sum, count) => sum + count, 0)
  const same = { 'per-second': ada, 'per-day': ada }
  expect(await scripts(() => api.take(same))).toBe(1)
  expect(await scripts(() => api.take(same))).toBe(1)
  expect(await api.take(same)).toMatchObject({ allowed: false, policy: 'per-day' })
  expect((await second.peek(ada)).remaining).toBe(1)
  const other = { 'per-second': bob, 'per-day': ada }
  expect(await api.take(other)).toMatchObject({ allowed: false, policy: 'per-day' })
  expect((await second.peek(bob)).remaining).toBe(3)
})
