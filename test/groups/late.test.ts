import { afterAll, expect, test } from 'vitest'
import { giveBackArguments } from '../../src/departure/give-back.ts'
import { heldJobs } from '../../src/departure/held-job.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import type { GroupDefaults, QueueLimit } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { changeMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'

// Jobs that were granted and go back, because they are late, and what they took of the limits of their group.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const MINUTE_US = 60_000_000
const DAY_US = 24 * 60 * MINUTE_US

const daily: QueueLimit = {
  name: 'daily',
  by: 'group',
  algorithm: 'fixed-window',
  align: 'day',
  rate: '6/day',
  unit: 'mails',
}

const goBack = (reply: DepartureReply) => held.backend.store.run('give-back', giveBackArguments(heldJobs(reply), ''))

/**
 * The start of a queue whose groups have a rate, and jobs of one of them.
 * @returns their ids
 */
async function beginPaced(groups: GroupDefaults, costs: readonly number[]): Promise<(string | undefined)[]> {
  await held.reset({ groups })
  const ids: (string | undefined)[] = []
  for (const cost of costs) ids.push((await held.add({ cost, group: { id: 'a' } })).id)
  return ids
}

async function begin(jobs: number): Promise<void> {
  await held.reset({ groups: {}, limits: [daily] })
  // The limit is known from the first departure on.
  await held.add({ group: { id: 'z' }, costs: { mails: 0 } })
  await held.depart(1)
  await held.advanceTo(START_US + 2 * MINUTE_US)
  for (let i = 0; i < jobs; i++) await held.add({ group: { id: 'a' }, costs: { mails: 2 } })
}

test('a job that is late and goes back takes no unit of the day of its group', async () => {
  await begin(5)
  for (let i = 0; i < 10; i++) {
    const reply = await held.depart(2)
    expect(reply.grants).toHaveLength(2)
    expect(await goBack(reply)).toEqual([2, 0])
  }
  const { grants, nextUs } = await held.depart(5)
  expect(grants).toHaveLength(3)
  const midnightUs = Math.ceil(START_US / DAY_US) * DAY_US
  expect(nextUs).toBe(midnightUs)
})

test('beside jobs that run, and of another group, exactly what went back is free again', async () => {
  await begin(5)
  await held.add({ group: { id: 'b' }, costs: { mails: 5 } })
  const all = await held.depart(6)
  expect(all.grants).toHaveLength(4)
  const [a] = all.grants.filter(({ fields }) => fields.join().includes('"id":"a"'))
  await goBack({ ...all, grants: [a!] })
  expect((await held.depart(6)).grants.map(({ id }) => id)).toEqual([a!.id])
})

test('a job that goes back on the next day leaves the units of that day alone', async () => {
  await begin(8)
  const before = await held.depart(1)
  await held.advanceTo(Math.ceil(START_US / DAY_US) * DAY_US)
  expect((await held.depart(2)).grants).toHaveLength(2)
  await goBack(before)
  expect((await held.depart(6)).grants).toHaveLength(1)
})

test('what was granted before the limit was there gives nothing back', async () => {
  await held.reset({ groups: {} })
  await held.advanceTo(START_US + 2 * MINUTE_US)
  for (let i = 0; i < 6; i++) await held.add({ group: { id: 'a' }, costs: { mails: 2 } })
  const before = await held.depart(1)
  const { limits } = encodeShape({ groups: {}, limits: [daily] }).fields
  await held.backend.store.override({ limits: limits as string }, 'test', 'test', undefined)
  expect((await held.depart(1)).grants).toHaveLength(1)
  await goBack(before)
  expect((await held.depart(6)).grants).toHaveLength(2)
})

test('a job that was too late to be charged gives nothing back', async () => {
  await begin(0)
  const deadlineMs = START_US / 1000 + 3 * 60_000
  await held.add({ group: { id: 'a' }, costs: { mails: 2 }, mustStartBefore: deadlineMs })
  await held.advanceTo(START_US + 4 * MINUTE_US)
  for (let i = 0; i < 5; i++) await held.add({ group: { id: 'a' }, costs: { mails: 2 } })
  const expired = await held.depart(1)
  expect((await held.depart(6)).grants).toHaveLength(3)
  await goBack(expired)
  expect((await held.depart(6)).grants.map(({ id }) => id)).toEqual([expired.grants[0]?.id])
})

test('a job that is late and goes back gives its units back to the bucket of its group', async () => {
  await beginPaced({ rate: '1/min', burst: 4 }, [1, 2, 1, 1])
  for (let i = 0; i < 10; i++) {
    const reply = await held.depart(3)
    expect(reply.grants).toHaveLength(3)
    await held.advanceTo(held.nowUs + 200_000)
    expect(await goBack(reply)).toEqual([3, 0])
    expect(await redis.client().zscore(`${held.base}meta:groups:ready`, 'a')).not.toBeNull()
  }
  const { grants, nextUs } = await held.depart(4)
  expect(grants).toHaveLength(3)
  expect(nextUs).toBe(held.nowUs + MINUTE_US)
})

test('units of a job before the last of its group are not given back: its slots would be granted twice', async () => {
  await beginPaced({ rate: '1/min', burst: 2 }, [1, 1, 1, 1])
  const first = await held.depart(1)
  await held.advanceTo(START_US + 1)
  const second = await held.depart(1)
  await goBack(first)
  expect((await held.depart(1)).nextUs).toBe(START_US + MINUTE_US)
  await goBack(second)
  expect((await held.depart(2)).grants).toHaveLength(1)
})

test('a job that took no unit of the bucket of its group gives none back', async () => {
  const [first, second] = await beginPaced({ rate: '1/min' }, [1, 1, 1])
  // Those with a deferred failure leave without a slot.
  await redis.client().hset(`${held.base}${second}`, 'defa', 'on purpose')
  const { grants, ...reply } = await held.depart(3)
  expect(grants.map(({ id }) => id)).toEqual([first, second])
  await goBack({ ...reply, grants: grants.slice(1) })
  const again = await held.depart(3)
  expect(again.grants.map(({ id }) => id)).toEqual([second])
  expect(again.nextUs).toBe(START_US + MINUTE_US)
})

test('after a loss of state nothing is given back: what was granted behind it may be lost', async () => {
  await held.reset({ rate: '1000/s', groups: { rate: '1/min' } })
  for (let i = 0; i < 2; i++) await held.add({ group: { id: 'a' } })
  const first = await held.depart(1)
  await changeMeter(redis.client(), held.base, { run: 'another' })
  expect((await held.depart(1)).grants).toEqual([])
  await goBack(first)
  const [next] = await held.drain(1, 0)
  expect(next!.slotUs).toBeGreaterThanOrEqual(START_US + MINUTE_US)
})
