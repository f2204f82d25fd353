import type { Gap } from 'sluice/internal'
import { expect, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { departuresOf, jobs, Workshop } from '../../../test/worker/support.ts'
import { runHere } from './run-here.ts'
import { useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const sluice = useSluice(redis)
const shop = new Workshop(redis)
/** Processes take their time to start on a busy machine. */
const SLOW = { timeout: 120_000 }
const client = redis.client()
/** On a busy machine late jobs would go back and depart twice. */
const ON_TIME = { maxLatenessMs: 60_000, audit: true } as const

test('a queue that kept its bound, and one in which a departure was planted', SLOW, async () => {
  const limits = [{ name: 'tokens', unit: 'tokens', rate: '1000/s', burst: 50 }] as const
  const queue = shop.queue({ rate: '100/s', burst: 3, limits, ...ON_TIME })
  await queue.addBulk(jobs(30, { costs: { tokens: 4 } }))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 }))
  const departures = await departed.reach(30)
  const kept = await sluice.run(['audit', queue.name])
  expect(kept.stderr).toBe('')
  expect(kept.stdout).toContain(`${queue.name}: 30 departures from `)
  expect(kept.stdout).toMatch(/rate: kept; the fullest window has [\d.]+ of [\d.]+ units within /)
  expect(kept.stdout).toMatch(/limit tokens \(gcra\): kept/)
  expect(kept.stdout).toContain('every bound was kept')
  expect(kept.code).toBe(0)

  const last = Math.max(...departures.map(({ departureTimeUs }) => departureTimeUs))
  const planted = [...Array(5)].map((_, i) => [`planted${i}`, `${last + 1}`, '1', '10000', '3', 0])
  await client.xadd(`${redis.prefix}:${queue.name}:meta:audit`, '*', 'n', JSON.stringify(planted))
  const broken = await sluice.run(['audit', queue.name])
  expect(broken.code).toBe(1)
  expect(broken.stdout).toMatch(/rate: BROKEN: [\d.]+ of [\d.]+ units within .*too soon/)
  expect(broken.stdout).toMatch(/^BROKEN$/m)
  const { stdout, code } = await sluice.run(['audit', queue.name, '--json', '--last', '6'])
  expect(code).toBe(1)
  expect(JSON.parse(stdout)).toMatchObject({ departures: 6, broken: true, worst: { cost: 6 } })
})

test('groups: each kept its own rate, and a planted departure of one is found', SLOW, async () => {
  const queue = shop.queue({ rate: '200/s', groups: { rate: '50/s', burst: 2 }, ...ON_TIME })
  await queue.addBulk(['a', 'b', 'c'].flatMap((id) => jobs(10, { group: { id } })))
  await departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 })).reach(30)
  const kept = await sluice.run(['audit', queue.name])
  expect(kept.stdout).toMatch(
    /groups: 30 departures of 3 groups with a rate of their own; of group [abc]: kept; the fullest/,
  )
  expect(kept.code).toBe(0)
  const stream = `${redis.prefix}:${queue.name}:meta:audit`
  const [entry] = await client.xrevrange(stream, '+', '-', 'COUNT', 1)
  const [last] = JSON.parse(entry![1][1]!).slice(-1)
  // The queue's burst would allow them, that of the group does not.
  const planted = [0, 1, 2].map((i) => [
    `planted${i}`,
    `${Number(last[1]) + 1_000_000 + i * 5000}`,
    '1',
    '5000',
    '1',
    0,
  ])
  await client.xadd(stream, '*', 'n', JSON.stringify(planted.map((one) => [...one, ['a', '20000', '2']])))
  const broken = await sluice.run(['audit', queue.name])
  expect(broken.stdout).toMatch(/; 1 broke its bound; of group a: BROKEN: 3 of 2\.5 units/)
  expect(broken.stdout).toMatch(/rate: kept/)
  expect(broken.code).toBe(1)
})

