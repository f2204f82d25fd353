import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import type { Shape } from '../../src/index.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// What jobs give back is never used twice: by what they have cost in the end, no window is above its bound.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const SIZE = 10
const SECOND_US = 1_000_000
const I_US = SECOND_US / 10

type Start = { readonly slotUs: number; cost: number }

/** How many units more than allowed some window has. */
type Excess = (starts: readonly Start[]) => number

const sum = (starts: readonly Start[]) => starts.reduce((total, { cost }) => total + cost, 0)

const overBucket: Excess = (starts) =>
  Math.max(
    ...starts.flatMap((first, i) =>
      starts.slice(i).map((last, n) => {
        const units = sum(starts.slice(i, i + n + 1))
        return units - SIZE - (last.slotUs - first.slotUs + 1) / I_US
      }),
    ),
  )

const overLog: Excess = (starts) =>
  Math.max(
    ...starts.map(({ slotUs: fromUs }) => {
      const within = starts.filter(({ slotUs }) => slotUs >= fromUs && slotUs < fromUs + SECOND_US)
      return sum(within) - SIZE
    }),
  )

const windowOf = ({ slotUs }: Start) => Math.floor(slotUs / SECOND_US)

const overWindow: Excess = (starts) =>
  Math.max(...starts.map((first) => sum(starts.filter((other) => windowOf(other) === windowOf(first))) - SIZE))

const BUCKETS = ['gcra', 'token-bucket', 'leaky-bucket'] as const
const limitOf = (rule: Partial<QueueLimit>): QueueLimit => ({ name: 'limit', unit: 'tokens', rate: '10/s', ...rule })
const rules: [string, QueueLimit, Excess][] = [
  ...BUCKETS.map((algorithm): [string, QueueLimit, Excess] => [
    algorithm,
    limitOf({ algorithm, burst: SIZE } as Partial<QueueLimit>),
    overBucket,
  ]),
  ['sliding-window-log', limitOf({ algorithm: 'sliding-window-log' }), overLog],
  ['fixed-window', limitOf({ algorithm: 'fixed-window' }), overWindow],
]

const cases: [string, Shape, Excess][] = [
  ['the rate of a queue', { rate: '10/s', burst: SIZE }, overBucket],
  ['the rate of a group', { groups: { rate: '10/s', burst: SIZE } }, overBucket],
  ...rules.flatMap(([name, limit, excess]): [string, Shape, Excess][] => [
    [`${name} of a queue`, { limits: [limit] }, excess],
    [`${name} of a group`, { groups: {}, limits: [{ ...limit, by: 'group' }] }, excess],
  ]),
]

const operation = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('add' as const), cost: fc.integer({ min: 1, max: SIZE }) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('depart' as const), horizonMs: fc.constantFrom(0, 50, 900) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.integer({ min: 0, max: 900 }) }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('settle' as const), which: fc.nat(), part: fc.constantFrom(0, 0.5, 0.9) }),
  },
)

async function settle(id: string, actual: number): Promise<void> {
  const costs = JSON.stringify({ '': actual, tokens: actual })
  const reply = await held.backend.store.run('settle-cost', [id, '1', costs, '60000'])
  if (typeof reply === 'object') {
    const unit = (reply as string[])[0] === 'tokens' ? '' : 'tokens'
    await held.backend.store.run('settle-cost', [id, '1', JSON.stringify({ [unit]: actual }), '60000'])
  }
}

test.each(cases)('jobs that cost less: %s', async (_what, shape, excess) => {
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 10, maxLength: 40 }), async (operations) => {
      await held.reset(shape)
      const started = new Map<string, Start>()
      const depart = async (horizonMs: number) => {
        const { grants } = await held.depart(5, horizonMs * 1000)
        for (const { id, slotUs } of grants) started.set(id, { slotUs, cost: costOf.get(id) as number })
      }
      const costOf = new Map<string, number>()
      for (const one of operations) {
        if (one.kind === 'add') {
          const group = shape.groups ? { group: { id: 'a' } } : {}
          const { id } = await held.add({ cost: one.cost, costs: { tokens: one.cost }, ...group })
          costOf.set(id as string, one.cost)
        } else if (one.kind === 'depart') {
          await depart(one.horizonMs)
        } else if (one.kind === 'wait') {
          await held.advanceTo(held.nowUs + one.ms * 1000)
        } else {
          const due = [...started].filter(([, { slotUs }]) => slotUs <= held.nowUs)
          const [id, start] = due[one.which % due.length] ?? []
          if (!id || !start) continue
          start.cost *= one.part
          await settle(id, start.cost)
        }
      }
      const starts = [...started.values()].sort((a, b) => a.slotUs - b.slotUs)
      if (starts.length > 0) expect(excess(starts)).toBeLessThanOrEqual(1e-9)
    }),
    { numRuns: 25 },
  )
})

test.each<[string, Shape]>([
  ['of a queue', { rate: '100/s', burst: SIZE }],
  ['of a group', { groups: { rate: '100/s', burst: SIZE } }],
])('what came back at a higher rate %s is not given back again', async (_what, shape) => {
  await held.reset(shape)
  await held.advanceTo(START_US + 100 * SECOND_US)
  const opts = { cost: SIZE, ...(shape.groups ? { group: { id: 'a' } } : {}) }
  const jobs = await Promise.all([1, 2, 3].map(() => held.add(opts)))
  expect((await held.depart(1)).grants).toHaveLength(1)
  await held.advanceTo(held.nowUs + SECOND_US)
  expect((await held.depart(1)).grants).toHaveLength(1)
  const rate = [1, 1000] as const
  const slower = shape.groups ? { groups: JSON.stringify({ rate, burst: SIZE }) } : { rate }
  await held.backend.store.override(slower, 'ops', 'test', undefined)
  await settle(jobs[0]?.id as string, 0)
  const { nextUs } = await held.depart(1)
  expect((nextUs as number) - held.nowUs).toBeGreaterThan(9 * SECOND_US)
})

test('what a job cost more or less is that of its group, under the rate', async () => {
  await held.reset({ groups: { rate: '10/h', burst: SIZE } })
  const first = await held.add({ cost: SIZE, group: { id: 'a' } })
  for (const group of ['a', 'b', 'b']) await held.add({ cost: group === 'a' ? 6 : 4, group: { id: group } })
  expect((await held.depart(9)).grants).toHaveLength(3)
  await settle(first.id as string, 4)
  const { grants } = await held.depart(9)
  expect(grants).toHaveLength(1)
  await settle(grants[0]?.id as string, 12)
  await held.add({ cost: 1, group: { id: 'a' } })
  const { nextUs } = await held.depart(9)
  // 16 units were used: 7 have to come back before one goes.
  expect((nextUs as number) - held.nowUs).toBe(7 * 360 * SECOND_US)
})
