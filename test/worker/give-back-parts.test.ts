import { afterAll, expect, test } from 'vitest'
import { giveBack } from '../../src/departure/give-back.ts'
import { type HeldJob, heldJobs } from '../../src/departure/held-job.ts'
import { mostGivenBack } from '../../src/departure/jobs-per-script.ts'
import type { Argument } from '../../src/redis/commands.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { quickConnection } from '../faults/support/own-redis.ts'
import { runs } from '../faults/support/scripts.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const SECOND_US = 1_000_000
const JOBS = 9
const MOST = 3

/** What happens between two parts: `after` is how many were sent. */
type Between = (after: number) => Promise<unknown>

async function returnInParts(jobs: readonly HeldJob[], between: Between = async () => {}): Promise<unknown[]> {
  const replies: unknown[] = []
  await giveBack(jobs, 'worker', MOST, async (args: readonly Argument[]) => {
    if (replies.length > 0) await between(replies.length)
    const reply = await held.backend.store.run('give-back', args)
    replies.push(reply)
    return reply
  })
  return replies
}

/** Grants nine of twelve jobs. */
async function grantNine(shape: object, options: (i: number) => object) {
  await held.reset({ rate: '10/s', burst: 1, ...shape })
  for (let i = 0; i < JOBS + MOST; i++) await held.add({ jobId: `j${i}`, ...options(i) })
  return heldJobs(await held.depart(JOBS, 5 * SECOND_US))
}

const all = Array.from({ length: JOBS + MOST }, (_, i) => `j${i}`)

const kinds: [string, object, (i: number) => object][] = [
  ['of the wait list', {}, () => ({})],
  ['with priorities', {}, (i) => ({ priority: 1 + Math.floor(i / 5) })],
  ['of a group', { groups: {} }, () => ({ group: { id: 'a' } })],
]

test.each(kinds)('jobs %s that go back in parts stand ahead in the order of their slots', async (_, shape, options) => {
  const jobs = await grantNine(shape, options)
  expect(jobs.map(({ id }) => id)).toEqual(all.slice(0, JOBS))
  const replies = await returnInParts(jobs)
  // The first call refunds all slots.
  expect(replies).toEqual([
    [3, 1],
    [3, 0],
    [3, 0],
  ])
  const [next] = heldJobs(await held.depart(1, 5 * SECOND_US))
  expect(next).toMatchObject({ id: 'j0', slotUs: START_US })
  expect((await held.drain(1, 5 * SECOND_US)).map(({ id }) => id)).toEqual(all.slice(1))
  const counted = await redis.client().hmget(`${held.base}meta:meter`, 'refundedTotal', 'forfeitedTotal')
  expect(counted).toEqual(['9', null])
})

test.each(kinds)('between the parts, other workers get jobs %s in their order', async (_, shape, options) => {
  const jobs = await grantNine(shape, options)
  const taken: string[] = []
  await returnInParts(jobs, async (after) => {
    const { grants } = await held.depart(after, 60 * SECOND_US)
    taken.push(...grants.map(({ id }) => id))
  })
  expect(taken).toEqual(['j0', 'j1', 'j2'])
  expect((await held.drain(1, 60 * SECOND_US)).map(({ id }) => id)).toEqual(all.slice(3))
})

test('a part that is sent again, and the rest after a failure, change neither the order nor the rate', async () => {
  const jobs = await grantNine({}, () => ({}))
  const lost = new Error('lost')
  const failing = returnInParts(jobs, () => Promise.reject(lost))
  await expect(failing).rejects.toBe(lost)
  expect(await redis.client().llen(`${held.base}active`)).toBe(JOBS - MOST)
  // Not back yet, and not lost: their locks are kept until they expire.
  expect(await redis.client().exists(`${held.base}j3:lock`)).toBe(1)
  expect(await returnInParts(jobs)).toEqual([
    [0, 0],
    [3, 0],
    [3, 0],
  ])
  expect((await held.drain(1, 60 * SECOND_US)).map(({ id }) => id)).toEqual(all)
})

test('slots that a call refunded are not refunded again by later parts, if its reply is lost', async () => {
  await held.reset({ rate: '1/s', burst: JOBS + MOST })
  for (let i = 0; i < 3 * JOBS; i++) await held.add()
  // Of one slot, by two workers.
  expect((await held.depart(MOST)).grants).toHaveLength(MOST)
  const jobs = heldJobs(await held.depart(JOBS))
  let isLost = true
  await giveBack(jobs, 'worker', MOST, async (args: readonly Argument[]) => {
    const reply = await held.backend.store.run('give-back', args)
    const seen = isLost ? await held.backend.store.run('give-back', args) : reply
    isLost = false
    return seen
  })
  expect((await held.depart(3 * JOBS)).grants).toHaveLength(JOBS)
})

test('a worker that closes returns a hundred jobs although its connection breaks between two parts', async () => {
  const proxy = await startProxy(redis.url)
  const fleet = new Fleet()
  const name = 'hundred'
  const { prefix } = redis
  // Slots that are far apart: a busy machine starts few of them meanwhile. A job that starts late there does not go back
  // by itself, which would put it behind the next one.
  const shape = { rate: '5/s', burst: 1, horizonMs: 60_000, maxLatenessMs: 60_000, groups: {} } as const
  const queue = fleet.queue(name, { connection: redis.connection, prefix, shape })
  const ids = Array.from({ length: 120 }, (_, i) => `j${i}`)
  await queue.addBulk(ids.map((jobId) => ({ name: 'job', data: {}, opts: { jobId, group: { id: 'a' } } })))
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const worker = fleet.worker(name, { connection, prefix, concurrency: 110, lockDuration: 400_000 })
  await expect.poll(() => queue.getActiveCount()).toBeGreaterThan(80)
  const dropped = proxy.dropReplyOf(runs('give-back'))
  const parts: number[] = []
  const { store } = worker.backend
  const run = store.run.bind(store)
  store.run = (script, args) => {
    if (script === 'give-back') parts.push((args.length - 6) / 3)
    return run(script, args)
  }
  await worker.close()
  // No call has so many jobs that other clients would notice it.
  expect(Math.max(...parts)).toBe(mostGivenBack(store.memory.stored))
  expect(new Set(parts).size).toBeGreaterThan(1)
  await dropped
  await proxy.stop()
  expect(await queue.getActiveCount()).toBe(0)
  await queue.setShape({ rate: '10000/s' }, { by: 'test', reason: 'the rest runs at once' })
  fleet.worker(name, { connection: redis.connection, prefix })
  await fleet.until(() => fleet.completed.length === ids.length)
  expect(fleet.completed).toEqual(ids)
  expect(fleet.errors).toEqual([])
})
