import { afterAll, expect, test } from 'vitest'
import { audit } from '../../src/audit/audit.ts'
import type { QueueLimit, RateSchedule } from '../../src/index.ts'
import { encodeRate } from '../../src/limits/schedule.ts'
import { inspectorOf } from '../inspect/support.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'
import { closedFor, zone } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const held = new HeldQueue(redis, redis.client(), 'held')
const who = { by: 'test', reason: 'quiet hours' }
const pool = ['a', 'b']

afterAll(() => held.close())

/** Open from one minute to another after the start of the clock, at two jobs a minute. */
function openFor(from: number, to: number): RateSchedule {
  const clock = (minute: number) => new Date(START_US / 1000 + minute * 60_000).toISOString().slice(11, 16)
  return { schedule: [{ from: clock(from), to: clock(to), rate: '2/min' }, { rate: 0 }] }
}

/** Adds jobs, and lets all depart. @returns how many seconds after the start each did, and its member */
async function departures(count: number, horizonUs = 0): Promise<string[]> {
  for (let i = 0; i < count; i++) await held.add()
  const left: string[] = []
  for (;;) {
    const { grants, stop, nextUs } = await held.depart(10, horizonUs)
    for (const { slotUs, fields } of grants) {
      const [, member] = /"keys":"(\w)"/.exec(fields.join()) as RegExpExecArray
      left.push(`${Math.round((slotUs - START_US) / 1e6)} ${member}`)
    }
    if (stop === 'empty') return left
    await held.advanceTo((nextUs as number) - horizonUs)
  }
}

const setRate = (member: string, rate: QueueLimit['rate'], ttlMs?: number) =>
  held.backend.store.changeLimit('keys', { member }, { rate: encodeRate(rate) }, who, ttlMs)

test('a pool follows the clock', async () => {
  await held.reset({ limits: [{ name: 'keys', pool, rate: openFor(2, 4) }] })
  expect(await departures(6)).toEqual(['120 a', '120 b', '150 a', '150 b', '180 a', '180 b'])
})

test('one member follows the clock, and then another schedule', async () => {
  await held.reset({ limits: [{ name: 'keys', pool, rate: '1/min' }] })
  await setRate('a', openFor(2, 4))
  expect(await departures(6)).toEqual(['0 b', '60 b', '120 a', '120 b', '150 a', '180 a'])
  await setRate('a', openFor(5, 6), 600_000)
  await setRate('b', openFor(5, 7))
  expect(await departures(4)).toEqual(['300 b', '330 a', '330 b', '360 b'])
  await setRate('a', '1/min')
  expect(await departures(2)).toEqual(['360 a', '390 b'])
})

test('a job that another limit holds beyond the hours of one member departs with an open one', async () => {
  const slow: QueueLimit = { name: 'slow', rate: '1/min' }
  await held.reset({ limits: [{ name: 'keys', pool: ['b', 'a'], rate: '2/min' }, slow] })
  await setRate('a', openFor(0, 1))
  expect(await departures(2, 10_000_000)).toEqual(['0 b', '60 b'])
  await held.reset({
    limits: [
      { name: 'keys', pool, rate: openFor(0, 2), burst: 9 },
      { ...slow, rate: '1/h' },
    ],
  })
  expect(await departures(2)).toEqual(['0 a', `${24 * 3600} a`])
})

test('a member that is held without end costs no search for the hours in which it may go', async () => {
  await held.reset({ rate: openFor(0, 1), limits: [{ name: 'keys', pool: ['a'], rate: openFor(2, 4) }] })
  await held.backend.store.changeLimit('keys', { member: 'a' }, { held: true }, who)
  await held.add()
  const start = performance.now()
  expect(await held.depart(1)).toMatchObject({ stop: 'closed' })
  expect(performance.now() - start).toBeLessThan(100)
})

test('while all members are closed nothing departs, and all views say until when', async () => {
  const { rate, opensAt } = closedFor(3)
  const limits = [{ name: 'keys', pool, rate: '1000/s' }] as const
  const queue = shop.queue({ limits, onClosed: 'refuse', audit: 100 })
  await queue.setLimit('keys', 'a', { rate }, who)
  await queue.add('job', {})
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  expect(departed.all[0]).toMatchObject({ pool: { keys: 'b' } })
  await queue.setShape({ onClosed: 'wait', limits: [{ name: 'keys', pool, rate }] }, who)
  const offer = await queue.offer('job', {})
  expect(offer).toMatchObject({ accepted: true, startsAt: opensAt })
  const closed = { until: opensAt, timeZone: zone }
  const inspector = inspectorOf(redis, shop)
  await expect
    .poll(async () => (await inspector.status([queue.name]))[0])
    .toMatchObject({ hold: { cause: 'limits', limit: 'keys', closed } })
  const { id } = (offer as { job: { id: string } }).job
  expect(await inspector.explain(queue.name, id)).toMatchObject({ hold: { limit: 'keys', closed }, startsAt: opensAt })
  expect(await queue.getLimit('keys', 'b')).toMatchObject({ inForce: { rate, burst: 1 }, closed: true, opensAt })
  await queue.setShape({ onClosed: 'refuse' }, who)
  await expect(queue.add('job', {})).rejects.toMatchObject({ limitName: 'keys', opensAt })
  await queue.setLimit('keys', 'b', { rate: '1000/s' }, who)
  await departed.reach(2)
  expect(audit(await inspector.audit(queue.name), { limits: [...limits] }).broken).toBe(false)
})
