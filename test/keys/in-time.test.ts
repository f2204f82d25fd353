import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { CannotStartInTimeError, type QueueFullError, type QueueLimit } from '../../src/index.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { rejection } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const other = new HeldQueue(redis, redis.client(), 'other')
afterAll(() => Promise.all([held.close(), other.close()]))

const RPM: QueueLimit = { name: 'rpm', by: 'model', rate: '60/min' }
const TPM: QueueLimit = {
  name: 'tpm',
  by: 'model',
  algorithm: 'token-bucket',
  rate: '600/min',
  burst: 600,
  unit: 'tokens',
}

const add = (id: string, model: string, more: ShapedJobsOptions = {}) =>
  held.add({ jobId: id, keys: { model }, ...more })

const late = (promise: Promise<unknown>) => rejection<CannotStartInTimeError>(promise)

/** When a job that is refused would start, seconds after the start of the clock. */
const startOf = ({ startsAt }: CannotStartInTimeError) => Math.ceil(startsAt.getTime() - START_US / 1000) / 1000

const departAll = async (horizonUs = 0) => (await held.depart(100, horizonUs)).grants.map(({ id }) => id)

test('a job is refused for the jobs of its own value, not for those of another', async () => {
  await held.reset({ maxWaitMs: 3000, limits: [RPM] })
  for (let i = 0; i < 4; i++) await add(`a${i}`, 'a')
  expect(await departAll()).toEqual(['a0'])
  // Of a, three wait, the last for three seconds.
  const error = await late(add('a4', 'a'))
  expect(error).toBeInstanceOf(CannotStartInTimeError)
  expect(startOf(error)).toBe(4)
  expect(error.retryAfterMs).toBe(1000)
  for (let i = 0; i < 4; i++) await add(`b${i}`, 'b')
  expect((await late(add('b4', 'b'))).startsAt).toEqual(error.startsAt)
  const found = await held.drain(10, 0)
  expect(found.map(({ id, slotUs }) => `${id} ${(slotUs - START_US) / 1e6}`)).toEqual(
    [0, 1, 2, 3].flatMap((s) => [...(s > 0 ? [`a${s} ${s}`] : []), `b${s} ${s}`]).toSorted(byTime),
  )
})

test('what a job itself takes decides, and a job that takes nothing does not wait', async () => {
  await held.reset({ maxWaitMs: 1000, limits: [TPM] })
  await add('a0', 'a', { costs: { tokens: 600 } })
  expect(await departAll()).toEqual(['a0'])
  await add('small', 'a', { costs: { tokens: 10 } })
  expect(startOf(await late(add('large', 'a', { costs: { tokens: 100 } })))).toBe(11)
  await add('free', 'a', { costs: { tokens: 0 } })
  await add('other', 'b', { costs: { tokens: 600 } })
  expect((await held.drain(10, 0)).map(({ id }) => id).toSorted()).toEqual(['free', 'other', 'small'])
})

test('a deadline, a bulk and a group are checked by lanes', async () => {
  await held.reset({ groups: {}, limits: [RPM] })
  const inMs = (ms: number) => Math.floor(START_US / 1000) + ms
  await add('a0', 'a', { group: { id: 'x' } })
  expect(await departAll()).toEqual(['a0'])
  await add('a1', 'a', { group: { id: 'x' } })
  const opts = { group: { id: 'x' }, mustStartBefore: inMs(1500) }
  expect(startOf(await late(add('a2', 'a', opts)))).toBe(2)
  await add('b0', 'b', opts)
  const bulk = (ids: readonly string[], model: string) =>
    held.queue.addBulk(
      ids.map((jobId) => ({ name: 'job', data: {}, opts: { ...opts, jobId, keys: { model } } as ShapedJobsOptions })),
    )
  await bulk(['c0', 'c1'], 'c')
  expect(startOf(await late(bulk(['d0', 'd1', 'd2'], 'd')))).toBe(2)
})

test('no job that would start in time is refused, whatever waits', async () => {
  await held.reset({ groups: {}, limits: [RPM, TPM] })
  let [seed, refused, taken] = [7, 0, 0]
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648
    return Math.floor((seed / 2147483648) * below)
  }
  for (let i = 0; i < 150; i++) {
    const deadlineMs = Math.floor(held.nowUs / 1000) + 1000 * (1 + random(6))
    const [id, model] = [`j${i}`, `m${random(3)}`]
    const options = { costs: { tokens: random(3) * 40 }, group: { id: `g${random(3)}` } }
    const isTaken = await add(id, model, { ...options, mustStartBefore: deadlineMs }).then(
      () => true,
      () => false,
    )
    if (isTaken) taken++
    else {
      refused++
      await other.copy(held)
      await other.add({ jobId: id, keys: { model }, ...options })
      const start = (await other.drain(10, 0)).find((one) => one.id === id)
      expect(start?.slotUs).toBeGreaterThan(deadlineMs * 1000)
      await held.advanceTo(held.nowUs)
    }
    if (random(4) === 0) {
      await held.depart(random(5))
      await held.advanceTo(held.nowUs + random(1_000_000))
    }
  }
  expect(refused).toBeGreaterThan(20)
  expect(taken).toBeGreaterThan(20)
})

function byTime(one: string, other: string): number {
  return Number(one.split(' ')[1]) - Number(other.split(' ')[1])
}

test('a full queue whose jobs all wait for their values has a place when the first of them may go', async () => {
  await held.reset({ capacity: 4, limits: [RPM] })
  for (let i = 0; i < 4; i++) await add(`a${i}`, 'a')
  expect(await departAll()).toEqual(['a0'])
  await add('b0', 'b')
  expect(await departAll()).toEqual(['b0'])
  await add('b1', 'b')
  const refused = () => rejection<QueueFullError>(add('c', 'c'))
  // Now all four are known to wait.
  expect(await departAll()).toEqual([])
  expect((await refused()).retryAfterMs).toBe(1000)
  await held.advanceTo(START_US + 300_000)
  expect((await refused()).retryAfterMs).toBe(700)
})
