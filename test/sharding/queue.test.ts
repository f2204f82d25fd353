import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test, vi } from 'vitest'
import {
  InvalidCostError,
  InvalidDeadlineError,
  InvalidGroupError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidLimitError,
  InvalidShapeError,
  NotReplicatedError,
  QueueFullError,
  QueueUnavailableError,
  SluiceError,
  TooLargeError,
  UnsupportedOptionError,
} from '../../src/errors.ts'
import { type ShapedJob, ShapedQueue } from '../../src/index.ts'
import { shardOf } from '../../src/redis/shards.ts'
import { ShardedQueue, ShardedWorker } from '../../src/sharding/index.ts'
import { shardNamedBy } from '../../src/sharding/placement.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { useRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = () => new ShardShop({ connection, prefix })
const WHO = { by: 'test', reason: 'test' }
/** For so long a busy machine may keep an answer waiting, or the news that no one listens. */
const BUSY_MS = 2500
const jobs = (count: number, opts = {}) => Array.from({ length: count }, (_, i) => ({ name: 'job', data: { i }, opts }))

test('every job runs once, and all shards together keep the rate, also while it is lowered', async () => {
  const { queue, worker, slotsUs, errors } = use(shop())
  const shape = { rate: '400/s', burst: 6, capacity: 2000, audit: true } as const
  const mail = queue('exact', { shards: 3, shape })
  const added = await mail.addBulk(jobs(200))
  for (let i = 0; i < 200; i++) added.push(await mail.add('job', { i }))
  const workers = [1, 2].map(() => worker('exact', async () => undefined, { shards: 3, concurrency: 12, shape }))
  const ends = endsOf(...workers)
  await ends.reach(150)
  await mail.setShape({ rate: '200/s' }, WHO)
  const { each } = await mail.meter()
  const perSecond = each.reduce((sum, { rate }) => sum + Number.parseFloat(rate ?? '0'), 0)
  expect(perSecond).toBeLessThanOrEqual(200)
  await ends.reach(400)
  expect(ends.ids.toSorted()).toEqual(added.map(({ id }) => id).toSorted())
  // Each shard has a burst of its own.
  expect(worstWindow(await slotsUs(mail), { rate: '400/s', burst: 6 })?.excessUs).toBeLessThanOrEqual(1)
  expect(errors).toEqual([])
})

test('the places of all shards are as many as the whole has, wherever jobs are added', async () => {
  const { queue } = use(shop())
  const mail = queue('places', { shards: 4, shape: { capacity: 40, groups: { share: { ofFree: 1000 } } } })
  // All of one group: its shard gets the places of the others, but for one each.
  const group = { id: 'a' }
  let [accepted, retries] = [0, 0]
  while (accepted < 37) {
    const offer = await mail.offer('job', {}, { group })
    if (offer.accepted) accepted += 1
    else {
      // Places move a few times a second.
      await sleep(2)
      retries += 1
    }
    expect(retries).toBeLessThan(5000)
  }
  expect((await mail.meter()).depth).toBe(37)
  const refused = await mail.add('job', {}, { group }).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(QueueFullError)
  // Jobs of no group are offered to each.
  for (let i = 0; i < 3; i++) await mail.add('job', {})
  const full = (await mail.add('job', {}).catch((error: unknown) => error)) as QueueFullError
  expect(full).toMatchObject({ name: 'QueueFullError', depth: 40, capacity: 40 })
  expect(await mail.count()).toBe(40)
  await mail.obliterate({ force: true })
})

test('a shard whose jobs wait gets what the idle ones do not need', async () => {
  const { queue, worker } = use(shop())
  const shape = { rate: '300/s', groups: { share: { ofFree: 1000 } }, capacity: 5000 }
  const mail = queue('demand', { shards: 3, shape })
  const busy = shardOf('group:busy', 3)
  // A shard that answers late has its lease a little later.
  const places = async () => (await mail.meter()).each[busy]?.capacity ?? 0
  await expect.poll(places, { interval: 20 }).toBeGreaterThan(1500)
  // So many that some still wait when the rate has moved, however long that takes.
  await mail.addBulk(jobs(1500, { group: { id: 'busy' } }))
  worker('demand', async () => undefined, { shards: 3, concurrency: 60, shape })
  const rate = async () => Number.parseFloat((await mail.meter()).each[busy]?.rate ?? '0')
  await expect.poll(rate, { interval: 20 }).toBeGreaterThan(270)
  await mail.obliterate({ force: true })
})

