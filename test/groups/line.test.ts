import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { type PlaceView, readPlace } from '../../packages/gateway/src/jobs/job-place.ts'
import { ESTIMATE } from '../../src/admission/add-call.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { AdmissionEstimate } from '../../src/admission/reply.ts'
import { CannotStartInTimeError } from '../../src/errors.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const inspector = new Inspector({ connection: redis.client(), prefix: redis.prefix })
afterAll(() => held.close())
const SECOND_US = 1_000_000
const group = (id: string, priority = 0) => ({ group: { id, priority } })

const job = (opts: ShapedJobsOptions) => ({ name: 'job', data: {}, opts })

async function placeOf(id: string) {
  return readPlace(await held.backend.store.view<PlaceView>('place', { id, searched: 1000 }))!
}

async function offer(opts: ShapedJobsOptions): Promise<AdmissionEstimate & { id: string }> {
  let found: AdmissionEstimate | undefined
  const take = (estimate: AdmissionEstimate) => {
    found = estimate
  }
  const { id } = await held.add({ ...opts, [ESTIMATE]: take } as ShapedJobsOptions)
  return { id: id!, ...found! }
}

/** The jobs in the order in which they leave. */
async function departures(): Promise<{ id: string; slotUs: number }[]> {
  return held.drain(1, 0)
}

function set(id: string, fields: object, ttlMs?: number): Promise<void> {
  return held.backend.store.changeGroup(id, fields, { by: 'test', reason: 'test' }, ttlMs)
}

const names = fc.constantFrom('', 'a', 'b', 'c', 'dear', 'light')
const added = fc.record({
  name: names,
  priority: fc.constantFrom(0, 0, 0, 1, 3),
  afterMs: fc.constantFrom(0, 0, 1, 300, 900),
})

/** Jobs without a group get the next new tag, also when the group that is asked about has one. */
const behindReady = [
  { name: 'c', priority: 0, afterMs: 0 },
  { name: 'c', priority: 0, afterMs: 900 },
  { name: 'dear', priority: 0, afterMs: 0 },
  { name: 'dear', priority: 0, afterMs: 900 },
  { name: 'b', priority: 3, afterMs: 900 },
  { name: 'c', priority: 0, afterMs: 1 },
  { name: 'b', priority: 3, afterMs: 300 },
  { name: 'a', priority: 0, afterMs: 0 },
  { name: 'b', priority: 0, afterMs: 300 },
  { name: 'b', priority: 1, afterMs: 0 },
  { name: '', priority: 3, afterMs: 1 },
  { name: 'a', priority: 0, afterMs: 900 },
] as const

test('positions and starts of all that wait are those of the departures that follow', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(added, { minLength: 1, maxLength: 40 }),
      fc.nat({ max: 20 }),
      fc.constantFrom<'fair' | 'first'>('fair', 'first'),
      fc.constantFrom(undefined, 250, 1000),
      async (jobs, leaving, ungrouped, priorityAgeingMs) => {
        await held.reset({ rate: '10/s', groups: { ungrouped }, ...(priorityAgeingMs && { priorityAgeingMs }) })
        await set('dear', { weight: 4 })
        await set('light', { weight: 0.3 })
        const add = async ({ name, priority, afterMs }: { name: string; priority: number; afterMs: number }) => {
          await held.advanceTo(held.nowUs + afterMs * 1000)
          return held.add(name === '' ? { priority } : group(name, priority))
        }
        const half = jobs.length / 2
        const ids = new Set<string>()
        for (const job of jobs.slice(0, half)) ids.add((await add(job)).id!)
        for (let i = 0; i < Math.min(leaving, Math.floor(half)); i++) {
          const { grants, nextUs } = await held.depart(1)
          if (nextUs) await held.advanceTo(nextUs)
          for (const { id } of grants) ids.delete(id)
        }
        for (const job of jobs.slice(half)) ids.add((await add(job)).id!)
        const { name, priority } = jobs[0]!
        const opts = name === '' ? { priority } : group(name, priority)
        const now = Math.floor(held.nowUs / 1000)
        const refused = await held.add({ ...opts, mustStartBefore: now }).catch((error) => error)
        const last = await offer(opts)
        ids.add(last.id)
        const places = await Promise.all([...ids].map(async (id) => ({ id, ...(await placeOf(id)) })))
        for (const { id, position } of places) expect((await inspector.explain('held', id))?.ahead).toBe(position)
        const expected = await departures()
        const latenessUs = refused.startsAt.getTime() * 1000 - expected.find(({ id }) => id === last.id)!.slotUs
        expect(Math.abs(latenessUs)).toBeLessThan(2000)
        expect(last.position).toBe(expected.findIndex(({ id }) => id === last.id))
        expect(Math.abs(last.startsAt!.getTime() * 1000 - expected[last.position!]!.slotUs)).toBeLessThan(2000)
        const found = places.toSorted((one, other) => one.position! - other.position!)
        expect(found.map(({ id, position }) => [id, position])).toEqual(expected.map(({ id }, i) => [id, i]))
        for (const [i, { slotUs }] of expected.entries()) {
          expect(Math.abs(found[i]!.startsAt!.getTime() * 1000 - slotUs)).toBeLessThan(2000)
        }
      },
    ),
    { numRuns: 100, endOnFailure: true, examples: [[[...behindReady], 5, 'fair', 250]] },
  )
})

