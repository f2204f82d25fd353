import type { Redis } from 'ioredis'
import { type NotReplicatedError, QueueFullError, type Shape, ShapedFlowProducer } from '../../src/index.ts'
import { ShardShop } from '../sharding/support/shop.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { Fleet } from './support/fleet.ts'
import { quickConnection } from './support/own-redis.ts'
import { startPair } from './support/replicated-pair.ts'

// A replica that stands still, and everything by which jobs are added: what is not confirmed is in the queue once,
// however often it is added again, and takes one place.
useConcurrentTests()

const DURABILITY = { replicas: 1, timeoutMs: 200 }
const WHO = { by: 'ops', reason: 'test' }

/** How a call ended that cannot be confirmed. */
async function unconfirmed(call: Promise<unknown>, ids?: readonly string[]): Promise<NotReplicatedError> {
  const error = (await call.then(
    () => expect.unreachable('it was confirmed'),
    (reason: unknown) => reason,
  )) as NotReplicatedError
  expect(error).toMatchObject({ name: 'NotReplicatedError', acknowledged: 0, mayBeStored: true })
  if (ids) expect(error.jobIds.toSorted()).toEqual(ids.toSorted())
  return error
}

/** A queue whose replica has stopped, and what goes on once it is back. */
async function start(shape: Shape) {
  const pair = await startPair()
  const fleet = new Fleet()
  const connection = quickConnection(pair.master.url)
  const queue = fleet.queue('mail', { connection, shape: { ...shape, durability: DURABILITY } })
  await queue.waitUntilReady()
  pair.freeze()
  /** The replica is back and has everything; it may take its time from now on. */
  const heal = async () => {
    await pair.thaw()
    await queue.setShape({ durability: { replicas: 1, timeoutMs: 5000 } }, WHO)
  }
  /** Every job runs, once. */
  const expectRuns = async (ids: readonly string[]) => {
    fleet.worker('mail', { connection, concurrency: 20 })
    await fleet.until(() => fleet.completed.length >= ids.length)
    await expect.poll(() => queue.count()).toBe(0)
    expect(fleet.completed.toSorted()).toEqual(ids.toSorted())
    expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
  }
  return { ...pair, fleet, connection, queue, heal, expectRuns }
}

const named = (prefix: string, count: number, opts: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ name: 'job', data: {}, opts: { jobId: `${prefix}${i}`, ...opts } }))
const idsIn = (jobs: readonly { opts: { jobId: string } }[]) => jobs.map(({ opts }) => opts.jobId)

test('a bulk in parts, whose places are claimed first: all of it is in, once, and takes its places once', async () => {
  const { queue, heal, expectRuns } = await start({ capacity: 500 })
  const jobs = named('bulk', 450)
  const error = await unconfirmed(queue.addBulk(jobs), idsIn(jobs))
  expect(error.jobIds).toHaveLength(450)
  expect(await queue.meter()).toMatchObject({ waiting: 450, depth: 450 })
  await unconfirmed(queue.addBulk(jobs), idsIn(jobs))
  expect(await queue.meter()).toMatchObject({ waiting: 450, depth: 450 })
  await heal()
  // Of all of them the replica has heard by now.
  expect((await queue.addBulk(jobs.slice(0, 50))).map(({ id }) => id)).toEqual(idsIn(jobs.slice(0, 50)))
  await expectRuns(idsIn(jobs))
})

test('groups: a repeated add takes no second place of its group, and a full group refuses at once', async () => {
  const { queue, heal, expectRuns } = await start({ groups: { capacity: 2, concurrency: 1 } })
  const group = { id: 'a' }
  const add = (jobId: string) => queue.add('job', {}, { jobId, group })
  for (const jobId of ['one', 'one', 'two', 'one', 'two']) await unconfirmed(add(jobId), [jobId])
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 2 })
  const calls = queue.addBulk([{ name: 'job', data: {}, opts: { jobId: 'three', group } }])
  await expect(calls).rejects.toBeInstanceOf(QueueFullError)
  await expect(add('three')).rejects.toBeInstanceOf(QueueFullError)
  expect(await queue.offer('job', {}, { group })).toMatchObject({ accepted: false })
  const once = { key: 'k', fingerprint: 'f' }
  const other = [1, 2].map(() => ({ name: 'job', data: {}, opts: { group: { id: 'b' } } }))
  const { jobIds } = await unconfirmed(queue.addOnce(other, once))
  await unconfirmed(queue.addOnce(other, once), jobIds)
  expect(await queue.getGroup('b')).toMatchObject({ waiting: 2 })
  await heal()
  expect(await queue.addOnce(other, once)).toMatchObject({ ids: jobIds, replayed: true })
  await expectRuns(['one', 'two', ...jobIds])
})

