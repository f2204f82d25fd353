import { expect, onTestFinished, test, vi } from 'vitest'
import { GroupFullError, InvalidGroupError, QueueFullError, type Shape, type ShapedQueue } from '../../src/index.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, gate, rounding, type Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

function bulk(group: string, count: number, opts: object = {}) {
  return Array.from({ length: count }, (_, i) => ({
    name: group,
    data: { i },
    opts: { group: { id: group }, ...opts },
  }))
}

const slotsOf = (departures: readonly Seen[], group?: string) =>
  departures.filter(({ name }) => !group || name === group).map(({ departureTimeUs }) => departureTimeUs)

test('each group keeps its rate, all together the rate of the queue, over two workers', async () => {
  // So far ahead that no slot is lost where a busy machine keeps this process waiting.
  const queue = shop.queue({ rate: '200/s', groups: { rate: '50/s' }, horizonMs: 1000, maxLatenessMs: 10_000 })
  for (const group of ['a', 'b', 'c']) await queue.addBulk(bulk(group, 20))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 30 }))
  const departures = await departuresOf(...workers).reach(60)
  expect(excess(slotsOf(departures), 5000, 1)).toBeLessThanOrEqual(rounding(5000))
  for (const group of ['a', 'b', 'c']) {
    const slots = slotsOf(departures, group)
    expect(slots).toHaveLength(20)
    expect(excess(slots, 20_000, 1)).toBeLessThanOrEqual(rounding(20_000))
    // Without lost slots: 19 intervals, and the queue's own spacing.
    expect(Math.max(...slots) - Math.min(...slots)).toBeLessThan(19 * 20_000 + 40_000)
  }
})

test('a group at its limit on running jobs holds no other, and its next job follows the end of one', async () => {
  const queue = shop.queue({ groups: { concurrency: 1 } })
  const open = gate()
  const worker = shop.worker(queue, ({ name }) => (name === 'slow' ? open.opened : Promise.resolve()), {
    concurrency: 10,
  })
  const departed = departuresOf(worker)
  await queue.addBulk(bulk('slow', 3))
  await queue.addBulk(bulk('quick', 5))
  await departed.until((all) => all.filter(({ name }) => name === 'quick').length === 5)
  expect(departed.all.filter(({ name }) => name === 'slow')).toHaveLength(1)
  expect(await queue.getGroup('slow')).toMatchObject({ status: 'maxed', waiting: 2, active: 1 })
  open.open()
  await departed.reach(8)
})

test('a full group refuses jobs; others have places', async () => {
  const queue = shop.queue({ rate: '10/s', capacity: 100, groups: { rate: '2/s', capacity: 2 } })
  await queue.add('a', {}, { group: { id: 'a' } })
  await queue.add('a', {}, { group: { id: 'a' } })
  const refusal = await queue.add('a', {}, { group: { id: 'a' } }).catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(GroupFullError)
  expect(refusal).toBeInstanceOf(QueueFullError)
  expect(refusal).toMatchObject({ groupId: 'a', depth: 2, capacity: 2, needed: 1 })
  await expect(queue.addBulk(bulk('b', 3))).rejects.toThrow('do not fit')
  await expect(queue.addBulk([...bulk('b', 1), ...bulk('a', 1)])).rejects.toBeInstanceOf(GroupFullError)
  await queue.addBulk(bulk('b', 2))
  expect(await queue.getJobCounts('prioritized', 'waiting')).toEqual({ prioritized: 4, waiting: 0 })
})