test('behind a hundred groups the turn of jobs without one is known, and at least those of a hundred are ahead', async () => {
  await held.reset({ rate: '1000/s', burst: 1000, groups: {} })
  for (let n = 0; n < 3; n++) await held.queue.addBulk(Array.from({ length: 120 }, (_, i) => job(group(`g${i}`))))
  // The first of them brings the turn of the second to three rounds later.
  const [, second] = await held.queue.addBulk([job({ cost: 3 }), job({ cost: 3 })])
  expect((await held.depart(121)).grants).toHaveLength(121)
  const found = await inspector.explain('held', second!.id!)
  expect(found).toMatchObject({ ahead: 200, isAheadAtLeast: true })
  expect(found!.assumptions.join(' ')).toContain('it starts no sooner')
})

test('the estimate of an offer counts the turns of other groups and the own rate, whichever is later', async () => {
  await held.reset({ rate: '10/s', groups: { rate: '2/s' } })
  const first = await offer(group('a'))
  expect(first).toMatchObject({ position: 0 })
  expect(first.startsAt!.getTime()).toBeCloseTo(START_US / 1000, -1)
  for (let i = 0; i < 5; i++) await held.add(group('a'))
  const own = await offer(group('a'))
  expect(own.startsAt!.getTime() - START_US / 1000).toBeCloseTo(3000, -1)
  expect((await departures()).at(-1)!.slotUs / 1000).toBeCloseTo(own.startsAt!.getTime(), -1)
  await held.reset({ rate: '10/s', groups: { rate: '2/s' } })
  for (let i = 0; i < 5; i++) await held.add(group('a'))
  for (const id of 'bcdefghijk') await held.add(group(id))
  const last = await offer(group('z'))
  expect(last.position).toBe(11)
  expect(last.startsAt!.getTime() - START_US / 1000).toBeCloseTo(1100, -1)
  const { slotUs } = (await departures()).find(({ id }) => id === last.id)!
  expect(slotUs / 1000).toBeCloseTo(last.startsAt!.getTime(), -1)
})

test('a group that is paused for good has positions and no starts; one that is held for a time starts after it', async () => {
  await held.reset({ rate: '10/s', groups: {} })
  await set('a', { paused: true })
  await set('b', { paused: true }, 5000)
  expect(await offer(group('a'))).toMatchObject({ position: 0, startsAt: undefined })
  const { startsAt } = await offer(group('b'))
  expect(startsAt!.getTime() - START_US / 1000).toBeCloseTo(5000, -1)
})

test('among more than a hundred groups the rest is estimated by those looked at', async () => {
  await held.reset({ rate: '10/s', groups: {} })
  for (let i = 0; i < 150; i++) for (let k = 0; k < 2; k++) await held.add(group(`g${i}`))
  const { position } = await offer(group('g3'))
  expect(Math.abs(position! - 300)).toBeLessThanOrEqual(3)
})

test('if those looked at have more jobs than the rest, no more are counted than wait', async () => {
  await held.reset({ rate: '10/s', groups: {} })
  for (let i = 0; i < 150; i++) {
    const opts: ShapedJobsOptions = group(`g${i}`)
    await held.queue.addBulk(Array.from({ length: i < 100 ? 5 : 1 }, () => ({ name: 'job', data: {}, opts })))
  }
  const afterS = (seconds: number) => ({
    ...group('g3'),
    mustStartBefore: Math.floor(START_US / 1000) + seconds * 1000,
  })
  // All 550 go first.
  await expect(held.add(afterS(54))).rejects.toThrow(CannotStartInTimeError)
  await held.add(afterS(56))
  expect((await offer(group('g3'))).position).toBe(551)
})

