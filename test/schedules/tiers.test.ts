import { afterAll, expect, test } from 'vitest'
import type { QueueLimit, RateSchedule } from '../../src/index.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')

afterAll(() => held.close())

/** At 60/min, open up to a minute of the clock, which begins at 16:00 UTC. */
const openTo = (to: string): RateSchedule => ({ schedule: [{ to, rate: '60/min' }, { rate: 0 }] })

/** When the next job of a tier departs that is added at this time, both seconds after the start of the clock. */
async function departs(at: number, tier?: string): Promise<number> {
  await held.advanceTo(START_US + at * 1e6)
  await held.add({ group: { id: 'a' }, ...(tier && { tier }) })
  const [departure] = await held.drain(1, 0)
  return (departure!.slotUs - START_US) / 1e6
}

test.each(['gcra', 'token-bucket', 'leaky-bucket'] as const)(
  'where tiers of one value alternate, the lower rate of each time counts in between (%s)',
  async (algorithm) => {
    const tiers = { fast: { rate: openTo('17:00') }, early: { rate: openTo('16:01') } }
    const limits: QueueLimit[] = [{ name: 'plan', algorithm, by: 'group', rate: '1/min', burst: 1, tiers }]
    await held.reset({ groups: {}, limits })
    expect(await departs(0)).toBe(0)
    // One unit less a sixtieth is owed, at one a second.
    expect(await departs(1, 'fast')).toBeCloseTo(1 + 59 / 60, 4)
    expect(await departs(3)).toBeCloseTo(3 + 59 - 1 / 60, 4)
    await held.reset({ groups: {}, limits })
    expect(await departs(59.5, 'early')).toBe(59.5)
    // After half a second nothing more is paid: `early` is closed.
    expect(await departs(120)).toBeCloseTo(120 + 59.5, 4)
    await held.reset({ groups: {}, limits })
    expect(await departs(59.5, 'early')).toBe(59.5)
    expect(await departs(120, 'fast')).toBeCloseTo(120.5, 4)
  },
)

test('a worker that asks for a job that another limit holds until a schedule has closed is told when that opens', async () => {
  const limits: QueueLimit[] = [
    { name: 'open', by: 'group', rate: openTo('16:01'), burst: 1 },
    { name: 'slow', by: 'group', rate: '30/h', burst: 1 },
  ]
  await held.reset({ groups: {}, limits })
  expect(await departs(0)).toBe(0)
  await held.add({ group: { id: 'a' } })
  // Not in two minutes, but at midnight.
  const { nextUs } = await held.depart(1)
  expect(((nextUs as number) - START_US) / 1e6).toBeCloseTo(8 * 3600, 3)
})

test('where one limit closes as another one opens, a job that needs both keeps no other waiting until the next day', async () => {
  const limits: QueueLimit[] = [
    { name: 'early', by: 'model', rate: openTo('16:01'), burst: 1 },
    { name: 'later', by: 'host', rate: { schedule: [{ to: '16:01', rate: 0 }, { rate: '60/min' }] }, burst: 1 },
  ]
  await held.reset({ groups: {}, limits })
  await held.advanceTo(START_US + 59_900_000)
  await held.add({ keys: { host: 'a', model: 'x' } })
  const { id } = await held.add({ keys: { host: 'b' } })
  const { grants } = await held.depart(2, 200_000)
  expect(grants.map((job) => job.id)).toEqual([id])
})