test('a delayed job holds a place of its group, as it does in the queue', async () => {
  const queue = shop.queue({ capacity: 8, groups: { capacity: 2 } })
  const delayed = { delay: 60_000, group: { id: 'a' } }
  const job = await queue.add('a', {}, delayed)
  await queue.addBulk(bulk('a', 1, { delay: 60_000 }))
  expect(await queue.getGroup('a')).toMatchObject({ status: 'idle', waiting: 0, delayed: 2 })
  const refusal = await queue.add('a', {}, { group: { id: 'a' } }).catch((error: unknown) => error)
  expect(refusal).toMatchObject({ groupId: 'a', depth: 2, capacity: 2 })
  // Nothing of it is in line: a place is free once a delayed job was due.
  expect((refusal as GroupFullError).retryAfterMs).toBeGreaterThan(59_000)
  await job.promote()
  expect(await queue.getGroup('a')).toMatchObject({ status: 'waiting', waiting: 1, delayed: 1 })
  await expect(queue.addBulk(bulk('a', 1))).rejects.toMatchObject({ depth: 2 })
  await job.remove()
  await queue.addBulk(bulk('a', 1))
  for (let i = 0; i < 2; i++) for (const id of ['b', 'c', 'd']) await queue.add(id, {}, { ...delayed, group: { id } })
  const full = await queue.add('e', {}, { group: { id: 'e' } }).catch((error: unknown) => error)
  expect(full).toBeInstanceOf(QueueFullError)
  expect(full).not.toBeInstanceOf(GroupFullError)
})

test('who waits for a place in a full group keeps no other waiting', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  await queue.add('a', {}, { group: { id: 'a' } })
  const stop = new AbortController()
  const waiting = queue.addWhenFree('a', {}, { group: { id: 'a' }, signal: stop.signal })
  const refused = expect(waiting).rejects.toThrow('abort')
  await queue.addWhenFree('b', {}, { group: { id: 'b' } })
  await queue.addWhenFree('none', {})
  stop.abort()
  await refused
})

test('a queue without groups refuses jobs of groups', async () => {
  const queue = shop.queue({ rate: '10/s' })
  await expect(queue.add('a', {}, { group: { id: 'a' } })).rejects.toBeInstanceOf(InvalidGroupError)
  await expect(queue.addBulk(bulk('a', 2))).rejects.toBeInstanceOf(InvalidGroupError)
  await expect(queue.getGroup('a')).rejects.toBeInstanceOf(InvalidGroupError)
})

test('a paused group holds its jobs only, until it is resumed', async () => {
  const queue = shop.queue({ rate: '500/s', groups: {} })
  await queue.pauseGroup('a', { by: 'ops', reason: 'unpaid' })
  await queue.addBulk([...bulk('a', 3), ...bulk('b', 3)])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.until((all) => all.filter(({ name }) => name === 'b').length === 3)
  expect(await queue.getGroupStatus('a')).toBe('paused')
  expect(departed.all).toHaveLength(3)
  await queue.resumeGroup('a', { by: 'ops' })
  await departed.reach(6)
})

test.each<[string, Shape, string | undefined]>([
  ['without a bound, which is a warning', { groups: {} }, 'group "a" is paused, and nothing bounds'],
  ['bounded by what is free', { capacity: 10, groups: {} }, undefined],
  ['bounded by its capacity', { groups: { capacity: 10 } }, undefined],
])('a group is paused %s', async (_how, shape, warning) => {
  const queue = shop.queue(shape)
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  onTestFinished(() => warn.mockRestore())
  await queue.pauseGroup('a', { by: 'ops', reason: 'unpaid' })
  expect(warn.mock.calls).toEqual(
    warning ? [[expect.stringContaining(warning), { code: 'SLUICE_UNBOUNDED_GROUP' }]] : [],
  )
})

test('a pause of a group is counted at once, though no worker asks', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk([...bulk('a', 1), ...bulk('b', 1)])
  await queue.pauseGroup('a', { by: 'ops', reason: 'unpaid' })
  expect(await queue.getGroupsCountByStatus()).toEqual({ waiting: 1, limited: 0, maxed: 0, paused: 1 })
  expect(await queue.getGroupsByStatus('paused', 0, 9)).toEqual(['a'])
  await queue.resumeGroup('a', { by: 'ops' })
  expect(await queue.getGroupsCountByStatus()).toEqual({ waiting: 2, limited: 0, maxed: 0, paused: 0 })
})

