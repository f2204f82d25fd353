import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

const { connection, prefix } = useRedis(import.meta.url)

/** What a shard reports: the lease that it obeys, and what it holds. */
interface Shard {
  epoch: string
  number: number
  capacity: number
  untilMs: string
  places: number
  departed: number
  /** Mean cost of a job. */
  mean: number
  rate: number
}

type Answer = [status: number, nowUs: string, inMs: number, shards: number, short: string, grants: (string[] | '')[]]

/** A ledger, and shards that obey at once what it grants. */
async function ledgerOf(name: string, capacity: number, count: number) {
  const head = new ShapedQueue(name, { connection, prefix, shape: { rate: '600/s', burst: count, capacity } })
  onTestFinished(() => head.close())
  await head.waitUntilReady()
  const shards = Array.from(
    { length: count },
    (): Shard => ({ epoch: '', number: 0, capacity: 1, untilMs: '0', places: 0, departed: 0, mean: 1, rate: 0 }),
  )
  const ask = (...args: string[]) => head.backend.store.run('grant-leases', [count, ...args]) as Promise<Answer>
  /** How far the clocks of the shards are ahead of the head's. */
  const clock = { aheadUs: 0 }
  const round = async () => {
    const [, nowUs] = await ask('', '1')
    const atUs = String(Number(nowUs) + clock.aheadUs)
    const [, , , , short, grants] = await ask(nowUs, '1', ...shards.map((shard) => reportOf(shard, atUs)))
    for (const [i, grant] of grants.entries()) {
      if (grant === '') continue
      const [epoch = '', number, rate, untilMs = '', places] = grant
      const leased = { rate: Number(rate), capacity: Number(places) }
      Object.assign(shards[i] as Shard, { epoch, number: Number(number), untilMs, ...leased })
    }
    return short
  }
  /** So many rounds until no share waits for another one. */
  const settled = async () => {
    for (let rounds = 1; rounds <= 20; rounds++) if ((await round()) === '0') return rounds
    return undefined
  }
  return { head, shards, settled, clock }
}

function reportOf({ epoch, number, untilMs, capacity, places, departed, mean }: Shard, atUs: string): string {
  const idle = { running: 0, waiting: places, groups: 1, wants: true, departed, mean, horizon: 0, last: '0' }
  return JSON.stringify({ ...idle, at: atUs, epoch, number, until_ms: untilMs, capacity, places, empty: places === 0 })
}

test.each([
  [3, 1, 2],
  [30, 0, 0],
  [9, 8, 7],
  [28, 29, 30],
])('shards that hold %i, %i and %i places: no share waits for ever, and all places are leased', async (...places) => {
  const { head, shards, settled } = await ledgerOf(`held-${places.join('-')}`, 90, 3)
  expect(await settled()).toBeDefined()
  for (const [i, n] of places.entries()) (shards[i] as Shard).places = n
  expect(await settled()).toBeLessThanOrEqual(3)
  const leased = shards.map(({ capacity }) => capacity)
  expect(leased.reduce((sum, n) => sum + n)).toBe(90)
  for (const [i, n] of places.entries()) expect(leased[i]).toBeGreaterThanOrEqual(n)
  await head.obliterate({ force: true })
})

test.each([
  [6, 6000, [1000, 0, 0, 0, 0, 0]],
  [12, 12_000, [1000, 900, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
  [24, 480, [20, 20, ...Array.from({ length: 22 }, () => 0)]],
])(
  'of %i shards with %i places, a shard that is full gets free ones of the others',
  async (count, capacity, places) => {
    const { head, shards, settled } = await ledgerOf(`full-${count}`, capacity, count)
    expect(await settled()).toBeDefined()
    for (const [i, n] of places.entries()) (shards[i] as Shard).places = n
    expect(await settled()).toBeLessThanOrEqual(3)
    expect(shards.reduce((sum, shard) => sum + shard.capacity, 0)).toBe(capacity)
    const even = (capacity - places.reduce((sum, n) => sum + n)) / count
    for (const shard of shards) expect(shard.capacity - shard.places).toBeGreaterThanOrEqual(Math.floor(even / 2))
    await head.obliterate({ force: true })
  },
)

test('a shard whose backlog has left has no part of the rate any more in the next round', async () => {
  const { head, shards, settled, clock } = await ledgerOf('drained', 10_000, 2)
  const [drained, busy] = shards as [Shard, Shard]
  Object.assign(drained, { places: 300 })
  Object.assign(busy, { places: 2000 })
  expect(await settled()).toBeDefined()
  expect([drained.rate, busy.rate].map(Math.round)).toEqual([300, 300])
  clock.aheadUs += 250_000
  Object.assign(drained, { places: 0, departed: 300 })
  Object.assign(busy, { places: 1925, departed: 75 })
  expect(await settled()).toBeDefined()
  expect(busy.rate).toBeGreaterThan(0.98 * 600)
  await head.obliterate({ force: true })
})

test('a shard that had jobs just before it ran empty has no part of the rate any more a round later', async () => {
  const { head, shards, settled, clock } = await ledgerOf('just-drained', 10_000, 2)
  const [drained, busy] = shards as [Shard, Shard]
  Object.assign(busy, { places: 2000 })
  expect(await settled()).toBeDefined()
  for (const departed of [60, 60]) {
    clock.aheadUs += 250_000
    Object.assign(drained, { departed })
    Object.assign(busy, { places: busy.places - 90, departed: busy.departed + 90 })
    expect(await settled()).toBeDefined()
  }
  expect(busy.rate).toBeGreaterThan(0.95 * 600)
  await head.obliterate({ force: true })
})

test('a mean cost that changes is no departure', async () => {
  const { head, shards, settled, clock } = await ledgerOf('costs', 10_000, 2)
  const [one, other] = shards as [Shard, Shard]
  Object.assign(one, { departed: 1_000_000 })
  Object.assign(other, { places: 300 })
  expect(await settled()).toBeDefined()
  clock.aheadUs += 250_000
  Object.assign(one, { mean: 1.5 })
  expect(await settled()).toBeDefined()
  expect(other.rate).toBeGreaterThan(0.98 * 600)
  await head.obliterate({ force: true })
})