test('a shard that fails does not keep the others from a pause', async () => {
  const { queue } = use(shop())
  const mail = queue('partly', { shards: 3, shape: { capacity: 30 } })
  await mail.waitUntilReady()
  const [away, slow] = mail.each as [ShapedQueue, ShapedQueue]
  vi.spyOn(away, 'pause').mockRejectedValue(new Error('Connection is closed'))
  const pause = slow.pause.bind(slow)
  vi.spyOn(slow, 'pause').mockImplementation(async (who) => {
    await sleep(20)
    await pause(who)
  })
  await expect(mail.pause(WHO)).rejects.toThrow('Connection is closed')
  expect((await mail.meter()).each.map(({ paused }) => paused)).toEqual([false, true, true])
  vi.restoreAllMocks()
  await mail.obliterate({ force: true })
})

test('the empty prefix is one of its own, for workers too', async () => {
  const { queue, worker } = use(new ShardShop({ connection, prefix: '' }))
  const name = `${prefix}-empty`
  const mail = queue(name, { shards: 2, shape: { capacity: 10 } })
  const ends = endsOf(worker(name, async () => 0, { shards: 2, concurrency: 2 }))
  // A shard that answers late has its lease a little later, and until then one place.
  const fewest = async () => Math.min(...(await mail.meter()).each.map(({ capacity }) => capacity ?? 0))
  await expect.poll(fewest, { interval: 20 }).toBeGreaterThanOrEqual(4)
  await mail.addBulk(jobs(4))
  await ends.reach(4)
  await mail.obliterate({ force: true })
})

test('jobs are found, counted, explained, paused', async () => {
  const { queue, worker } = use(shop())
  const shape = { rate: '500/s', capacity: 100, concurrency: 20 }
  const mail = queue('views', { shards: 3, shape })
  await mail.pause()
  const named = await mail.add('job', {}, { jobId: 'mine' })
  const again = await mail.add('job', {}, { jobId: 'mine' })
  const other = await mail.add('job', {})
  expect(again.id).toBe(named.id)
  expect((await mail.getJob('mine'))?.id).toBe('mine')
  expect((await mail.getJob(other.id as string))?.id).toBe(other.id)
  expect(await mail.getJob('none')).toBeUndefined()
  expect(await mail.explain(other.id as string)).toMatchObject({
    shard: Number(other.id?.split('-')[0]),
    state: 'waiting',
    hold: { cause: 'pause' },
  })
  const once = await mail.addOnce(jobs(3), { key: 'k', fingerprint: 'f' })
  expect(await mail.addOnce(jobs(3), { key: 'k', fingerprint: 'f' })).toMatchObject({ ids: once.ids, replayed: true })
  expect(await mail.getJobCounts('waiting')).toEqual({ waiting: 5 })
  expect(await mail.meter()).toMatchObject({ depth: 5, waiting: 5, shape: { rate: '500/s', capacity: 100 } })
  const ends = endsOf(worker('views', async () => undefined, { shards: 3, concurrency: 3, shape }))
  await mail.resume()
  await ends.reach(5)
  await mail.obliterate({ force: true })
})

test('the jobs in hand of a worker are never more than its concurrency, and a busy shard gets the most of it', async () => {
  const { queue, worker } = use(shop())
  const mail = queue('hands', { shards: 3, shape: { capacity: 1000, groups: {} } })
  // The shard takes all or none: until it has been leased places for them, it has one.
  await vi.waitFor(() => mail.addBulk(jobs(60, { group: { id: 'busy' } })), 60_000)
  let [running, most] = [0, 0]
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const hands = worker(
    'hands',
    async () => {
      running += 1
      most = Math.max(most, running)
      await released
      running -= 1
    },
    { shards: 3, concurrency: 12, shape: { capacity: 1000, groups: {} } },
  )
  const ends = endsOf(hands)
  // One place stays with each of the others.
  await expect.poll(() => running, { interval: 10 }).toBe(10)
  await mail.addBulk(jobs(60))
  release()
  await ends.reach(120)
  expect(most).toBeLessThanOrEqual(12)
  await mail.obliterate({ force: true })
})

