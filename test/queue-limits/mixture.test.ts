import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { storedMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'
import { expectBound, unitsOf } from './support/bounds.ts'
import { Expected, type Paced } from './support/expected.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'mixture')
afterAll(() => held.close())

const SHARED = { shared: true, prefix: `${redis.prefix}:shared` } as const
/** The most that a job costs of anything here: every limit allows as much at once. */
const DEAREST = 4

const rate = fc
  .tuple(fc.integer({ min: 10, max: 300 }), fc.constantFrom(1000, 2500))
  .map(([limit, period]) => ({ limit, period }))
const window = fc.record({ limit: fc.integer({ min: DEAREST, max: 12 }), period: fc.constantFrom(70, 250, 1000) })
const rule = fc.oneof(
  fc.record({
    algorithm: fc.constantFrom('gcra' as const, 'token-bucket' as const, 'leaky-bucket' as const),
    rate,
    burst: fc.integer({ min: DEAREST, max: 9 }),
  }),
  fc.record({
    algorithm: fc.constantFrom('sliding-window-log' as const, 'sliding-window-counter' as const),
    rate: window,
  }),
  fc.record({
    algorithm: fc.constant('fixed-window' as const),
    rate: window,
    align: fc.constantFrom('epoch' as const, 'first' as const),
  }),
)
const limits = fc
  .array(fc.tuple(rule, fc.constantFrom(undefined, 'tokens', 'bytes'), fc.boolean()), { minLength: 1, maxLength: 3 })
  .map((all) =>
    all.map(([one, unit, shared], i): QueueLimit => {
      return { name: `limit${i}`, ...one, ...(unit ? { unit } : {}), ...(shared ? SHARED : {}) }
    }),
  )
// In quarters: sums of them are exact in any order.
const cost = fc.constantFrom(0.25, 1, 1, 1.5, 2, DEAREST)
const job: fc.Arbitrary<ShapedJobsOptions> = fc.record(
  { cost, costs: fc.record({ tokens: cost, bytes: cost }, { requiredKeys: [] }) },
  { requiredKeys: [] },
)
const scenario = fc.record({
  paced: fc.option(fc.record({ rate, burst: fc.integer({ min: DEAREST, max: 6 }) })),
  limits,
  jobs: fc.array(job, { minLength: 5, maxLength: 30, size: 'max' }),
  asked: fc.integer({ min: 1, max: 5 }),
  horizonUs: fc.constantFrom(0, 40_000, 300_000),
  /** µs that a call comes after the time it was told. */
  late: fc.array(fc.constantFrom(0, 0, 1, 777, 60_000), { minLength: 7, maxLength: 7 }),
})

async function start(paced: Paced | null, all: readonly QueueLimit[]): Promise<void> {
  const shared = await client.keys(`${redis.prefix}:shared*`)
  if (shared.length > 0) await client.unlink(...shared)
  await held.reset({ ...paced, limits: all })
}

test('jobs leave in their order, each at the first moment at which the rate and every limit let it', {
  timeout: 120_000,
}, async () => {
  let waited = 0
  await fc.assert(
    fc.asyncProperty(scenario, async ({ paced, limits: all, jobs, asked, horizonUs, late }) => {
      await start(paced, all)
      const expected = new Expected(paced, all)
      const ids: string[] = []
      for (const options of jobs) ids.push((await held.add(options)).id as string)
      const slots: number[] = []
      while (slots.length < jobs.length) {
        const { grants, nextUs } = await held.depart(asked, horizonUs)
        const due: { id: string; slotUs: number }[] = []
        let nextDue: number | undefined
        for (const [i, options] of jobs.slice(slots.length, slots.length + asked).entries()) {
          const offset = expected.offset(held.nowUs, options)
          const slotUs = held.nowUs + Math.ceil(offset)
          if (slotUs > held.nowUs + horizonUs) {
            nextDue = slotUs
            break
          }
          expected.charge(held.nowUs, offset, options)
          due.push({ id: ids[slots.length + i] as string, slotUs })
        }
        expect(grants.map(({ id, slotUs }) => ({ id, slotUs }))).toEqual(due)
        slots.push(...due.map(({ slotUs }) => slotUs))
        if (nextDue === undefined) continue
        expect(nextUs).toBe(nextDue)
        await held.advanceTo(nextDue - horizonUs + (late[waited++ % late.length] as number))
      }
      expect(slots).toEqual([...slots].sort((one, other) => one - other))
      const left = (unit?: string) =>
        slots.map((slotUs, i) => ({ slotUs, units: unitsOf(unit ? { unit } : {}, jobs[i] as ShapedJobsOptions) }))
      if (paced) expectBound({ name: 'rate', ...paced }, left())
      for (const limit of all) expectBound(limit, left(limit.unit))
    }),
    { numRuns: 150 },
  )
  expect(waited).toBeGreaterThan(200)
})

test('a job that one limit holds is charged by none', async () => {
  const all: QueueLimit[] = [
    { name: 'requests', rate: '10/s', burst: 5 },
    { name: 'log', algorithm: 'sliding-window-log', rate: '9/min' },
    { name: 'shared', algorithm: 'token-bucket', rate: '100/s', burst: 50, unit: 'bytes', ...SHARED },
    { name: 'tokens', algorithm: 'fixed-window', rate: '100/min', unit: 'tokens' },
  ]
  await start({ rate: '50/s', burst: 5 }, all)
  await held.add({ costs: { tokens: 90 } })
  const dear = await held.add({ costs: { tokens: 20 } })
  const cheap = await held.add({ costs: { tokens: 1 } })
  expect((await held.depart(1)).grants).toHaveLength(1)
  const before = await states()
  expect(Object.keys(before)).toHaveLength(5)

  const reply = await held.depart(3)
  expect(reply).toMatchObject({ grants: [], stop: 'closed' })
  // The cheap one behind it would fit, and does not overtake.
  expect((await held.queue.getWaiting()).map(({ id }) => id).sort()).toEqual([dear.id, cheap.id].sort())
  expect(await states()).toEqual(before)

  await held.advanceTo(reply.nextUs as number)
  expect((await held.depart(3)).grants.map(({ id }) => id)).toEqual([dear.id, cheap.id])
  const after = await states()
  expect(Object.keys(before).filter((name) => String(after[name]) === String(before[name]))).toEqual([])
})

/** What the limits and the meter have been charged. */
async function states(): Promise<Record<string, unknown>> {
  const found = (await client.keys(`${redis.prefix}*limit*:\\*`)).sort()
  const entries = await Promise.all(found.map(async (key) => [key, (await client.dumpBuffer(key)).toString('hex')]))
  const { tat, last } = await storedMeter(client, held.base)
  return Object.fromEntries([...entries, ['meter', `${tat} ${last}`]])
}
