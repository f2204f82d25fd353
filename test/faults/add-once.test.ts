import { expect, onTestFinished, test, vi } from 'vitest'
import { IdempotencyConflictError, QueueUnavailableError, type ShapedQueue } from '../../src/index.ts'
import { rejection } from '../queue/support.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { Fleet } from './support/fleet.ts'
import { startOwnCluster } from './support/own-cluster.ts'
import { quickConnection } from './support/own-redis.ts'
import { runs } from './support/scripts.ts'

const redis = useRedis(import.meta.url)
const { prefix } = redis
const shape = { rate: '50/s', capacity: 100 }
const addsInBulk = runs('add-bulk')
const JOBS = [1, 2, 3].map((n) => ({ name: 'job', data: { n } }))
const OPTIONS = { key: 'k', fingerprint: 'f' }

/** A queue whose connection goes through a proxy. */
async function proxied(fleet: Fleet, name: string, options = {}) {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const queue = fleet.queue(name, { connection, prefix, shape, ...options })
  await queue.waitUntilReady()
  return { queue, proxy }
}

test('the reply is lost after the jobs were stored: they are there once, and it is told as the first time', async () => {
  const fleet = new Fleet()
  const { queue, proxy } = await proxied(fleet, 'lost')
  const dropped = proxy.dropReplyOf(addsInBulk, 2)
  const added = await queue.addOnce(JOBS, OPTIONS)
  await dropped
  expect(added).toMatchObject({ ids: [expect.any(String), expect.any(String), expect.any(String)], replayed: false })
  expect(await queue.count()).toBe(3)
  expect(await queue.addOnce(JOBS, OPTIONS)).toMatchObject({ ids: added.ids, replayed: true })
  expect(await queue.count()).toBe(3)
})

test('a reply that never comes: a repeated call, here or in another process, gets the stored jobs', async () => {
  const fleet = new Fleet()
  const { queue, proxy } = await proxied(fleet, 'never', { admitTimeoutMs: 300 })
  let dropping = true
  proxy.dropReplyOf((command) => dropping && addsInBulk(command), Number.POSITIVE_INFINITY)
  const error = await rejection(queue.addOnce(JOBS, OPTIONS))
  expect(error).toBeInstanceOf(QueueUnavailableError)
  expect(error).toMatchObject({ mayBeStored: true })
  const elsewhere = fleet.queue('never', { connection: redis.connection, prefix })
  const found = await elsewhere.addOnce(JOBS, OPTIONS)
  expect(found.replayed).toBe(true)
  dropping = false
  await queue.waitUntilReady()
  const again = await vi.waitFor(() => queue.addOnce(JOBS, OPTIONS), 60_000)
  expect(again).toMatchObject({ ids: found.ids, replayed: true })
  expect(await elsewhere.count()).toBe(3)
})

/** 50 queues over 3 connections ask at once, each from a memory of its own. */
function race(fleet: Fleet, name: string, fingerprintOf: (caller: number) => string) {
  const clients = [1, 2, 3].map(() => redis.client())
  const queues = Array.from({ length: 50 }, (_, i) =>
    fleet.queue(name, { connection: clients[i % 3] as never, prefix }),
  )
  const ask = (queue: ShapedQueue, i: number) => queue.addOnce(JOBS, { key: 'k', fingerprint: fingerprintOf(i) })
  return { queue: queues[0] as ShapedQueue, answers: Promise.allSettled(queues.map(ask)) }
}

test('of 50 callers that race over three connections one adds the jobs, and all get their ids', async () => {
  const { queue, answers } = race(new Fleet(), 'race', () => 'f')
  const found = (await answers).map((answer) => (answer.status === 'fulfilled' ? answer.value : answer.reason))
  expect(found.filter(({ replayed }) => replayed === false)).toHaveLength(1)
  expect(found.filter(({ replayed }) => replayed === true)).toHaveLength(49)
  expect(new Set(found.map(({ ids }) => ids.join())).size).toBe(1)
  expect(await queue.count()).toBe(3)
})

test('of 50 that ask for two things with one key, one thing is done, and the others hear of the conflict', async () => {
  const { queue, answers } = race(new Fleet(), 'conflict', (i) => (i % 2 === 0 ? 'even' : 'odd'))
  const found = await answers
  const won = found.findIndex((answer) => answer.status === 'fulfilled' && !answer.value.replayed)
  const same = found.filter((_, i) => i % 2 === won % 2)
  const other = found.filter((_, i) => i % 2 !== won % 2)
  expect(same.filter(({ status }) => status === 'fulfilled')).toHaveLength(25)
  for (const answer of other) {
    expect(answer.status === 'rejected' && answer.reason).toBeInstanceOf(IdempotencyConflictError)
  }
  expect(other).toHaveLength(25)
  expect(await queue.count()).toBe(3)
})

test('on a cluster the key lies where its queue does', async () => {
  const connection = await startOwnCluster()
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, prefix: '{b}', shape })
  for (const key of ['k', '{other}', 'a}b{c']) {
    const first = await queue.addOnce(JOBS, { key, fingerprint: 'f' })
    expect(first.replayed).toBe(false)
    expect(await queue.addOnce(JOBS, { key, fingerprint: 'f' })).toMatchObject({ ids: first.ids, replayed: true })
  }
  const conflict = await rejection(queue.addOnce(JOBS, { key: 'k', fingerprint: 'g' }))
  expect(conflict).toBeInstanceOf(IdempotencyConflictError)
  expect(await queue.count()).toBe(9)
})

test('obliterate finds the keys of a queue on whatever node of a cluster they lie', async () => {
  const connection = await startOwnCluster()
  const fleet = new Fleet()
  // One for each of three nodes.
  for (const prefix of ['{a}', '{b}', '{c}']) {
    const queue = fleet.queue('mail', { connection, prefix, shape })
    await queue.addOnce(JOBS, OPTIONS)
    await queue.obliterate({ force: true })
    expect(await queue.addOnce(JOBS, OPTIONS)).toMatchObject({ replayed: false })
  }
})