test.each([1, 8])('a process with %i shards is refused by a queue of three, and changes nothing', async (wrong) => {
  const made = shop()
  const { queue, worker, errors } = use(made)
  const name = `refuses-${wrong}`
  const mail = queue(name, { shards: 3, shape: { rate: '100/s', burst: 6, capacity: 50, audit: true } })
  await mail.add('job', {}, { jobId: 'mine' })
  const before = await keysOf(name)
  const shape = { rate: '900/s', burst: 90, capacity: 900 }
  const other = queue(name, { shards: wrong, shape })
  const refusal = { name: 'ShardCountError', queueName: name, expected: 3, given: wrong }
  for (const call of [
    () => other.waitUntilReady(),
    () => other.add('job', {}),
    () => other.addBulk(jobs(2)),
    () => other.addOnce(jobs(1), { key: 'k', fingerprint: 'f' }),
    () => other.setShape({ capacity: 40 }, WHO),
    () => other.pause(),
    () => other.meter(),
    () => other.getJob('mine'),
  ]) {
    await expect(call()).rejects.toMatchObject(refusal)
  }
  const hands = worker(name, async () => undefined, { shards: wrong, concurrency: 8, shape })
  await expect(hands.waitUntilReady()).rejects.toMatchObject(refusal)
  expect(hands.workers).toEqual([])
  // Without a shape of its own it would take the stored one.
  await expect(queue(name, { shards: wrong }).add('job', {})).rejects.toMatchObject(refusal)
  expect(errors).toMatchObject([refusal, refusal, refusal])
  expect(await keysOf(name)).toEqual(before)
  expect((await mail.meter()).shape).toMatchObject({ rate: '100/s', burst: 6, capacity: 50 })
  await mail.obliterate({ force: true })
})