test('the jobs without a group count once among more than a hundred groups', async () => {
  await held.reset({ rate: '10/s', groups: {} })
  const ids = [...Array.from({ length: 110 }, (_, i) => `g${i}`), undefined]
  const jobs = ids.flatMap((id) =>
    Array.from({ length: 8 }, () => ({ name: 'job', data: {}, opts: id ? group(id) : {} })),
  )
  await held.queue.addBulk(jobs)
  // The jobs without a group are in line from the first departure on, behind a hundred groups.
  const { grants } = await held.depart(1)
  const { position } = await offer(group('g3'))
  expect(Math.abs(position! - (jobs.length - grants.length))).toBeLessThanOrEqual(3)
})

test('a bulk of more than a hundred groups is estimated by some of them', async () => {
  await held.reset({ rate: '10/s', groups: {} })
  const latest = Math.floor(START_US / 1000) + 20_000
  const bulk = (mustStartBefore: number) =>
    held.queue.addBulk(
      Array.from({ length: 450 }, (_, i) => {
        const opts: ShapedJobsOptions = { ...group(`g${i}`), mustStartBefore }
        return { name: 'job', data: {}, opts }
      }),
    )
  const error = await bulk(latest).catch((thrown) => thrown)
  expect(error).toBeInstanceOf(CannotStartInTimeError)
  // The last starts behind 449 others.
  expect(Math.abs(error.startsAt.getTime() - START_US / 1000 - 44_900)).toBeLessThan(500)
  await bulk(latest + 30_000)
  const again = await bulk(latest).catch((thrown) => thrown)
  expect(Math.abs(again.startsAt.getTime() - START_US / 1000 - 89_900)).toBeLessThan(1500)
})

describe('a latest start', () => {
  const inS = (seconds: number) => Math.floor(START_US / 1000) + seconds * 1000

  test('of a group is held against the turns of that group', async () => {
    await held.reset({ rate: '10/s', groups: {} })
    await held.queue.addBulk(
      Array.from({ length: 100 }, () => ({ name: 'job', data: {}, opts: group('big') }) as never),
    )
    await held.add({ ...group('small'), mustStartBefore: inS(0.5) })
    const error = await held.add({ ...group('big'), mustStartBefore: inS(9) }).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(CannotStartInTimeError)
    expect(error.startsAt.getTime() - inS(0)).toBeCloseTo(10_100, -1)
    await held.add({ ...group('big', 0), mustStartBefore: inS(10.2) })
  })

  test('maxWaitMs refuses the jobs of one group and takes those of others', async () => {
    await held.reset({ rate: '100/s', maxWaitMs: 2000, groups: { rate: '2/s' } })
    const outcomes = []
    for (let i = 0; i < 7; i++)
      outcomes.push(
        await held.add(group('a')).then(
          () => 'added',
          ({ name }) => name,
        ),
      )
    expect(outcomes).toEqual([...Array(5).fill('added'), 'CannotStartInTimeError', 'CannotStartInTimeError'])
    await held.add(group('b'))
    await held.add({})
    const bulk = (count: number) =>
      Array.from({ length: count }, () => ({ name: 'job', data: {}, opts: group('c') }) as never)
    await expect(held.queue.addBulk(bulk(6))).rejects.toBeInstanceOf(CannotStartInTimeError)
    await held.queue.addBulk(bulk(5))
    // Three groups wait for the same slots: each is estimated by itself.
    const starts = (await departures()).map(({ slotUs }) => slotUs)
    expect(Math.max(...starts) - START_US).toBeLessThanOrEqual(2.05 * SECOND_US)
  })

  test('the jobs of one bulk stand in line behind each other, group by group', async () => {
    await held.reset({ rate: '10/s', maxWaitMs: 1000, groups: {} })
    const spread = (count: number) =>
      Array.from({ length: count }, (_, i) => ({ name: 'job', data: {}, opts: group(`g${i % 4}`) }) as never)
    await expect(held.queue.addBulk(spread(12))).rejects.toBeInstanceOf(CannotStartInTimeError)
    await held.queue.addBulk(spread(11))
    await expect(held.add(group('g0'))).rejects.toBeInstanceOf(CannotStartInTimeError)
  })
})
