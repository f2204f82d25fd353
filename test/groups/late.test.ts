import { afterAll, expect, test } from 'vitest'
import { giveBackArguments } from '../../src/departure/give-back.ts'
import { heldJobs } from '../../src/departure/held-job.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import type { QueueLimit } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// Jobs that were granted and go back, because they are late, and what they took of the limits of their group.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const MINUTE_US = 60_000_000
const DAY_US = 24 * 60 * MINUTE_US

const daily: QueueLimit = {
  name: 'daily',
  per: 'group',
  algorithm: 'fixed-window',
  align: 'day',
  rate: '6/day',
  unit: 'mails',
}

const goBack = (reply: DepartureReply) =>
  held.backend.store.run('give-back', giveBackArguments(heldJobs(reply, 'token'), ''))

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
