import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { type PlaceView, readPlace } from '../../packages/gateway/src/jobs/job-place.ts'
import { CannotStartInTimeError } from '../../src/errors.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const inspector = new Inspector({ connection: redis.client(), prefix: redis.prefix })
afterAll(() => held.close())

const jobs = fc.array(fc.record({ priority: fc.constantFrom(0, 0, 1, 2, 7), waitMs: fc.nat({ max: 3000 }) }), {
  minLength: 1,
  maxLength: 40,
})
const ageings = fc.constantFrom(1, 500, 2000, 30_000)

async function placeOf(id: string) {
  return readPlace(await held.backend.store.view<PlaceView>('place', { id, searched: 1000 }))!
}

describe.each([
  ['a queue', {}, (priority: number) => ({ priority })],
  ['a group', { groups: {} }, (priority: number) => ({ group: { id: 'a', priority } })],
  ['jobs without a group', { groups: {} }, (priority: number) => ({ priority })],
] as const)('in %s that ages', (_, shape, options) => {
  test('positions and starts are those of the departures that follow', async () => {
    await fc.assert(
      fc.asyncProperty(jobs, ageings, fc.nat({ max: 10 }), async (added, priorityAgeingMs, leaving) => {
        await held.reset({ ...shape, rate: '1/s', priorityAgeingMs })
        const ids = new Set<string>()
        for (const { priority, waitMs } of added) {
          ids.add((await held.add(options(priority))).id!)
          await held.advanceTo(held.nowUs + waitMs * 1000)
        }
        for (let i = 0; i < leaving; i++) for (const { id } of (await held.depart(1)).grants) ids.delete(id)
        const places = await Promise.all([...ids].map(async (id) => ({ id, ...(await placeOf(id)) })))
        const explained = await Promise.all(places.map(({ id }) => inspector.explain('held', id)))
        expect(explained.map((one) => one?.ahead)).toEqual(places.map(({ position }) => position))
        const found = places.toSorted((one, other) => one.position! - other.position!)
        const expected = await held.drain(1, 0)
        expect(found.map(({ id, position }) => [id, position])).toEqual(expected.map(({ id }, i) => [id, i]))
        for (const [i, { slotUs }] of expected.entries()) {
          expect(Math.abs(found[i]!.startsAt!.getTime() * 1000 - slotUs)).toBeLessThan(2000)
        }
      }),
      { numRuns: 40 },
    )
  })

  test('the longest wait counts the jobs that a new one would come behind', async () => {
    await held.reset({ ...shape, rate: '1/s', priorityAgeingMs: 10_000, maxWaitMs: 4500 })
    await held.depart(1)
    await held.add(options(5))
    await held.advanceTo(held.nowUs + 45_000_000)
    for (let i = 0; i < 3; i++) await held.add(options(1))
    // The first one has aged to level 0.5: a new job of level 1 comes behind all, one of level 0 before all.
    await expect(held.add(options(1))).resolves.toMatchObject({ id: expect.any(String) })
    await expect(held.add(options(1))).rejects.toThrow(CannotStartInTimeError)
    await expect(held.add(options(0))).resolves.toMatchObject({ id: expect.any(String) })
    await held.advanceTo(held.nowUs + 11_000_000)
    // Now all that waits goes before a new job.
    await expect(held.add(options(0))).rejects.toThrow(CannotStartInTimeError)
  })
})

/** Each costs so many tokens. */
const dearJobs = fc.array(
  fc.record({
    priority: fc.constantFrom(0, 0, 1, 2, 7),
    waitMs: fc.nat({ max: 3000 }),
    tokens: fc.constantFrom(0, 1, 2, 5),
  }),
  { minLength: 1, maxLength: 30 },
)
const limit = { name: 'tokens', unit: 'tokens', rate: '2/s', burst: 5 } as const

