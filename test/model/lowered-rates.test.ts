import { afterAll, expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

// A rate is lowered, or an override with a higher one ends, while nothing leaves. What was owed by then is not forgotten:
// a queue whose keys expire lets jobs leave when one does whose keys never do.
const redis = useRedis(import.meta.url)
const client = redis.client()
const expiring = new HeldQueue(redis, client, 'expiring')
const lasting = new HeldQueue(redis, client, 'lasting', false)
afterAll(() => Promise.all([expiring.close(), lasting.close()]))

const HISTORIES = caseCount(20, 'MODEL_HISTORIES')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const S = 1_000_000

interface Rate {
  readonly rate: `${number}/s` | `${number}/min` | `${number}/h`
  readonly burst: number
}

const ALGORITHMS = ['gcra', 'token-bucket', 'leaky-bucket'] as const
const limitOf = (name: string, { rate, burst }: Rate) => ({ name: 'limit', algorithm: name as 'gcra', rate, burst })
const inGroup = { group: { id: 'a' } } as ShapedJobsOptions
type Kind = readonly [name: string, shape: (rate: Rate) => Shape, job: ShapedJobsOptions]
const KINDS: readonly Kind[] = [
  ['the rate', (rate) => rate, {}],
  ['groups', (rate) => ({ groups: rate }), inGroup],
  ...ALGORITHMS.flatMap((name): Kind[] => [
    [`a limit, ${name},`, (rate) => ({ limits: [limitOf(name, rate)] }), {}],
    [
      `groups by a limit, ${name},`,
      (rate) => ({ groups: {}, limits: [{ ...limitOf(name, rate), by: 'group' }] }),
      inGroup,
    ],
    [
      `values of a limit, ${name},`,
      (rate) => ({ limits: [{ ...limitOf(name, rate), by: 'model' }] }),
      { keys: { model: 'm' } } as ShapedJobsOptions,
    ],
    [`members of a pool, ${name},`, (rate) => ({ limits: [{ ...limitOf(name, rate), pool: ['one', 'two'] }] }), {}],
  ]),
]

test.each(KINDS)(
  `%s remembers what is owed when its rate falls, in ${HISTORIES} histories`,
  { timeout: 600_000 },
  async (...kind) => {
    for (let seed = SEED; seed < SEED + HISTORIES; seed++) {
      const [left, due] = [await run(expiring, seed, kind), await run(lasting, seed, kind)]
      expect(left, `seed ${seed}`).toEqual(due)
    }
  },
)

test.each(ALGORITHMS)(
  'a value of a limit, %s, remembers what it owes while another tier is closed',
  async (algorithm) => {
    // The clock starts at 16:00.
    const closed = { schedule: [{ from: '15:00', to: '23:00', rate: 0 }, { rate: '1/s' }] } as const
    const limit = { ...limitOf(algorithm, { rate: '1/s', burst: 5 }), by: 'model', tiers: { other: { rate: closed } } }
    const job = { keys: { model: 'm' } } as ShapedJobsOptions
    const left: number[] = []
    for (const queue of [expiring, lasting]) {
      await queue.reset({ limits: [limit] } as Shape)
      for (let i = 0; i < 10; i++) await queue.add(i < 5 ? job : ({ ...job, tier: 'other' } as ShapedJobsOptions))
      expect((await queue.depart(5)).grants).toHaveLength(5)
      await queue.advanceTo(queue.nowUs + (7 * 3600 + 2) * S)
      left.push((await queue.depart(5)).grants.length)
    }
    expect(left[0]).toBe(left[1])
  },
)

test.each(KINDS)('%s counts a lower rate that nobody met', async (_name, shapeOf, job) => {
  const [fast, slow] = [shapeOf({ rate: '10/s', burst: 10 }), shapeOf({ rate: '1/min', burst: 10 })]
  // A pool has two members.
  const all = 'limits' in fast && fast.limits?.[0]?.pool ? 20 : 10
  await expiring.reset(fast)
  for (let i = 0; i < 2 * all; i++) await expiring.add(job)
  expect((await expiring.depart(all)).grants).toHaveLength(all)
  for (const [shape, afterUs] of [
    [slow, 10_000],
    [fast, 10 * S],
  ] as const) {
    await expiring.advanceTo(expiring.nowUs + afterUs)
    await expiring.override(shape)
  }
  expect((await expiring.depart(all)).grants.length).toBeLessThanOrEqual(all / 10)
})

test.each(ALGORITHMS)(
  'a value of a limit, %s, counts a lower rate that nobody met before it got one of its own',
  async (algorithm) => {
    const limit = { ...limitOf(algorithm, { rate: '10/s', burst: 10 }), by: 'model' }
    await expiring.reset({ limits: [limit] })
    for (let i = 0; i < 20; i++) await expiring.add({ keys: { model: 'm' } } as ShapedJobsOptions)
    expect((await expiring.depart(10)).grants).toHaveLength(10)
    await expiring.advanceTo(expiring.nowUs + 10_000)
    await expiring.override({ limits: [{ ...limit, rate: '1/min' }] })
    await expiring.advanceTo(expiring.nowUs + 10 * S)
    const own = ['limit', '{"model":"m"}', '{"rate":[9,1000]}', 'test', 'test', '', '', '']
    await expiring.backend.store.run('set-limit', own)
    expect((await expiring.depart(10)).grants.length).toBeLessThanOrEqual(1)
  },
)

test("a value of a limit reaches its rate when Redis's clock went back before two changes of it", async () => {
  const limit = { ...limitOf('gcra', { rate: '10/s', burst: 10 }), by: 'model' }
  await lasting.reset({ limits: [limit] })
  const job = { keys: { model: 'm' } } as ShapedJobsOptions
  for (let i = 0; i < 10; i++) await lasting.add(job)
  expect((await lasting.depart(5)).grants).toHaveLength(5)
  for (const rate of ['5/s', '10/s'] as const) {
    await lasting.advanceTo(lasting.nowUs + S)
    await lasting.override({ limits: [{ ...limit, rate }] })
  }
  await lasting.advanceTo(lasting.nowUs - 600 * S)
  let starts = 0
  for (let i = 0; i < 20; i++) {
    for (let n = 0; n < 10; n++) await lasting.add(job)
    starts += (await lasting.depart(20)).grants.length
    await lasting.advanceTo(lasting.nowUs + S)
  }
  expect(starts).toBeGreaterThanOrEqual(190)
})

/** @returns the slots of all departures, µs */
async function run(queue: HeldQueue, seed: number, [, shapeOf, job]: Kind): Promise<number[]> {
  const { uniform } = randomOf(seed * 0x9e3779b9)
  const pick = <T>(of: readonly T[]) => of[Math.floor(uniform() * of.length)] as T
  const burst = pick([1, 5, 20])
  const fast: Rate = { rate: pick(['10/s', '2/s', '60/min'] as const), burst }
  const slow: Rate = { rate: pick(['5/min', '30/h', '1/h'] as const), burst }
  const isDeclared = uniform() < 0.5
  const slots: number[] = []
  const leave = async () => {
    for (const { slotUs } of (await queue.depart(burst)).grants) slots.push(slotUs)
  }
  await queue.reset(shapeOf(isDeclared ? fast : slow))
  const lasts = pick([100, 500])
  if (!isDeclared) await queue.override(shapeOf(fast), lasts)
  for (let i = 0; i < 3 * burst; i++) await queue.add(job)
  await leave()
  await queue.advanceTo(queue.nowUs + lasts * 1000)
  if (isDeclared) await queue.override(shapeOf(slow))
  for (let i = 0; i < 3; i++) {
    await queue.advanceTo(queue.nowUs + Math.floor(uniform() ** 2 * 3500 * S))
    await leave()
  }
  return slots
}