test('flows: parent and children are there once, and a repeated flow adds none of them again', async () => {
  const { queue, connection, heal, expectRuns } = await start({ capacity: 100, groups: {} })
  const flows = new ShapedFlowProducer({ connection })
  onTestFinished(() => flows.close())
  const [parent, ...children] = named('flow', 4, { group: { id: 'a' } })
  const flow = {
    ...{ ...(parent as (typeof children)[0]), queueName: 'mail' },
    children: children.map((child) => ({ ...child, queueName: 'mail' })),
  }
  const ids = idsIn([parent as (typeof children)[0], ...children])
  await unconfirmed(flows.add(flow), ids)
  expect(await queue.meter()).toMatchObject({ waiting: 3, waitingChildren: 1 })
  await unconfirmed(flows.add(flow), ids)
  expect(await queue.meter()).toMatchObject({ waiting: 3, waitingChildren: 1 })
  await heal()
  expect((await flows.add(flow)).job.id).toBe('flow0')
  await expectRuns(ids)
})

/** The ids of all jobs in Redis, one for each time that a shard has it. */
async function jobsOn(admin: Redis): Promise<string[]> {
  const keys = await admin.keys('*:mail:*')
  const isJob = async (key: string) =>
    (await admin.type(key)) === 'hash' && (await admin.hexists(key, 'timestamp')) === 1
  const jobs = await Promise.all(keys.map(async (key) => ((await isJob(key)) ? [key] : [])))
  return jobs.flat().map((key) => key.slice(key.lastIndexOf(':') + 1))
}

test('a sharded queue: an unconfirmed job is not tried in another shard, and nothing is in two', async () => {
  const pair = await startPair()
  const shop = new ShardShop({ connection: quickConnection(pair.master.url), prefix: 'bull' })
  const mail = shop.queue('mail', { shards: 3, shape: { capacity: 300, groups: {}, durability: DURABILITY } })
  await mail.waitUntilReady()
  pair.freeze()
  const ids = new Set<string>()
  const seen = ({ jobIds }: NotReplicatedError) => {
    for (const id of jobIds) ids.add(id)
  }
  for (let i = 0; i < 2; i++) {
    seen(await unconfirmed(mail.add('job', {}, { jobId: 'mine' }), ['mine']))
    seen(await unconfirmed(mail.add('job', {}, { jobId: 'of-a', group: { id: 'a' } }), ['of-a']))
    seen(await unconfirmed(mail.offer('job', {}, { jobId: 'offered' }), ['offered']))
    seen(await unconfirmed(mail.addOnce([{ name: 'job', data: {} }], { key: 'k', fingerprint: 'f' })))
    const bulk = ['a', 'b', 'c', 'd'].flatMap((id) => named(`${id}-`, 2, { group: { id } }))
    seen(await unconfirmed(mail.addBulk(bulk), idsIn(bulk)))
  }
  expect(ids.size).toBe(3 + 1 + 8)
  expect((await jobsOn(pair.admin)).toSorted()).toEqual([...ids].toSorted())
  await pair.thaw()
  await mail.setShape({ durability: { replicas: 1, timeoutMs: 5000 } }, WHO)
  expect((await mail.add('job', {}, { jobId: 'mine' })).id).toBe('mine')
  expect(await mail.addOnce([{ name: 'job', data: {} }], { key: 'k', fingerprint: 'f' })).toMatchObject({
    replayed: true,
  })
  expect(await mail.count()).toBe(ids.size)
})
