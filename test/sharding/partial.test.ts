import { expect, test, vi } from 'vitest'
import { ShapedQueue, ShardsUnavailableError } from '../../src/index.ts'
import { shardPrefix } from '../../src/redis/shards.ts'
import { Coordinator } from '../../src/sharding/coordinator.ts'
import type { ShardedQueue } from '../../src/sharding/index.ts'
import { useRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const { connection, prefix } = useRedis(import.meta.url)
const SHAPE = { rate: '600/s', burst: 6, capacity: 90 } as const
const WHO = { by: 'test', reason: 'test' }
/** For how long a silent shard is waited for; also for one that answers late, on a busy machine. */
const ADMIT_TIMEOUT_MS = 2500
const CHANGES = {
  pause: (queue) => queue.pause(WHO),
  resume: (queue) => queue.resume(WHO),
  pauseUntil: (queue) => queue.pauseUntil(Date.now() + 60_000, WHO),
  clearPause: (queue) => queue.clearPause(WHO),
  setShape: (queue) => queue.setShape({ maxWaitMs: 60_000 }, WHO),
  clearShape: (queue) => queue.clearShape(WHO),
} as const satisfies Partial<Record<keyof ShapedQueue, (queue: ReturnType<ShardShop['queue']>) => Promise<void>>>

/** The calls of one shard fail or hang, once each. */
function hurt(name: string, method: keyof typeof CHANGES, act: () => Promise<void>) {
  const real = ShapedQueue.prototype[method] as (...args: unknown[]) => Promise<void>
  const spy = vi.spyOn(ShapedQueue.prototype, method).mockImplementation(function (
    this: ShapedQueue,
    ...args: unknown[]
  ) {
    return this.opts.prefix === shardPrefix(prefix, name, 1) ? act() : real.apply(this, args)
  })
  return () => spy.mockRestore()
}

test('a change that a shard did not get says which have it, and is completed by repeating it', async () => {
  const queue = new ShardShop({ connection, prefix }).queue('part', { shards: 3, shape: SHAPE })
  await queue.waitUntilReady()
  const seen = async () =>
    (await queue.meter()).each.map(({ paused, pausedUntil, shape }) => [
      ...[paused, pausedUntil !== undefined, shape?.overrides.maxWaitMs !== undefined],
    ])
  for (const [method, change] of Object.entries(CHANGES)) {
    const before = await seen()
    const heal = hurt('part', method as keyof typeof CHANGES, async () => {
      throw new Error('Connection is closed.')
    })
    const error = await change(queue).catch((reason: unknown) => reason)
    heal()
    expect(error, method).toBeInstanceOf(ShardsUnavailableError)
    expect(error).toMatchObject({ queueName: 'part', done: [0, 2], failed: [1] })
    const between = await seen()
    expect(between[1]).toEqual(before[1])
    expect(between[0]).not.toEqual(before[0])
    await change(queue)
    expect(await seen()).toEqual([between[0], between[0], between[0]])
  }
  await queue.obliterate({ force: true })
})

function openQuick(name: string): ShardedQueue {
  const options = { shards: 2, shape: SHAPE, admitTimeoutMs: ADMIT_TIMEOUT_MS }
  return new ShardShop({ connection, prefix }).queue(name, options)
}

test('a shard that never answers does not hang a pause', async () => {
  const queue = openQuick('hung')
  await queue.waitUntilReady()
  const heal = hurt('hung', 'pause', () => new Promise(() => {}))
  await expect(queue.pause(WHO)).rejects.toMatchObject({ done: [0], failed: [1], cause: { mayBeStored: true } })
  heal()
  await queue.obliterate({ force: true })
})

/** The backend of the second shard, whose `obliterate` and PING are those of the test. */
async function secondShard(queue: ShardedQueue) {
  const [, { backend }] = queue.each as [ShapedQueue, ShapedQueue]
  const client = (await backend.client) as unknown as { ping(): Promise<string>; llen(key: string): Promise<number> }
  return { batch: vi.spyOn(backend, 'obliterate'), ping: vi.spyOn(client, 'ping'), look: vi.spyOn(client, 'llen') }
}

const never = () => new Promise<never>(() => {})

test('an obliterate removes nothing if a shard does not answer at first, and the queue goes on', async () => {
  const queue = openQuick('kept')
  await queue.waitUntilReady()
  const { look } = await secondShard(queue)
  await queue.add('job', {})
  look.mockImplementationOnce(never)
  const error = await queue.obliterate({ force: true }).catch((reason: unknown) => reason)
  expect(error).toBeInstanceOf(ShardsUnavailableError)
  expect(error).toMatchObject({ done: [], failed: [1], cause: { mayBeStored: false } })
  expect(await queue.count()).toBe(1)
  await queue.obliterate({ force: true })
})

test('an obliterate takes as long as Redis answers, and then ends, without another batch', async () => {
  const queue = openQuick('slow')
  await queue.waitUntilReady()
  const { batch, ping } = await secondShard(queue)
  let endBatch: (left: number) => void = () => {}
  batch.mockImplementationOnce(
    () =>
      new Promise((resolve) => {
        endBatch = resolve
      }),
  )
  let isOver = false
  const done = queue.obliterate({ force: true }).finally(() => {
    isOver = true
  })
  done.catch(() => undefined)
  await expect.poll(() => ping.mock.calls.length).toBeGreaterThan(1)
  expect(isOver).toBe(false)
  ping.mockImplementation(never)
  await expect(done).rejects.toMatchObject({ done: [0], failed: [1], cause: { mayBeStored: true } })
  endBatch(1)
  ping.mockRestore()
  await queue.add('job', {})
  expect(batch).toHaveBeenCalledTimes(1)
  await queue.obliterate({ force: true })
  expect(await queue.count()).toBe(0)
})

test('a queue that is closed while it is removed stays closed', async () => {
  const queue = new ShardShop({ connection, prefix }).queue('shut', { shards: 2, shape: SHAPE })
  await queue.waitUntilReady()
  const reopen = vi.spyOn(Coordinator.prototype, 'reopen')
  const { batch } = await secondShard(queue)
  let failBatch: (error: Error) => void = () => {}
  batch.mockImplementationOnce(
    () =>
      new Promise((_, reject) => {
        failBatch = reject
      }),
  )
  const done = queue.obliterate({ force: true })
  done.catch(() => undefined)
  await expect.poll(() => batch.mock.calls.length).toBe(1)
  await queue.close()
  failBatch(new Error('Connection is closed.'))
  await expect(done).rejects.toThrow(ShardsUnavailableError)
  expect(reopen).not.toHaveBeenCalled()
  reopen.mockRestore()
  await new ShardShop({ connection, prefix }).queue('shut', { shards: 2, shape: SHAPE }).obliterate({ force: true })
})

test('an obliterate that BullMQ refuses leaves a queue that goes on, and close may be repeated', async () => {
  const shop = new ShardShop({ connection, prefix })
  const queue = shop.queue('goes-on', { shards: 2, shape: SHAPE })
  let release: () => void = () => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const worker = shop.worker('goes-on', () => held, { shards: 2, concurrency: 2, shape: SHAPE })
  const active = new Promise((resolve) => worker.once('active', resolve))
  await queue.add('job', {})
  await active
  await expect(queue.obliterate()).rejects.toThrow('active jobs')
  // Leases last two seconds: nothing would renew them but this queue's coordinator.
  await worker.close(true).catch(() => undefined)
  release()
  const before = (await queue.meter()).each.map(({ shape }) => shape?.overrides.rate?.until?.getTime() ?? 0)
  await expect
    .poll(async () => (await queue.meter()).each.map(({ shape }) => shape?.overrides.rate?.until?.getTime() ?? 0))
    .toSatisfy((after: number[]) => after.every((until, shard) => until > (before[shard] ?? 0)))
  // What was refused had paused the queue.
  await queue.resume()
  const added = await Promise.all(Array.from({ length: 6 }, () => queue.add('job', {})))
  const ends = endsOf(shop.worker('goes-on', async () => {}, { shards: 2, concurrency: 2, shape: SHAPE }))
  await ends.reach(added.length)
  expect(ends.ids.toSorted()).toEqual(added.map(({ id }) => id).toSorted())
  await queue.obliterate({ force: true })
  await Promise.all([queue.close(), queue.close()])
  await queue.close()
})

test('jobs that are added after an obliterate meet the whole, as in BullMQ', async () => {
  const shop = new ShardShop({ connection, prefix })
  const queue = shop.queue('again', { shards: 2, shape: SHAPE })
  await queue.add('job', {})
  await queue.obliterate({ force: true })
  const added = [await queue.add('job', {}), await queue.add('job', {}), await queue.add('job', {})]
  expect(new Set(added.map(({ id }) => id)).size).toBe(3)
  const { shape, each } = await queue.meter()
  expect(shape?.rate).toBe('600/s')
  expect(each.reduce((sum, { capacity = 0 }) => sum + capacity, 0)).toBeGreaterThan(2)
  await queue.obliterate({ force: true })
  await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})

test.each([
  ['setShape', (queue: ShardedQueue) => queue.setShape({ rate: '300/s' }, WHO)],
  ['clearShape', (queue: ShardedQueue) => queue.clearShape({ ...WHO, fields: ['rate'] })],
] as const)('%s after an obliterate gives the shards their leases', async (method, change) => {
  const shop = new ShardShop({ connection, prefix })
  const queue = shop.queue(`anew-${method}`, { shards: 2, shape: SHAPE })
  await queue.add('job', {})
  await queue.obliterate({ force: true })
  await change(queue)
  const { each } = await queue.meter()
  expect(each.reduce((sum, { capacity = 0 }) => sum + capacity, 0)).toBeGreaterThan(2)
  await queue.obliterate({ force: true })
  expect(shop.errors).toEqual([])
})