test.each([
  ['a queue', {}, {}, (priority: number) => ({ priority })],
  ['a group', { groups: {} }, { by: 'group' }, (priority: number) => ({ group: { id: 'a', priority } })],
  ['jobs without a group', { groups: {} }, { by: 'group' }, (priority: number) => ({ priority })],
] as const)(
  'in %s that ages, starts are computed with the costs of the jobs that leave before',
  async (_, shape, by, of) => {
    await fc.assert(
      fc.asyncProperty(dearJobs, ageings, fc.nat({ max: 10 }), async (added, priorityAgeingMs, leaving) => {
        await held.reset({ ...shape, rate: '100000/s', limits: [{ ...limit, ...by }], priorityAgeingMs })
        const ids = new Set<string>()
        for (const { priority, waitMs, tokens } of added) {
          ids.add((await held.add({ ...of(priority), costs: { tokens } })).id!)
          await held.advanceTo(held.nowUs + waitMs * 1000)
        }
        for (let i = 0; i < leaving; i++) for (const { id } of (await held.depart(1)).grants) ids.delete(id)
        const starts = [...ids].map(async (id) => [id, (await placeOf(id)).startsAt!.getTime()] as const)
        const places = new Map(await Promise.all(starts))
        for (const { id, slotUs } of await held.drain(1, 0)) {
          expect(Math.abs(places.get(id)! * 1000 - slotUs), `${id}`).toBeLessThan(2000)
        }
      }),
      { numRuns: 30 },
    )
  },
)

test('a second worker sleeps until the slot of the job that leaves second, with the cost of the first', async () => {
  const ask = (workerId: string) => held.departAs(workerId, { jobs: 1, horizonUs: 1000 })
  await fc.assert(
    fc.asyncProperty(dearJobs, ageings, async (added, priorityAgeingMs) => {
      await held.reset({ limits: [limit], priorityAgeingMs })
      for (const { priority, waitMs, tokens } of added) {
        await held.add({ priority, costs: { tokens } })
        await held.advanceTo(held.nowUs + waitMs)
      }
      while ((await ask('first')).stop === 'full');
      const { stop, wakeUs } = await ask('second')
      if (stop !== 'closed') return
      const [, second] = await held.drain(1, 0)
      if (second) expect(Math.abs((wakeUs as number) + 1000 - second.slotUs)).toBeLessThan(2)
    }),
    { numRuns: 40 },
  )
})

/** Claims places and gives them back. @param jobs five values for each, as in `lua/verbs/claim-places.lua` */
async function claim(jobs: readonly string[]): Promise<unknown> {
  const { store } = held.backend
  const reply = await store.run('claim-places', [store.memory.identity, 'claim', 'claim', '1000', '', ...jobs])
  await store.run('claim-places', ['', 'claim', 'release', 1000])
  return reply
}

test('a claim with a deadline that is missed is answered alike, whatever comes behind it', async () => {
  await held.reset({ rate: '1/s', capacity: 10_000, priorityAgeingMs: 1000 })
  await held.queue.addBulk(Array.from({ length: 40 }, () => ({ name: 'job', data: {}, opts: { priority: 2 } })))
  const jobOf = (inMs: number) => ['', '', '1', `,2,0,${Math.floor(held.nowUs / 1000) + inMs}`, '1']
  const missed = await claim(jobOf(10_000))
  expect((missed as unknown[])[0]).toBe(-5)
  const behind = Array.from({ length: 20 }, () => jobOf(900_000)).flat()
  expect(await claim([...jobOf(10_000), ...behind])).toEqual(missed)
})

test('a claim for like jobs is answered as one for jobs whose terms only look different', async () => {
  const asked = fc.record({
    priority: fc.constantFrom(0, 1, 2, 2, 7),
    delayMs: fc.constantFrom(0, 0, 500),
    inMs: fc.constantFrom(10_000, 30_000, 90_000),
    cost: fc.constantFrom(1, 1, 3),
  })
  await fc.assert(
    fc.asyncProperty(
      jobs,
      fc.option(ageings, { nil: undefined }),
      fc.array(asked, { minLength: 5, maxLength: 30 }),
      fc.constantFrom(1, 20),
      async (added, ages, many, each) => {
        await held.reset({ rate: '1/s', burst: 3, capacity: 10_000, ...(ages && { priorityAgeingMs: ages }) })
        await held.queue.addBulk(added.map(({ priority }) => ({ name: 'job', data: {}, opts: { priority } })))
        const nowMs = Math.floor(held.nowUs / 1000)
        const claimed = (different: boolean) =>
          many.flatMap(({ priority, delayMs, inMs, cost }, i) => {
            const terms = `,${priority},${delayMs},${'0'.repeat(different ? i : 0)}${nowMs + inMs}`
            return ['', '', String(cost), terms, String(each)]
          })
        const expected = await claim(claimed(true))
        expect(await claim(claimed(false))).toEqual(expected)
      },
    ),
    { numRuns: 30 },
  )
})