test('of two processes that declare a queue at the same moment with different numbers, one is refused', async () => {
  const { queue } = use(shop())
  const made = [2, 3].map((shards) => queue('first', { shards, shape: { capacity: 50 } }))
  const ready = await Promise.allSettled(made.map((one) => one.waitUntilReady()))
  expect(ready.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  const winner = made[ready[0]?.status === 'fulfilled' ? 0 : 1] as ShardedQueue
  expect((await winner.getShape())?.burst).toBe(winner.shards)
  await winner.obliterate({ force: true })
})

/** Everything that declares something, but for leases. */
async function keysOf(name: string): Promise<Record<string, unknown>> {
  const client = redis.client()
  const keys = (await client.keys(`{${prefix}:${name}*`)).toSorted()
  const shapes = keys.filter((key) => key.endsWith(':meta:shape'))
  const declared = await Promise.all(shapes.map((key) => client.hget(key, 'declared')))
  return { keys, declared }
}

test.each([
  [{ shards: 0 }, InvalidInputError, 'shards must be a whole number from 1 to 64; got 0'],
  [{ shards: Number.NaN }, InvalidInputError, 'shards must be a whole number from 1 to 64; got NaN'],
  [{ shards: 3, placeBy: 'group' }, InvalidInputError, 'placeBy must be a function of a job; got "group"'],
  [{ shards: 3, shape: { burst: 2 } }, InvalidShapeError, 'shape.burst of a queue with 3 shards must be at least 3'],
  [
    { shards: 3, shape: { capacity: 2 } },
    InvalidShapeError,
    'shape.capacity of a queue with 3 shards must be at least 3',
  ],
  [{ shards: 3, shape: { rate: '1/min' } }, InvalidShapeError, 'must be at least 3 a minute'],
  [
    { shards: 3, shape: { horizonMs: 900 } },
    InvalidShapeError,
    'shape.horizonMs must be at most 500 in shards; got 900',
  ],
  [{ shards: 3, shape: { reservedPlaces: { 1: 2 } } }, UnsupportedOptionError, 'shape.reservedPlaces is not supported'],
  [
    { shards: 3, shape: { limits: [{ name: 'day', rate: '5/day' }] } },
    UnsupportedOptionError,
    'shape.limits ("day") is not supported',
  ],
])('refuses %j', (options, type, message) => {
  const made = () => new ShardedQueue('x', { connection, prefix, ...options } as never)
  expect(made).toThrow(type)
  expect(made).toThrow(message)
})

test.each([
  [{ shard: 3 }, "there is no option 'shard' of a queue with shards: did you mean 'shards'?"],
  [{ shards: 3, placeby: () => 'a' }, "there is no option 'placeby' of a queue with shards: did you mean 'placeBy'?"],
])('a misspelt option is not ignored: %j', (options, message) => {
  const all = { connection, prefix, concurrency: 3, ...options } as never
  expect(() => new ShardedWorker('x', async () => 0, all)).toThrow(message)
  const { concurrency: _, ...rest } = all as Record<string, unknown>
  expect(() => new ShardedQueue('x', rest as never)).toThrow(message)
})

test('a worker needs a place for each shard', () => {
  const made = () => new ShardedWorker('x', async () => 0, { connection, prefix, shards: 3, concurrency: 2 })
  expect(made).toThrow('concurrency must be a whole number of at least 3, one for each shard; got 2')
})

test('what is lifted is lifted in all shards, also what is not declared', async () => {
  const { queue } = use(shop())
  const mail = queue('lifts', { shards: 3, shape: { rate: '90/s', capacity: 50 } })
  const shapes = () => Promise.all(mail.each.map((one) => one.getShape()))
  const modes = async () => (await shapes()).map((shape) => shape?.mode)
  await mail.setShape({ mode: 'shadow', maxWaitMs: 5 }, WHO)
  expect(await modes()).toEqual(['shadow', 'shadow', 'shadow'])
  await mail.clearShape()
  expect(await modes()).toEqual(['enforce', 'enforce', 'enforce'])
  expect((await shapes()).map((shape) => shape?.maxWaitMs)).toEqual([undefined, undefined, undefined])
  // The leases are still there.
  expect((await mail.meter()).each.reduce((sum, { capacity = 0 }) => sum + capacity, 0)).toBe(50)
  await mail.obliterate({ force: true })
})

test('a change of the whole that the shards could not keep is refused, and changes nothing', async () => {
  const { queue } = use(shop())
  const mail = queue('bursts', { shards: 3, shape: { rate: '90/s', burst: 60, capacity: 50, concurrency: 9 } })
  await mail.waitUntilReady()
  for (const [override, type, message] of [
    [{ burst: 90 }, UnsupportedOptionError, 'shape.burst is not supported in a queue with shards: it cannot change'],
    [{ burst: null }, UnsupportedOptionError, 'shape.burst is not supported in a queue with shards: it cannot change'],
    [
      { capacity: 2 },
      InvalidShapeError,
      'shape.capacity of a queue with 3 shards must be at least 3, one for each; got 2',
    ],
    [{ concurrency: 2 }, InvalidShapeError, 'shape.concurrency of a queue with 3 shards must be at least 3'],
    [{ rate: '1/min' }, InvalidShapeError, 'must be at least 3 a minute'],
    [undefined, SluiceError, 'got undefined'],
    [null, SluiceError, 'got null'],
    [{ limits: [null] }, InvalidLimitError, 'shape.limits must be a list of limits; got null in it'],
  ] as const) {
    const error = await mail.setShape(override as never, WHO).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(type)
    expect((error as Error).message).toContain(message)
  }
  expect((await mail.getShape())?.overrides).toEqual({})
  expect((await Promise.all(mail.each.map((one) => one.getShape()))).map((shape) => shape?.burst)).toEqual([20, 20, 20])
  await mail.obliterate({ force: true })
})

test.each([3_300_000, 40_000_000])('a rate of %i a second is divided as any other', async (perSecond) => {
  const { queue } = use(shop())
  const mail = queue(`fast-${perSecond}`, { shards: 3, shape: { rate: `${perSecond}/s`, capacity: 50 } })
  await mail.waitUntilReady()
  const shapes = await Promise.all(mail.each.map((one) => one.getShape()))
  const rates = shapes.map((shape) => Number.parseFloat(shape?.rate ?? 'Infinity'))
  expect(Math.min(...rates)).toBeGreaterThan(0)
  expect(rates.reduce((sum, rate) => sum + rate)).toBeLessThanOrEqual(perSecond)
  await mail.obliterate({ force: true })
})

test('a shard reports its lease, also while feedback keeps it below that', async () => {
  const { queue, worker } = use(shop())
  const shape = { rate: '900/s', capacity: 50, concurrency: 30 }
  const mail = queue('obeys', { shards: 3, shape })
  await mail.waitUntilReady()
  const job = await mail.add('job', {})
  const shard = mail.each[Number(job.id?.split('-')[0])] as ShapedQueue
  const reports = async () => {
    const [, text] = (await shard.backend.store.run('apply-lease', ['', '', '', '', '', ''])) as [number, string]
    return JSON.parse(text) as { concurrency: number }
  }
  const hands = worker(
    'obeys',
    (async (one: ShapedJob) => {
      one.feedback({ kind: 'concurrency', limit: 1 })
    }) as never,
    { shards: 3, concurrency: 3, shape },
  )
  const heard = new Promise((resolve) => hands.on('feedback', resolve))
  await heard
  const lower = (await shard.getShape())?.concurrency ?? 0
  const { overrides } = (await shard.getShape()) as { overrides: { concurrency?: { value: number } } }
  expect(lower).toBe(1)
  expect(overrides.concurrency?.value).toBeGreaterThan(1)
  expect((await reports()).concurrency).toBe(overrides.concurrency?.value)
  await mail.obliterate({ force: true })
})

test('of a lost shape that a process restores, the places of an earlier lease are not in force', async () => {
  const { queue } = use(shop())
  const mail = queue('restored', { shards: 2, shape: { rate: '90/s', capacity: 50, concurrency: 10 } })
  await mail.waitUntilReady()
  const { backend, opts } = mail.each[0] as ShapedQueue
  const client = redis.client()
  const copy = await client.hgetall(backend.store.key)
  expect(copy).toMatchObject({ capacity: '25', concurrency: '5' })
  await mail.close()
  await client.del(backend.store.key)
  // No coordinator gives it a lease.
  const shard = new ShapedQueue('restored', { connection, prefix: opts.prefix as string })
  await shard.backend.store.run('restore-shape', [`${copy.born}:${copy.rev}`, ...Object.entries(copy).flat()])
  expect(await shard.getShape()).toMatchObject({ capacity: 1, concurrency: 1 })
  await shard.close()
})

test('an add fails in time where the shards get no leases', async () => {
  const { queue } = use(shop())
  const mail = queue('leaseless', { shards: 2, admitTimeoutMs: BUSY_MS })
  const refusal = { name: 'QueueUnavailableError', queueName: 'leaseless', mayBeStored: false }
  const adds = [mail.add('job', {}), mail.addBulk(jobs(2))]
  for (const add of adds) add.catch(() => {})
  for (const add of adds) await expect(add).rejects.toMatchObject(refusal)
  await expect(adds[0]).rejects.toThrow(`no process has declared its shape within ${BUSY_MS} ms`)
  expect(await mail.getJobCounts('waiting')).toEqual({ waiting: 0 })
  await mail.obliterate({ force: true })
})

test('without Redis, calls fail in time and say why', async () => {
  const away = new ShardShop({ connection: { host: '127.0.0.1', port: await findFreePort() }, prefix })
  const mail = away.queue('away', { shards: 2, shape: { capacity: 50 }, admitTimeoutMs: BUSY_MS })
  const cause = { code: 'ECONNREFUSED' }
  const adding = mail.add('job', {})
  await expect(adding).rejects.toMatchObject({ name: 'QueueUnavailableError', mayBeStored: false, cause })
  await expect(adding).rejects.toThrow(/got no leases within 2500 ms \(.*ECONNREFUSED/)
  const reads = [
    () => mail.getJobCounts(),
    () => mail.count(),
    () => mail.getJob('a'),
    () => mail.meter(),
    () => mail.explain('a'),
    () => mail.queueOfJob('a'),
  ]
  const refusals = reads.map((read) =>
    expect(read(), `${read}`).rejects.toMatchObject({ name: 'QueueUnavailableError', cause }),
  )
  await Promise.all(refusals)
})

test('a rate that was never declared is not set at run time', async () => {
  const { queue } = use(shop())
  const mail = queue('unpaced', { shards: 2, shape: { capacity: 50 } })
  await expect(mail.setShape({ rate: '5/s' }, WHO)).rejects.toThrow('declares no rate: declare shape.rate')
  await mail.obliterate({ force: true })
})

function use(made: ShardShop) {
  return {
    queue: made.queue.bind(made),
    worker: made.worker.bind(made),
    slotsUs: made.slotsUs.bind(made),
    errors: made.errors,
  }
}

test('the jobs of a group by default are all in its shard', async () => {
  const { queue } = use(shop())
  const mail = queue('default-group', {
    shards: 3,
    shape: { groups: {} },
    defaultJobOptions: { group: { id: 'a' } } as never,
  })
  for (let i = 0; i < 3; i++) await mail.add('job', {})
  await mail.addBulk(jobs(3))
  await mail.addOnce(jobs(3), { key: 'k', fingerprint: 'f' })
  expect((await mail.meter()).each.map(({ waiting }) => waiting).filter(Boolean)).toEqual([9])
  expect(await (await mail.queueOfGroup('a')).getGroupJobsCount('a')).toBe(9)
  await mail.obliterate({ force: true })
})

test('a shard takes no jobs of a group that belongs to another one', async () => {
  const { queue } = use(shop())
  const mail = queue('foreign-group', { shards: 2, shape: { groups: {} } })
  await mail.waitUntilReady()
  const home = await mail.queueOfGroup('a')
  const other = mail.each.find((one) => one !== home) as ShapedQueue
  const job = { name: 'job', data: {}, opts: { group: { id: 'a' } } }
  for (const call of [
    () => other.add(job.name, job.data, job.opts),
    () => other.offer(job.name, job.data, job.opts),
    () => other.addBulk([job]),
    () => other.addOnce([job], { key: 'k', fingerprint: 'f' }),
    () => other.upsertJobScheduler('s', { every: 60_000 }, job),
  ]) {
    await expect(call()).rejects.toThrow(InvalidGroupError)
  }
  expect(await other.count()).toBe(0)
  await home.upsertJobScheduler('s', { every: 60_000 }, job)
  await home.add(job.name, job.data, job.opts)
  expect(await mail.count()).toBe(2)
  await mail.obliterate({ force: true })
})

test('a job is found by an id of its own that looks like a generated one', async () => {
  const { queue } = use(shop())
  const mail = queue('alike', { shards: 2, shape: {} })
  for (const jobId of ['0-01HZX5V8ABCDEFGH', '1-01HZX5V8ABCDEFGH', '1-20240101AAAAAA']) {
    await mail.add('job', {}, { jobId })
    expect((await mail.getJob(jobId))?.id).toBe(jobId)
    expect((await mail.queueOfJob(jobId)).opts.prefix).toBe(mail.each[shardOf(jobId, 2)]?.opts.prefix)
    expect(await mail.explain(jobId)).toMatchObject({ shard: shardOf(jobId, 2) })
  }
  const ids = [1, 2].map(async () => (await mail.add('job', {}, { jobId: '' })).id as string)
  expect((await Promise.all(ids)).map((id) => shardNamedBy(id)).toSorted()).toEqual([0, 1])
  await mail.obliterate({ force: true })
})

test('a cost above the part of a shard is refused with the burst that the whole would need', async () => {
  const { queue } = use(shop())
  const mail = queue('dear', { shards: 3, shape: { rate: '90/s', burst: 5 } })
  const job = { name: 'job', data: {}, opts: { cost: 2 } }
  for (const call of [
    () => mail.add(job.name, job.data, job.opts),
    () => mail.offer(job.name, job.data, job.opts),
    () => mail.addBulk([job]),
    () => mail.addOnce([job], { key: 'k', fingerprint: 'f' }),
  ]) {
    const refused = call()
    await expect(refused).rejects.toMatchObject({ name: 'CostTooHighError', cost: 2, burst: 1 })
    await expect(refused).rejects.toThrow('the part of each of 3 shards: declare a burst of at least 6')
  }
  await mail.obliterate({ force: true })
})

test('of a bulk with a wrong job nothing is added, whatever shards its jobs belong to', async () => {
  const { queue } = use(shop())
  const mail = queue('wrong', { shards: 3, shape: { groups: {} } })
  const good = ['a', 'b', 'c', 'd', 'e', 'f'].map((id) => ({ name: 'job', data: {}, opts: { group: { id } } }))
  for (const [opts, error] of [
    [{ cost: -1 }, InvalidCostError],
    [{ jobId: 5 }, InvalidJobIdError],
    [{ group: 'a' }, InvalidGroupError],
    [{ mustStartBefore: 'soon' }, InvalidDeadlineError],
  ] as const) {
    await expect(mail.addBulk([...good, { name: 'job', data: {}, opts: opts as never }])).rejects.toThrow(error)
  }
  for (const wrong of [undefined, {}, [null], ['job']]) {
    await expect(mail.addBulk(wrong as never)).rejects.toThrow(InvalidInputError)
    await expect(mail.addOnce(wrong as never, { key: 'k', fingerprint: 'f' })).rejects.toThrow(InvalidInputError)
  }
  expect(await mail.count()).toBe(0)
  expect(await mail.addBulk([{ name: 'job', data: {}, opts: undefined }])).toHaveLength(1)
  await expect(mail.queueOfGroup(undefined as never)).rejects.toThrow(InvalidGroupError)
  await mail.obliterate({ force: true })
})

test('a bulk for a shard without a lease may come again, one that is too large for its part may not', async () => {
  const { queue } = use(shop())
  const mail = queue('unleased', { shards: 2, shape: { capacity: 40, groups: { capacity: 5 } } })
  await mail.waitUntilReady()
  const refused = async (count: number, holds: number, groupId?: string) => {
    for (const one of mail.each) {
      const error = new TooLargeError('unleased', count, holds, groupId === undefined ? {} : { groupId })
      vi.spyOn(one, 'addBulk').mockRejectedValue(error)
      vi.spyOn(one, 'addOnce').mockRejectedValue(error)
    }
    const calls = [mail.addBulk(jobs(count)), mail.addOnce(jobs(count), { key: 'k', fingerprint: 'f' })]
    const errors = (await Promise.allSettled(calls)).map((end) => end.status === 'rejected' && end.reason)
    vi.restoreAllMocks()
    return errors
  }
  const full = { name: 'QueueFullError', needed: 10, capacity: 1, retryAfterMs: 250 }
  expect(await refused(10, 1)).toMatchObject([full, full])
  for (const large of [await refused(30, 20), await refused(10, 5, 'a')]) {
    expect(large).toMatchObject([{ name: 'TooLargeError' }, { name: 'TooLargeError' }])
  }
  const group = await mail.addBulk(jobs(6, { group: { id: 'a' } })).catch((error: unknown) => error)
  expect(group).toMatchObject({ groupId: 'a', message: expect.stringContaining('group "a" of queue "unleased"') })
  await mail.obliterate({ force: true })
})

describe('a bulk over several shards', () => {
  const grouped = ['a', 'b', 'c', 'd', 'e', 'f'].map((id) => ({ name: 'job', data: { id }, opts: { group: { id } } }))

  test('of which replicas have not confirmed some shards: all have their jobs, and their ids are known', async () => {
    const { queue } = use(shop())
    const mail = queue('unconfirmed', { shards: 2, shape: { groups: {} } })
    await mail.waitUntilReady()
    const terms = { replicas: 1, timeoutMs: 300 }
    for (const [shard, one] of mail.each.entries()) {
      const add = one.addBulk.bind(one)
      vi.spyOn(one, 'addBulk').mockImplementation(async (...call) => {
        const jobIds = (await add(...call)).map(({ id }) => id as string)
        throw new NotReplicatedError('unconfirmed', { jobIds, acknowledged: shard, ...terms })
      })
    }
    const error = (await mail.addBulk(grouped).catch((reason: unknown) => reason)) as NotReplicatedError
    vi.restoreAllMocks()
    expect(error).toBeInstanceOf(NotReplicatedError)
    expect(error).toMatchObject({ acknowledged: 0, ...terms })
    expect(error.jobIds).toHaveLength(grouped.length)
    const found = await Promise.all((error.addedIds ?? []).map((id) => mail.getJob(id as string)))
    expect(found.map((job) => job?.data)).toEqual(grouped.map(({ data }) => data))
    await mail.obliterate({ force: true })
  })

  test.each([
    [false, undefined],
    [true, null],
  ])('of which one is unavailable (may be stored: %s)', async (mayBeStored, unsaid) => {
    const { queue } = use(shop())
    const mail = queue(`away-${mayBeStored}`, { shards: 2, shape: { groups: {} } })
    await mail.waitUntilReady()
    for (const one of mail.each) {
      vi.spyOn(one, 'addBulk').mockRejectedValue(new QueueUnavailableError(mail.name, 'away', mayBeStored))
    }
    const error = (await mail.addBulk(grouped.slice(0, 1)).catch((reason: unknown) => reason)) as SluiceError
    vi.restoreAllMocks()
    expect(error).toMatchObject({ name: 'QueueUnavailableError', addedIds: [unsaid] })
    await mail.obliterate({ force: true })
  })

  test('of which one is too large keeps its error if the shard cannot be asked for more', async () => {
    const { queue } = use(shop())
    const mail = queue('silent', { shards: 2, shape: { capacity: 40 } })
    await mail.waitUntilReady()
    for (const one of mail.each) {
      vi.spyOn(one, 'addBulk').mockRejectedValue(new TooLargeError('silent', 10, 1, {}))
      vi.spyOn(one, 'meter').mockRejectedValue(new Error('Connection is closed.'))
    }
    const error = await mail.addBulk(jobs(10)).catch((reason: unknown) => reason)
    vi.restoreAllMocks()
    expect(error).toMatchObject({ name: 'TooLargeError', addedIds: Array(10).fill(undefined) })
    await mail.obliterate({ force: true })
  })
})

test('what shards would refuse is refused before any is opened', () => {
  const run = async () => undefined
  const good = { connection, prefix, shards: 2, concurrency: 2 }
  const wrong = [
    [undefined, run],
    [{ ...good, shards: 0 }, run],
    [{ ...good, concurrency: 1 }, run],
    [{ ...good, concurrency: 3n }, run],
    [{ ...good, limiter: { max: 1, duration: 1 } }, run],
    [{ ...good, deadLetter: 'work' }, run],
    [{ ...good, maxLoopUtilization: 0.5 }, run],
    [{ ...good, feedback: 'http' }, run],
    [{ ...good, autorun: false }, run],
    [{ ...good, prefix: 5 }, run],
    [{ ...good, shape: 5 }, run],
    [{ ...good, shape: { limits: [null] } }, run],
    [good, undefined],
    [good, Symbol('run')],
  ] as const
  for (const [options, processor] of wrong) {
    expect(() => new ShardedWorker('work', processor as never, options as never)).toThrow(SluiceError)
  }
  for (const options of [
    undefined,
    null,
    { ...good, shards: 65 },
    { ...good, shards: 3n },
    { ...good, prefix: 3n },
    { ...good, placeBy: 'group' },
    { ...good, prefix: 5 },
  ]) {
    expect(() => new ShardedQueue('work', options as never)).toThrow(InvalidInputError)
  }
  for (const shape of [null, 5, { limits: [null] }]) {
    expect(() => new ShardedQueue('work', { ...good, shape } as never)).toThrow(SluiceError)
  }
})