test('limits per group: each group kept its own, and a planted departure of one is found', SLOW, async () => {
  const tokens = { name: 'tokens', by: 'group', rate: '100/s', burst: 5, unit: 'tokens' } as const
  const queue = shop.queue({ rate: '200/s', groups: {}, limits: [tokens], ...ON_TIME })
  await queue.addBulk(['a', 'b'].flatMap((id) => jobs(6, { group: { id }, costs: { tokens: 2 } })))
  await queue.addBulk(jobs(3))
  await departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 })).reach(15)
  const kept = await sluice.run(['audit', queue.name])
  expect(kept.stdout).toMatch(/limit tokens \(gcra\) of (group [ab]|no group), the worst of 3: kept; the fullest/)
  expect(kept.code).toBe(0)
  const stream = `${redis.prefix}:${queue.name}:meta:audit`
  const [entry] = await client.xrevrange(stream, '+', '-', 'COUNT', 1)
  const [last] = JSON.parse(entry![1][1]!).slice(-1)
  const at = Number(last[1]) + 1_000_000
  const planted = [0, 1, 2].map((i) => [
    `planted${i}`,
    `${at + i * 5000}`,
    '1',
    '5000',
    '1',
    0,
    0,
    ['b', { tokens: 3 }],
  ])
  await client.xadd(stream, '*', 'n', JSON.stringify(planted))
  const broken = await sluice.run(['audit', queue.name])
  expect(broken.stdout).toMatch(/limit tokens \(gcra\) of group b, the worst of 3: BROKEN/)
  expect(broken.stdout).toMatch(/^BROKEN$/m)
  expect(broken.stdout).toMatch(/rate: kept/)
  expect(broken.code).toBe(1)
})

test('without a rate: a value of its own keeps what was set for it, and a wait for it is no gap', SLOW, async () => {
  const limits = [{ name: 'rpm', by: 'model', rate: '2/s', burst: 2 }] as const
  const queue = shop.queue({ limits, ...ON_TIME })
  await queue.setLimit('rpm', { model: 'large' }, { rate: '4/s', burst: 1 }, { by: 'test', reason: 'test' })
  await queue.addBulk(['large', 'small'].flatMap((model) => jobs(6, { keys: { model } })))
  await departuresOf(shop.worker(queue, async () => {})).reach(12)
  const { stdout } = await sluice.run(['audit', queue.name, '--json'])
  const { gaps, ...found } = JSON.parse(stdout)
  expect(found).toMatchObject({ departures: 12, unpaced: 0, broken: false, limits: [{ values: 2, departures: 12 }] })
  // Some time passes until a worker that wakes has asked, but most of each gap is the wait.
  const sum = (us: (gap: Gap) => number) => gaps.reduce((total: number, gap: Gap) => total + us(gap), 0)
  expect(sum(({ openUs }) => openUs)).toBeLessThan(0.8 * sum(({ fromUs, toUs }) => toUs - fromUs))
  const text = await sluice.run(['audit', queue.name])
  expect(text.stdout).toMatch(/limit rpm \(gcra\) of model (large|small), the worst of 2: kept; the fullest/)
  expect(text.stdout).toContain('rate: none')
  // As the shape says it, `large` was too fast.
  await queue.clearLimit('rpm', { model: 'large' }, { by: 'test', reason: 'test' })
  expect((await sluice.run(['audit', queue.name])).code).toBe(0)
})

test('one of a thing is not called several', async () => {
  const queue = shop.queue({ rate: '100/s', audit: 100 })
  await queue.waitUntilReady()
  const stream = `${redis.prefix}:${queue.name}:meta:audit`
  const own = [1, 1, '10000', '1', 0, ['a', '20000', '1']]
  await client.xadd(stream, '*', 'n', JSON.stringify([['given back', 1, '1', 0, 0, 0]]))
  await client.xadd(stream, '*', 'n', JSON.stringify([['given back', ...own]]))
  const { stdout } = await runHere(redis, ['audit', queue.name])
  expect(stdout).toContain(`${queue.name}: 1 departure from`)
  expect(stdout).toContain('1 of 1 unit within 0ms')
  expect(stdout).toContain('groups: 1 departure of 1 group with a rate of its own')
  expect(stdout).toContain('1 departure given back before the start')
  await client.xadd(stream, '*', 'n', JSON.stringify([['not paced', 2, '1', 0, 0, 0]]))
  expect((await runHere(redis, ['audit', queue.name])).stdout).toContain(
    '1 departure that no rate and no limit counted: mode shadow or off',
  )
})

test('without shape.audit it says how to turn it on', SLOW, async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const { code, stderr } = await sluice.run(['audit', queue.name])
  expect(code).toBe(1)
  expect(stderr).toContain(`queue "${queue.name}" keeps no departures: declare shape.audit, or run sluice shape set`)
  await queue.setShape({ audit: 100 }, { by: 'test', reason: 'test' })
  const empty = await sluice.run(['audit', queue.name])
  expect(empty.code).toBe(1)
  expect(empty.stderr).toContain('has kept no departure yet')
  expect((await sluice.run(['audit', 'nobody'])).code).toBe(4)
})
