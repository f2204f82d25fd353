import { Job } from 'bullmq'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import { type Shape, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { shardPrefix } from '../../src/redis/shards.ts'
import {
  type MoveOptions,
  type MoveProgress,
  moveShardedQueue,
  type ShardedQueue,
  type ShardedWorker,
} from '../../src/sharding/index.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

useConcurrentTests()
const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const RATE = 300
const BURST = 6
const SHAPE = { rate: `${RATE}/s`, burst: BURST, capacity: 500, groups: {}, audit: 500 } as const

const HOUR_MS = 3_600_000
const BY = { by: 'test', reason: 'more shards' }

interface Opened {
  readonly queue: ShardedQueue
  work(): ShardedWorker
}

function opened(shop: ShardShop, process: (job: Job) => Promise<unknown>, shape: Shape = SHAPE) {
  return (name: string, shards: number): Opened => {
    const queue = shop.queue(name, { shards, shape })
    return { queue, work: () => shop.worker(name, process, { shards, concurrency: 12, shape }) }
  }
}

test('each job runs once, those of the old queue first, and the bound holds over both queues', async () => {
  const shop = new ShardShop({ connection, prefix })
  const order: string[] = []
  let end = () => {}
  const added = new Promise<void>((resolve) => {
    end = resolve
  })
  const open = opened(shop, async ({ data }) => {
    order.push(`${data.group} ${data.n}`)
    // However slow the producers are, they add to the old queue before it is empty.
    if (data.n === 0) await added
  })
  const expected: string[] = []
  const produce = async (queue: ShardedQueue, from: number, count = 12) => {
    for (let n = from; n < from + count; n++) {
      for (const group of ['a', 'b', 'c', 'd', 'e']) {
        await queue.add('job', { group, n }, { group: { id: group }, ...(n === from ? { delay: 50 } : {}) })
        expected.push(`${group} ${n}`)
      }
    }
  }
  const [old, renewed] = [open('old', 2), open('new', 5)]
  // An add waits for leases only so long, and a slow machine takes longer.
  await Promise.all([old.queue.waitUntilReady(), renewed.queue.waitUntilReady()])
  await produce(old.queue, 0)
  const workers = [old.work(), old.work(), renewed.work()]
  const seen: MoveProgress[] = []
  let switched: Promise<void> | undefined
  const onProgress = (progress: MoveProgress) => {
    seen.push(progress)
    switched ??= Promise.all([produce(renewed.queue, 100), produce(old.queue, 50, 2).then(end)]).then(() => undefined)
  }
  const result = await moveShardedQueue(old.queue, renewed.queue, { ...BY, onProgress })
  expect(result).toMatchObject({ resumed: true, obliterated: false, failed: 0, deadLetters: [] })
  await switched
  await expect.poll(() => order.length).toBe(expected.length)
  expect(order.toSorted()).toEqual(expected.toSorted())
  expect(order.findIndex((one) => Number(one.split(' ')[1]) >= 100)).toBe(70)
  // A producer that still adds to the old queue is noticed.
  expect(seen.at(-1)).toMatchObject({ phase: 'resting', arrived: 10, restMs: (1000 * BURST) / RATE })
  const slots = [await shop.slotsUs(old.queue), await shop.slotsUs(renewed.queue)].flat()
  expect(slots).toHaveLength(expected.length)
  expect(worstWindow(slots, { rate: SHAPE.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  // Repeated, it has nothing to do.
  expect(await moveShardedQueue(old.queue, renewed.queue, BY)).toEqual({ ...result, schedulers: 0 })
  await expect(moveShardedQueue(old.queue, renewed.queue, { ...BY, obliterate: true })).rejects.toMatchObject({
    name: 'MoveError',
    queueName: 'old',
    stop: 'workers',
  })
  await Promise.all(workers.map((worker) => worker.close()))
  const last = await moveShardedQueue(old.queue, renewed.queue, { ...BY, obliterate: true })
  expect(last).toMatchObject({ resumed: true, obliterated: true })
  // Also where a process died at the very end.
  expect(await moveShardedQueue(old.queue, renewed.queue, { ...BY, obliterate: true })).toEqual(last)
  await renewed.queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test('the burst of the new queue does not follow that of the old one', async () => {
  const shop = new ShardShop({ connection, prefix })
  const bound = { rate: '20/s', burst: 20 } as const
  const ran: string[] = []
  const open = opened(shop, async ({ queueName }) => void ran.push(queueName), { ...bound, capacity: 90, audit: 90 })
  const [old, renewed] = [open('burst-old', 2), open('burst-new', 3)]
  const jobs = Array.from({ length: 30 }, (_, n) => ({ name: 'job', data: {}, opts: { jobId: `job-${n}` } }))
  await Promise.all([old.queue.waitUntilReady(), renewed.queue.waitUntilReady()])
  await old.queue.addBulk(jobs)
  const workers = [old, renewed].map(({ work }) => work())
  let switched: Promise<unknown> | undefined
  const onProgress = () => {
    switched ??= renewed.queue.addBulk(jobs)
  }
  await moveShardedQueue(old.queue, renewed.queue, { ...BY, onProgress })
  await switched
  await expect.poll(() => ran.length).toBe(60)
  expect(ran.lastIndexOf('burst-old')).toBe(29)
  const slots = [await shop.slotsUs(old.queue), await shop.slotsUs(renewed.queue)].flat()
  expect(worstWindow(slots, bound)?.excessUs).toBeLessThanOrEqual(1)
  await Promise.all(workers.map((worker) => worker.close()))
  for (const { queue } of [old, renewed]) await queue.obliterate()
})

test('delayed and prioritized jobs, flows and schedulers: nothing is lost, and no iteration is missed or repeated', async () => {
  const shop = new ShardShop({ connection, prefix })
  const ended: string[] = []
  const ticks: { readonly queue: string; readonly atMs: number }[] = []
  const open = opened(shop, async (job) => {
    const { name, data, queueName: queue, id } = job
    if (name === 'parent') expect(Object.keys(await job.getChildrenValues())).toHaveLength(2)
    if (name === 'tick') ticks.push({ queue, atMs: Number(id?.split(':').at(-1)) })
    else ended.push(`${name} ${data.n} ${queue}`)
  })
  const [old, renewed] = [open('mixed-old', 2), open('mixed-new', 5)]
  const flows = new ShapedFlowProducer({ connection, prefix: shardPrefix(prefix, 'mixed-old', 1) })
  onTestFinished(() => flows.close())
  await Promise.all([old.queue.waitUntilReady(), renewed.queue.waitUntilReady()])
  await old.queue.add('delayed', { n: 0 }, { delay: 700 })
  await old.queue.add('delayed', { n: 1 }, { delay: 700, group: { id: 'a' } })
  await old.queue.add('prioritized', { n: 0 }, { priority: 5 })
  const child = (n: number) => ({ name: 'child', data: { n }, queueName: 'mixed-old' })
  await flows.add({ name: 'parent', data: { n: 0 }, queueName: 'mixed-old', children: [child(0), child(1)] })
  const ofGroup = await old.queue.queueOfGroup('a')
  const [first] = old.queue.each as [ShapedQueue]
  // Longer than a busy machine takes for the ten calls that move it between two iterations.
  await ofGroup.upsertJobScheduler('ticks', { every: 400 }, { name: 'tick', opts: { group: { id: 'a' } } as never })
  await first.upsertJobScheduler('yearly', { pattern: '0 0 1 1 *', tz: 'Asia/Tokyo' }, { name: 'year', data: { n: 7 } })
  await first.upsertJobScheduler('twice', { every: 60, limit: 2 }, { name: 'twice', data: { n: 0 } })
  await first.upsertJobScheduler('thrice', { every: HOUR_MS, limit: 3 }, { name: 'thrice', data: { n: 0 } })
  const yearly = await first.getJobScheduler('yearly')
  const workers = [old.work()]
  await expect.poll(() => ticks.length > 1 && ended.includes('thrice 0 mixed-old')).toBe(true)
  workers.push(renewed.work())
  const result = await moveShardedQueue(old.queue, renewed.queue, BY)
  expect(result.schedulers).toBe(4)
  const before = ended.filter((one) => one.endsWith('mixed-old'))
  const all = [
    'child 0',
    'child 1',
    'delayed 0',
    'delayed 1',
    'parent 0',
    'prioritized 0',
    'thrice 0',
    'twice 0',
    'twice 0',
  ]
  expect(before.toSorted()).toEqual(all.map((one) => `${one} mixed-old`))
  await expect.poll(() => ticks.filter(({ queue }) => queue === 'mixed-new').length).toBeGreaterThan(1)
  expect(new Set(ticks.map(({ atMs }) => atMs)).size).toBe(ticks.length)
  // The first iteration there is the one that was taken from the old queue.
  const events = (await redis.client().xrange(`${ofGroup.toKey('')}events`, '-', '+')) as [string, string[]][]
  const removed = events
    .filter(([, fields]) => fields.includes('removed'))
    .map(([, fields]) => fields[fields.indexOf('jobId') + 1])
  expect(removed).toEqual([`repeat:ticks:${ticks.find(({ queue }) => queue === 'mixed-new')?.atMs}`])
  const schedulers = await Promise.all(renewed.queue.each.map((shard) => shard.getJobSchedulers()))
  expect(
    schedulers
      .flat()
      .map(({ key }) => key)
      .toSorted(),
  ).toEqual(['thrice', 'ticks', 'yearly'])
  const [second] = await (renewed.queue.each[0] as ShapedQueue)
    .getJobs(['delayed'])
    .then((all) => all.filter(({ name }) => name === 'thrice'))
  expect(second?.opts).toMatchObject({ repeat: { limit: 3, count: 2 } })
  expect(await renewed.queue.each[0]?.getJobScheduler('yearly')).toEqual(yearly)
  expect(await old.queue.count()).toBe(0)
  const slots = [await shop.slotsUs(old.queue), await shop.slotsUs(renewed.queue)].flat()
  expect(worstWindow(slots, { rate: SHAPE.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  await Promise.all(workers.map((worker) => worker.close()))
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test('what was set at run time is carried over, and a queue that was paused before stays so', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('set-old', 3), open('set-new', 2)]
  await Promise.all([old.queue.waitUntilReady(), renewed.queue.waitUntilReady()])
  const shardOf = (id: string) => old.queue.queueOfGroup(id)
  const why = { by: 'ops', reason: 'enterprise' }
  await (await shardOf('a')).setGroup('a', { rate: '100/s', burst: 40, capacity: null }, why)
  await (await shardOf('b')).pauseGroup('b', { ...why, ttlMs: 60_000 })
  await old.queue.setShape({ rate: '50/s', maxWaitMs: 9000 }, { ...why, ttlMs: 60_000 })
  await renewed.queue.pause()
  const seen: MoveProgress[] = []
  const onProgress = (progress: MoveProgress) => seen.push(progress)
  const result = await moveShardedQueue(old.queue, renewed.queue, { ...BY, onProgress })
  expect(result).toMatchObject({ groups: 2, overrides: 2, resumed: false })
  // 40 units of group a take longer than 6 of the whole.
  expect(seen.at(-1)).toMatchObject({ phase: 'resting', restMs: 400 })
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([true, true])
  const groups = await Promise.all(
    ['a', 'b'].map(async (id) => (await (await renewed.queue.queueOfGroup(id)).getGroup(id)).overrides),
  )
  expect(groups[0]).toMatchObject({ rate: { value: '100/s', ...why }, capacity: { value: null }, burst: { value: 40 } })
  expect(groups[1]).toMatchObject({ paused: { value: true, ...why, until: expect.any(Date) } })
  const { rate, maxWaitMs, overrides } = (await renewed.queue.getShape()) ?? {}
  expect({ rate, maxWaitMs }).toEqual({ rate: '50/s', maxWaitMs: 9000 })
  expect(overrides?.rate).toMatchObject({ ...why, until: expect.any(Date) })
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
})

test('what a move refuses, before it changes anything', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed, full] = [open('no-old', 3), open('no-new', 2), open('no-full', 2)]
  const plain = shop.queue('no-plain', { shards: 2, shape: { rate: '300/s' } })
  const absent = shop.queue('no-absent', { shards: 2 })
  await Promise.all([old, renewed, full].map(({ queue }) => queue.waitUntilReady()))
  await full.queue.add('job', {})
  await plain.waitUntilReady()
  const refused = (from: ShardedQueue, to: ShardedQueue) =>
    moveShardedQueue(from, to, BY).then(
      () => 'moved',
      ({ name, stop, message }) => `${stop ?? name}: ${message}`,
    )
  expect(await refused(old.queue, old.queue)).toMatch(/^InvalidInputError: .* got "no-old" twice$/)
  expect(await refused(old.queue, absent)).toMatch(/^missing: queue "no-absent" does not exist: expected/)
  expect(await refused(old.queue, plain)).toMatch(/^shape: queue "no-plain" declares no shape.groups: expected one/)
  expect(await refused(old.queue, full.queue)).toMatch(/^not empty: queue "no-full" has 1 job: expected an empty queue/)
  const two = shop.queue('no-new', { shards: 4 })
  expect(await refused(old.queue, two)).toMatch(/^ShardCountError: .* shards must be 2; got 4$/)
  for (const shard of old.queue.each) await shard.upsertJobScheduler('same', { every: 60_000 })
  expect(await refused(old.queue, renewed.queue)).toMatch(/^schedulers: .* has two schedulers "same" .* in shard 0/)
  for (const shard of old.queue.each) await shard.removeJobScheduler('same')
  await old.queue.pause()
  expect(await refused(old.queue, renewed.queue)).toMatch(/^paused: queue "no-old" is paused: expected it to drain/)
  await old.queue.resume()
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([false, false])
  expect(await renewed.queue.count()).toBe(0)
  for (const { queue } of [old, renewed, full]) await queue.obliterate({ force: true })
  await plain.obliterate({ force: true })
})

test('a move says why it waits, gives up in time, and goes on; meanwhile no other one begins', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed, other] = [open('held-old', 2), open('held-new', 3), open('held-other', 2)]
  await Promise.all([old, renewed, other].map(({ queue }) => queue.waitUntilReady()))
  await old.queue.add('job', {}, { delay: HOUR_MS })
  const holds = new Set<string | undefined>()
  const onProgress = ({ hold }: MoveProgress) => holds.add(hold)
  const move = (from: ShardedQueue, options: object) => moveShardedQueue(from, renewed.queue, { ...BY, ...options })
  await expect(move(old.queue, { timeoutMs: 1 })).rejects.toMatchObject({ stop: 'timeout' })
  const seen = new AbortController()
  const onFirst = (progress: MoveProgress) => {
    onProgress(progress)
    seen.abort(new Error('seen'))
  }
  await expect(move(old.queue, { onProgress: onFirst, signal: seen.signal })).rejects.toThrow('seen')
  expect([...holds]).toEqual(['workers'])
  await expect(move(other.queue, {})).rejects.toMatchObject({ stop: 'other move', queueName: 'held-new' })
  const worker = old.work()
  const abort = new AbortController()
  const stopped = move(old.queue, {
    signal: abort.signal,
    onProgress: ({ hold, nextDueAt, delayed }: MoveProgress) => {
      if (hold !== 'delayed') return
      expect({ delayed, isDue: (nextDueAt?.getTime() ?? 0) > Date.now() + 3_000_000 }).toEqual({
        delayed: 1,
        isDue: true,
      })
      abort.abort(new Error('stopped'))
    },
  })
  await expect(stopped).rejects.toThrow('stopped')
  const resumed = move(old.queue, { onProgress: () => void renewed.queue.resume() })
  await expect(resumed).rejects.toMatchObject({ stop: 'resumed', queueName: 'held-new' })
  await Promise.all(old.queue.each.map((shard) => shard.drain(true)))
  await (await old.queue.queueOfGroup('a')).pauseGroup('a')
  await old.queue.add('job', {}, { group: { id: 'a' } })
  const onGroups = ({ hold }: MoveProgress) => {
    if (hold === 'groups') void old.queue.queueOfGroup('a').then((shard) => shard.resumeGroup('a'))
  }
  await move(old.queue, { onProgress: onGroups })
  // Two at once do the same, even if one of them is so slow that its pause comes when the other one has resumed.
  const after = (sooner: Promise<unknown>) => async () => {
    await sooner
    await renewed.queue.pause()
  }
  for (const isSlow of [false, true]) {
    await old.queue.add('job', {}, { group: { id: 'a' }, delay: 100 })
    const one = move(old.queue, {})
    const pause = isSlow ? after(one) : () => renewed.queue.pause()
    const get = (of: ShardedQueue, name: string) => {
      const value = Reflect.get(of, name, of)
      return name === 'pause' ? pause : typeof value === 'function' ? value.bind(of) : value
    }
    const other = moveShardedQueue(old.queue, new Proxy(renewed.queue, { get: get as never }), BY)
    expect((await Promise.all([one, other])).map(({ resumed }) => resumed)).toEqual([true, true])
    expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([false, false, false])
  }
  await worker.close()
  for (const { queue } of [old, renewed, other]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

/** Handled, whether or not the caller waits for it. A pipeline is no promise. */
function dead(name: string): Promise<never> {
  if (name === 'pipeline') throw new Error('dead')
  const rejected = Promise.reject(new Error('dead'))
  rejected.catch(() => undefined)
  return rejected
}

/** An object of a process that dies: after so many calls, nothing that it sends arrives. */
function mortal<T extends object>(target: T, life: { left: number }, made = new Map<object, object>()): T {
  const found = made.get(target) as T | undefined
  if (found) return found
  const wrap = (value: unknown) =>
    value instanceof ShapedQueue || value instanceof Job ? mortal(value, life, made) : value
  const get = (of: T, name: string) => {
    // biome-ignore lint/suspicious/noExplicitAny: whatever it has
    const value: any = Reflect.get(of, name, of)
    if (name === 'each') return value.map(wrap)
    if (name === 'backend') return mortal(value, life, made)
    if (name === 'client') return value.then((client: object) => mortal(client, life, made))
    if (typeof value !== 'function') return value
    return (...args: unknown[]) => {
      life.left -= 1
      if (life.left < 0) return dead(name)
      const result = value.apply(of, args)
      return result instanceof Promise ? result.then(wrap) : result
    }
  }
  const proxy = new Proxy(target, { get: get as never })
  made.set(target, proxy)
  return proxy
}

test('a process that dies at any of its calls leaves what the next one completes', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('dies-old', 2), open('dies-new', 3)]
  await Promise.all([old.queue.waitUntilReady(), renewed.queue.waitUntilReady()])
  const [first] = old.queue.each as [ShapedQueue]
  // At a full hour: a schedule of \`every\` alone would begin at once.
  const startDate = (Math.floor(Date.now() / HOUR_MS) + 2) * HOUR_MS
  await first.upsertJobScheduler('hourly', { every: HOUR_MS, startDate }, { name: 'hour' })
  const { next } = (await first.getJobScheduler('hourly')) as { next: number }
  await (await old.queue.queueOfGroup('a')).setGroup('a', { weight: 2 }, BY)
  const there = renewed.queue.each[0] as ShapedQueue
  const record = `${shardPrefix(prefix, 'dies-new', 0)}:dies-new:meta:move`
  const client = redis.client()
  let wasAdded = false
  let deaths = 0
  for (let calls = 1; deaths < 300; calls++) {
    const life = { left: calls }
    const made = new Map()
    const ended = await moveShardedQueue(mortal(old.queue, life, made), mortal(renewed.queue, life, made), BY).then(
      () => true,
      (error) => {
        expect(error).toMatchObject({ message: 'dead' })
        return false
      },
    )
    if (ended) break
    deaths += 1
    if (wasAdded || (await client.exists(record)) === 0) continue
    // Its job is due at once, and is not the next one of the old queue's.
    await there.upsertJobScheduler('hourly', { every: HOUR_MS }, { name: 'hour' })
    expect(await there.getWaitingCount()).toBe(1)
    wasAdded = true
  }
  expect(wasAdded && deaths > 20).toBe(true)
  expect(await renewed.queue.getJobCounts('waiting', 'delayed')).toEqual({ waiting: 0, delayed: 1 })
  expect(await there.getJobScheduler('hourly')).toMatchObject({ name: 'hour', every: HOUR_MS, next })
  expect(await old.queue.count()).toBe(0)
  expect((await (await renewed.queue.queueOfGroup('a')).getGroup('a')).overrides).toMatchObject({
    weight: { value: 2 },
  })
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([false, false, false])
  expect(Object.keys(await client.hgetall(record)).toSorted()).toEqual(['begun:1', 'copied:1', 'phase:1'])
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

/** What `instead` returns, unless it is undefined, comes of a call with that name, of the queue or of its shards. */
function changed<T extends object>(target: T, instead: (name: string) => Promise<unknown> | undefined): T {
  const get = (of: T, name: string) => {
    const value = Reflect.get(of, name, of)
    if (name === 'each') return (value as object[]).map((shard) => changed(shard, instead))
    if (typeof value !== 'function') return value
    return (...args: unknown[]) => instead(name) ?? value.apply(of, args)
  }
  return new Proxy(target, { get: get as never })
}

/** It refuses the calls for which `fails` says so. */
function failing<T extends object>(target: T, fails: (name: string) => boolean): T {
  return changed(target, (name) => (fails(name) ? Promise.reject(new Error('Connection is closed.')) : undefined))
}

test('Redis is away for a moment: a move looks again, and rests again', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('away-old', 1), open('away-new', 2)]
  await Promise.all([old, renewed].map(({ queue }) => queue.waitUntilReady()))
  const seen: string[] = []
  let looks = 0
  const fails = (name: string) => {
    // The first look at the schedulers is before anything is changed, the second one while it drains.
    if (name === 'getJobSchedulers') {
      looks += 1
      return looks === 2
    }
    return name === 'meter' && seen.at(-1) === 'resting' && seen.filter((phase) => phase === 'resting').length === 1
  }
  const result = await moveShardedQueue(failing(old.queue, fails), renewed.queue, {
    ...BY,
    onProgress: ({ phase, hold }) => seen.push(hold ?? phase),
  })
  expect(result).toMatchObject({ resumed: true })
  expect(seen.filter((one) => one !== 'draining')).toEqual(['unavailable', 'resting', 'unavailable', 'resting'])
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
})

test("what a downstream has asked for holds the new queue too, and a person's pause of the old one is kept", async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('asked-old', 2), open('asked-new', 4)]
  await Promise.all([old, renewed].map(({ queue }) => queue.waitUntilReady()))
  const [first] = old.queue.each as [ShapedQueue]
  const who = { by: 'a worker', reason: 'Retry-After' }
  const store = (await old.queue.queueOfGroup('a')).backend.store
  await store.changeGroup('a', { limited: true }, who, HOUR_MS)
  await store.changeGroup('a', { slowed: [1, 500], crowded: 2 }, who, HOUR_MS)
  const said = { scope: 'queue', source: 'retry-after', reason: 'too many' } as const
  const asked = (...all: Feedback[]) => {
    const found = all.map((feedback) => ({ feedback }))
    return encodeFeedbackRequest({ found, by: 'a worker', sentUs: Date.now() * 1000, adapt: undefined, oks: 0 })
  }
  const slow = { kind: 'slow', ...said, rate: { limit: 8, period: 1000 }, ttlMs: HOUR_MS } as const
  await applyFeedback(first.backend.store, asked(slow, { kind: 'concurrency', ...said, limit: 6, ttlMs: HOUR_MS }))
  let paused: Promise<void> | undefined
  const holds: (string | undefined)[] = []
  const onProgress = ({ phase, hold }: MoveProgress) => {
    holds.push(hold)
    // It is empty; the pause of a person comes before the resume, and so does what the last job is told.
    if (phase === 'resting') {
      paused ??= (async () => {
        await old.queue.pause()
        await first.pauseUntil(Date.now() + HOUR_MS, who)
      })()
    }
    if (hold === 'paused') void old.queue.resume()
  }
  const isPaused = old.queue.each.map((shard) => ({ shard, meter: shard.meter.bind(shard) }))
  // The look after the rest comes when the pause is there.
  for (const { shard, meter } of isPaused) {
    Object.assign(shard, {
      meter: async () => {
        await paused
        return meter()
      },
    })
  }
  const unresumed = failing(renewed.queue, (name) => name === 'resume')
  await expect(moveShardedQueue(old.queue, unresumed, { ...BY, onProgress })).rejects.toThrow('closed')
  expect(holds).toContain('paused')
  // It died when it had resumed one shard, which then hears for itself.
  const [begun] = renewed.queue.each as [ShapedQueue]
  await begun.resume()
  await applyFeedback(begun.backend.store, asked({ kind: 'concurrency', ...said, limit: 1, ttlMs: HOUR_MS }))
  expect(await moveShardedQueue(old.queue, renewed.queue, BY)).toMatchObject({ resumed: true })
  const [own, ...states] = await Promise.all(renewed.queue.each.map((shard) => shard.meter()))
  expect(own).toMatchObject({ paused: false, feedback: { rates: { slow: 4 }, concurrency: 1 } })
  for (const { paused, pausedUntil, pauseReason, feedback } of states) {
    expect({ paused, pauseReason }).toEqual({ paused: false, pauseReason: 'Retry-After' })
    expect(pausedUntil?.getTime()).toBeGreaterThan(Date.now() + 0.9 * HOUR_MS)
    // Of 8/s and 6 jobs for each of two shards, a quarter of the whole.
    expect(feedback).toMatchObject({ rates: { slow: 4 }, concurrency: 3 })
  }
  const { overrides, status } = await (await renewed.queue.queueOfGroup('a')).getGroup('a')
  expect(overrides).toMatchObject({ limited: who, slowed: { value: '1/500ms', ...who }, crowded: { value: 2, ...who } })
  expect(status).toBe('limited')
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test('another move may begin once the old queue of one that was given up is removed', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed, other] = [open('left-old', 2), open('left-new', 3), open('left-other', 1)]
  await Promise.all([old, renewed, other].map(({ queue }) => queue.waitUntilReady()))
  await old.queue.add('job', {}, { delay: HOUR_MS })
  const abort = new AbortController()
  const onProgress = () => abort.abort(new Error('given up'))
  const given = moveShardedQueue(old.queue, renewed.queue, { ...BY, onProgress, signal: abort.signal })
  await expect(given).rejects.toThrow('given up')
  await renewed.queue.add('job', {}, { delay: HOUR_MS })
  const move = () => moveShardedQueue(other.queue, renewed.queue, BY)
  const message = expect.stringMatching(/expected that move to be over, or queue "left-old" to be removed/)
  await expect(move()).rejects.toMatchObject({ stop: 'other move', message })
  await old.queue.obliterate({ force: true })
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([true, true, true])
  // It was not paused before the first move, and has the job of a producer that was switched to it.
  expect(await move()).toMatchObject({ resumed: true })
  expect(await renewed.queue.meter()).toMatchObject({ delayed: 1, each: [1, 2, 3].map(() => ({ paused: false })) })
  for (const { queue } of [renewed, other]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test('a process that stood still does not resume the new queue of another move', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed, other] = [open('still-old', 1), open('still-new', 2), open('still-other', 1)]
  await Promise.all([old, renewed, other].map(({ queue }) => queue.waitUntilReady()))
  let goOn = () => {}
  const still = new Promise<void>((resolve) => {
    goOn = resolve
  })
  const late = await new Promise<{ readonly ended: Promise<unknown> }>((resolve) => {
    let looks = 0
    const from = changed(old.queue, (name) => {
      if (name !== 'getJobSchedulers') return undefined
      looks += 1
      // The first look is before anything is changed. There are no schedulers.
      if (looks === 1) return undefined
      resolve({ ended })
      return still.then(() => [])
    })
    const ended = moveShardedQueue(from, renewed.queue, BY).catch((error: unknown) => error)
  })
  expect(await moveShardedQueue(old.queue, renewed.queue, BY)).toMatchObject({ resumed: true })
  await other.queue.add('job', {}, { delay: HOUR_MS })
  const abort = new AbortController()
  let next: Promise<void> | undefined
  await new Promise<void>((resolve) => {
    const options = { ...BY, onProgress: () => resolve(), signal: abort.signal }
    next = expect(moveShardedQueue(other.queue, renewed.queue, options)).rejects.toThrow('over')
  })
  goOn()
  expect(await late.ended).toMatchObject({ name: 'MoveError', stop: 'other move', queueName: 'still-new' })
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([true, true])
  abort.abort(new Error('over'))
  await next
  for (const { queue } of [old, renewed, other]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

/** A call with this name, from the given one on, never ends; `reached` is called when it begins. */
function silent<T extends object>(target: T, { call, from }: SilentCall, reached = () => {}): T {
  let calls = 0
  return changed(target, (name) => {
    if (name === call) calls += 1
    if (name !== call || calls < from) return undefined
    reached()
    return new Promise(() => {})
  })
}

interface SilentCall {
  readonly call: string
  readonly from: number
}

test('Redis does not answer a call: the signal and the time end a move all the same', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('silent-old', 1), open('silent-new', 2)]
  await Promise.all([old, renewed].map(({ queue }) => queue.waitUntilReady()))
  const unanswered = async (call: string, from: number, options: Partial<MoveOptions>, reached?: () => void) => {
    const queues = [old, renewed].map(({ queue }, i) => {
      return (call === 'resume') === (i === 1) ? silent(queue, { call, from }, reached) : queue
    }) as [ShardedQueue, ShardedQueue]
    return moveShardedQueue(...queues, { ...BY, ...options })
  }
  const timeout = { name: 'MoveError', stop: 'timeout', queueName: 'silent-old' }
  const asItWas = { ...timeout, message: expect.stringContaining('Queue "silent-new" is as it was: repeat the move') }
  // At its first call, while it drains, and at the end.
  for (const [call, from] of [
    ['getShape', 1],
    ['getJobSchedulers', 2],
    ['resume', 1],
  ] as const) {
    const abort = new AbortController()
    const stop = () => abort.abort(new Error('stopped'))
    await expect(unanswered(call, from, { signal: abort.signal }, stop)).rejects.toThrow('stopped')
    const late = unanswered(call, from, { timeoutMs: 500 })
    await expect(late).rejects.toMatchObject(call === 'getShape' ? asItWas : timeout)
  }
  expect((await renewed.queue.meter()).each.map(({ paused }) => paused)).toEqual([true, true])
  expect(await moveShardedQueue(old.queue, renewed.queue, BY)).toMatchObject({ resumed: true })
  for (const { queue } of [old, renewed]) await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test('a move does not end as done where the new queue is gone', async () => {
  const shop = new ShardShop({ connection, prefix })
  const open = opened(shop, async () => undefined)
  const [old, renewed] = [open('gone-old', 1), open('gone-new', 2)]
  await Promise.all([old, renewed].map(({ queue }) => queue.waitUntilReady()))
  await old.queue.add('job', {})
  let gone: Promise<void> | undefined
  const onProgress = () => {
    gone ??= renewed.queue.obliterate()
  }
  const move = moveShardedQueue(old.queue, renewed.queue, { ...BY, onProgress, timeoutMs: 10_000 })
  await expect(move).rejects.toMatchObject({ name: 'MoveError', queueName: 'gone-new' })
  await gone
  await old.queue.obliterate({ force: true })
})

test('the same name with another number, once the queue is empty and obliterated', async () => {
  const shop = new ShardShop({ connection, prefix })
  const old = shop.queue('kept', { shards: 2, shape: SHAPE })
  const worker = shop.worker('kept', async () => undefined, { shards: 2, concurrency: 4, shape: SHAPE })
  const ends = endsOf(worker)
  await old.add('job', {})
  const other = () => shop.queue('kept', { shards: 3, shape: SHAPE })
  await expect(other().add('job', {})).rejects.toMatchObject({ name: 'ShardCountError', expected: 2, given: 3 })
  await ends.reach(1)
  await worker.close()
  await old.obliterate()
  await old.close()
  const renewed = other()
  expect((await renewed.add('job', {})).id).toBeDefined()
  expect(await renewed.meter()).toMatchObject({ shards: 3, depth: 1 })
  await renewed.obliterate({ force: true })
})
