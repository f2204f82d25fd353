import { afterAll, expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { audit } from '../../src/audit/audit.ts'
import type { LimitAudit } from '../../src/audit/limit-audit.ts'
import { Inspector } from '../../src/inspect/index.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// What `settleCost` gives back lets others leave: departures keep the bound of what they cost in the end.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const inspector = new Inspector({ connection: redis.connection, prefix: redis.prefix })
afterAll(() => Promise.all([held.close(), inspector.close()]))

const SECOND = 1_000_000

/** The audit, and that of the costs that were expected when the jobs left. */
async function audited(limits: readonly QueueLimit[] = []) {
  const entries = await inspector.audit('held')
  const expected = entries.map(({ refunded: _, limitsSettled: __, group, groupLimits, ...entry }) => ({
    ...entry,
    ...(group ? { group: { ...group, refunded: 0 } } : {}),
    ...(groupLimits ? { groupLimits: { ...groupLimits, settled: {} } } : {}),
  }))
  return { entries, found: audit(entries, { limits }), expected: audit(expected, { limits }) }
}

const settle = (id: string, actual: number, unit = '') =>
  held.backend.store.run('settle-cost', [id, 1, JSON.stringify({ [unit]: actual }), '600000'])

async function leave(): Promise<string> {
  const { grants } = await held.depart(1)
  expect(grants).toHaveLength(1)
  return grants[0]?.id as string
}

test('what was given back counts no more, but held the queue until then; what a job cost more breaks nothing', async () => {
  await held.reset({ rate: '1/s', burst: 10, audit: 100 })
  for (const cost of [10, 8, 2]) await held.add({ cost })
  const first = await leave()
  await held.advanceTo(held.nowUs + 2 * SECOND)
  await settle(first, 2)
  const second = await leave()
  await settle(second, 9)
  await held.advanceTo(held.nowUs + 3 * SECOND)
  await leave()
  const { entries, found, expected } = await audited()
  // Of the 8 units, 2 had come back by themselves.
  expect(entries.map(({ cost, refunded }) => [cost, refunded])).toEqual([
    [10, 6],
    [8, undefined],
    [2, undefined],
  ])
  expect(found).toMatchObject({ broken: false, worst: { cost: 12, allowed: 12 }, gaps: [] })
  expect(expected.broken).toBe(true)
})

test('a cost that is settled to less and back to more counts as the least in between', async () => {
  await held.reset({ rate: '1/s', burst: 10, audit: 100 })
  for (let i = 0; i < 2; i++) await held.add({ cost: 10 })
  const first = await leave()
  await settle(first, 0)
  await leave()
  await settle(first, 10)
  const { entries, found } = await audited()
  expect(entries[0]?.refunded).toBe(10)
  expect(found.broken).toBe(false)
})

/** Jobs leave, and what they cost is settled, at random times. Returns the ids of those that left. */
async function story(shape: Shape, unit: '' | 'tokens', seed: number, steps: number): Promise<string[]> {
  const random = randomOf(seed).uniform
  const below = (n: number) => Math.floor(random() * n)
  await held.reset({ ...shape, audit: 1000 })
  const jobs = Array.from({ length: steps }, () => {
    const cost = 1 + below(8)
    const group = shape.groups ? { group: { id: 'ab'[below(2)] as string } } : {}
    const opts: ShapedJobsOptions = { ...(unit ? { costs: { [unit]: cost } } : { cost }), ...group }
    return { name: 'job', data: {}, opts }
  })
  await held.queue.addBulk(jobs)
  const left: string[] = []
  for (let step = 0; step < steps; step++) {
    // Now and then long enough for windows to end.
    await held.advanceTo(held.nowUs + below(step % 20 === 0 ? 3 * SECOND : 300_000))
    for (const { id } of (await held.depart(5, 500_000)).grants) left.push(id)
    const id = left[left.length - 1 - below(4)]
    if (id && random() < 0.5) await settle(id, below(12), unit)
  }
  return left
}

test.each<[string, Shape]>([
  ['the rate', { rate: '10/s', burst: 10 }],
  ['the rates of groups', { groups: { rate: '5/s', burst: 10 } }],
])('whatever is settled and when, the bound of %s is kept, and only just', async (_what, shape) => {
  await story(shape, '', 7, 200)
  const { found, expected } = await audited()
  expect(found).toMatchObject({ broken: false })
  expect(expected.broken).toBe(true)
  const worst = found.groups?.worst ?? found.worst
  // Costs are whole units.
  expect(worst?.excessUs).toBeGreaterThan((-1.1 * SECOND) / (shape.groups ? 5 : 10))
})

const ALGORITHMS = ['gcra', 'token-bucket', 'leaky-bucket', 'sliding-window-log', 'sliding-window-counter'] as const
const RULES: readonly [string, QueueLimit][] = [
  ...ALGORITHMS.map((algorithm): [string, QueueLimit] => [
    algorithm,
    { name: 'tokens', unit: 'tokens', algorithm, rate: '10/s', ...(algorithm.includes('window') ? {} : { burst: 10 }) },
  ]),
  ['fixed-window', { name: 'tokens', unit: 'tokens', algorithm: 'fixed-window', rate: '10/s' }],
  [
    'fixed-window from the first unit',
    { name: 'tokens', unit: 'tokens', algorithm: 'fixed-window', rate: '10/s', align: 'first' },
  ],
]
const ofGroups = (limit: QueueLimit): QueueLimit => ({ ...limit, by: 'group' })
const OF_LIMITS: readonly [string, Shape, QueueLimit][] = [
  ...RULES.map(([title, limit]): [string, Shape, QueueLimit] => [title, { limits: [limit] }, limit]),
  ...RULES.filter(([title]) => ['gcra', 'sliding-window-log'].includes(title)).map(
    ([title, limit]): [string, Shape, QueueLimit] => [
      `${title} of groups`,
      { groups: {}, limits: [ofGroups(limit)] },
      ofGroups(limit),
    ],
  ),
]

test.each(OF_LIMITS)(
  'whatever is settled and when, a limit is kept, and only just: %s',
  async (_title, shape, limit) => {
    const left = await story(shape, 'tokens', 1, 70)
    const { found, expected } = await audited([limit])
    const [{ worst, departures }] = found.limits as [LimitAudit]
    // Costs are whole units.
    const short = limit.algorithm?.includes('window')
      ? (worst?.allowed ?? 0) - (worst?.cost ?? 0)
      : -(worst?.excessUs ?? 0) / (SECOND / 10)
    expect(found.broken).toBe(false)
    expect(short).toBeLessThan(1.1)
    expect(expected.broken).toBe(true)
    expect(departures).toBe(left.length)
  },
)