test('a pause of a group ends by itself', async () => {
  const queue = shop.queue({ groups: {} })
  const pausedAt = performance.now()
  await queue.pauseGroup('a', { by: 'ops', reason: 'later', ttlMs: 300 })
  await queue.addBulk(bulk('a', 1))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  expect(performance.now() - pausedAt).toBeGreaterThan(290)
})

test('what is set for a group applies at once, and to it alone', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: { rate: '1/min' } })
  await queue.addBulk([...bulk('a', 5), ...bulk('b', 5)])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(2)
  await queue.setGroup('a', { rate: '100/s' }, { by: 'ops', reason: 'plan' })
  await departed.until((all) => all.filter(({ name }) => name === 'a').length === 5)
  expect(departed.all.filter(({ name }) => name === 'b')).toHaveLength(1)
  const state = await queue.getGroup('a')
  expect(state).toMatchObject({ inForce: { rate: '100/s' }, overrides: { rate: { by: 'ops', reason: 'plan' } } })
  await queue.clearGroup('a')
  expect((await queue.getGroup('a')).inForce).toMatchObject({ rate: '1/min' })
})

test('a new rate for all groups applies to those that the old one holds', async () => {
  const queue = shop.queue({ groups: { rate: '1/min' } })
  await queue.addBulk([...bulk('a', 3), ...bulk('b', 3)])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(2)
  await queue.setShape({ groups: { rate: '100/s' } }, { by: 'ops', reason: 'faster' })
  await departed.reach(6)
})

/** A job without a group that failed, and one of a group without a rate that left a dead letter. */
async function fail(queue: ShapedQueue) {
  const failing = shop.worker(queue, () => Promise.reject(new Error('no')), { deadLetter: 'letters' })
  const failed = eventsOf('failed', failing)
  await queue.add('failed', {}, { jobId: 'plain' })
  await queue.setGroup('free', { rate: null }, { by: 'test', reason: 'test' })
  await queue.add('free', {}, { group: { id: 'free' }, removeOnFail: true })
  await failed.reach(2)
  await failing.close()
}

test.each([
  ['of a bulk', async (queue: ShapedQueue) => void (await queue.addBulk([...bulk('b', 1), ...bulk('c', 1)]))],
  ['added alone', async (queue: ShapedQueue) => void (await queue.add('b', {}, { group: { id: 'b' } }))],
  ['without a group', async (queue: ShapedQueue) => void (await queue.add('b', {}))],
  ['resumed', (queue: ShapedQueue) => queue.resumeGroup('p')],
  ['promoted', async (queue: ShapedQueue) => void (await queue.getJob('later'))?.promote()],
  ['retried', async (queue: ShapedQueue) => void (await queue.getJob('plain'))?.retry()],
  ['redriven', async (queue: ShapedQueue) => void (await queue.redrive({ from: 'letters' }))],
])('workers that sleep for held groups take jobs of others at once: %s', async (_how, give) => {
  const queue = shop.queue({ groups: { rate: '1/min' } })
  await queue.pauseGroup('p', { by: 'test', reason: 'test' })
  await queue.add('later', {}, { jobId: 'later', delay: 3_600_000 })
  await fail(queue)
  await queue.addBulk([...bulk('a', 2), ...bulk('p', 1)])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  const client = redis.client()
  const sleepers = () => client.zrange(queue.toKey('meta:sleepers'), '0', '-1')
  await expect.poll(sleepers).toHaveLength(1)
  const [sleeper] = await sleepers()
  const heard = redis.client()
  await heard.subscribe(wakeChannel(queue.toKey('')))
  const woken = new Promise<string>((resolve) => heard.once('message', (_channel, worker) => resolve(worker)))
  await give(queue)
  // Without the message it would ask a few seconds later by itself.
  expect(await woken).toBe(sleeper)
  await departed.reach(2)
  await shop.queueNamed('letters').obliterate({ force: true })
})
