import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { ShapedFlowProducer, type ShapedJob } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { LOOK_MS } from '../../src/redis/connection-watch.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/**
 * For so long a script of another program keeps Redis busy: it answers no one, not even with BUSY. Within that time
 * connections are replaced, however busy the machine is.
 */
const BUSY_MS = 4500
const BUSY = `local function us() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
local ends = us() + ${BUSY_MS} * 1000
while us() < ends do end`
const CHANGE = { by: 'test', reason: 'busy' }
const JOBS = 30

// Fault table, row 21.
test('a script of another program keeps Redis busy until all connections are replaced: what was under way counts once', async () => {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  await adminOf(service.url).config('SET', 'busy-reply-threshold', 10 * BUSY_MS)
  const fleet = new Fleet()
  const shape = { rate: '200/s', burst: 5, groups: {}, maxLatenessMs: 60_000 }
  const queue = fleet.queue('mail', { connection, shape, admitTimeoutMs: 30_000 })
  const flows = new ShapedFlowProducer({ connection, admitTimeoutMs: 30_000 })
  onTestFinished(() => flows.close())
  const client = (await queue.getBackend().client) as unknown as Redis
  const limit = createLimiter(client, { name: 'api', rate: '1/day', burst: 100, timeoutMs: 30_000 })
  await limit.take('joe', { cost: 50 })
  await limit.reward('joe', 1)
  const ids = idsOf(await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {} }))))
  const retried = idsOf(await queue.addBulk([1, 2, 3].map(() => ({ name: 'again', data: {}, opts: { attempts: 2 } }))))
  await flows.add({ name: 'first', queueName: 'mail', opts: { jobId: 'first' } })
  const runs: string[] = []
  let end = () => {}
  const ends = new Promise<void>((resolve) => {
    end = resolve
  })
  const worker = fleet.worker('mail', { connection, concurrency: 10 }, async (job) => {
    const { id, name, attemptsMade } = job as ShapedJob
    runs.push(id as string)
    await ends
    if (name === 'again' && attemptsMade === 0) throw new Error('once')
  })
  await fleet.until(() => fleet.departures.length === 10)
  let replaced = 0
  worker.on('error', ({ message }) => {
    if (message.includes('silent')) replaced += 1
  })
  queue.on('error', ({ message }) => {
    if (message.includes('silent')) replaced += 1
  })

  const busy = adminOf(service.url).eval(BUSY, 0)
  await sleep(50)
  end()
  const one = { name: 'job', data: {} }
  const calls = [
    queue.add('job', {}),
    queue.add('job', {}, { jobId: 'given', group: { id: 'a' } }),
    queue.add('job', {}, { priority: 3 }),
    queue.addBulk([one, one, { ...one, opts: { group: { id: 'b' } } }]),
    flows.add({ name: 'parent', queueName: 'mail', children: [{ name: 'child', queueName: 'mail' }] }),
    queue.addOnce([one, one], { key: 'k', fingerprint: 'f' }),
    queue.setShape({ capacity: 500 }, CHANGE),
    queue.setGroup('a', { rate: '100/s', burst: 5 }, CHANGE),
    queue.pauseUntil(Date.now() + BUSY_MS + 1000, CHANGE),
    limit.reward('joe', 10),
    limit.penalty('joe', 4),
  ]
  // As if it were busy for longer than a connection may be silent.
  for (let looks = 0; replaced < 2 && looks < 40; looks++) {
    vi.advanceTimersByTime(LOOK_MS)
    await sleep(20)
  }
  expect(replaced).toBeGreaterThanOrEqual(2)
  await busy
  const added = await Promise.all(calls)
  const waiting = 1 + 1 + 1 + 3 + 2 + 2
  const all = ids.length + retried.length + 1 + waiting
  await fleet.until(() => fleet.completed.length === all)

  expect(added).toHaveLength(calls.length)
  expect(await queue.getJobCounts('completed', 'failed', 'active', 'wait', 'prioritized', 'waiting-children')).toEqual({
    ...{ completed: all, failed: 0, active: 0, wait: 0, prioritized: 0, 'waiting-children': 0 },
  })
  const twice = runs.filter((id, i) => runs.indexOf(id) !== i)
  expect(twice.toSorted()).toEqual(retried.toSorted())
  expect(fleet.departures).toHaveLength(all + retried.length)
  expect(await queue.getShape()).toMatchObject({ capacity: 500 })
  expect(await queue.getGroup('a')).toMatchObject({ inForce: { rate: '100/s' } })
  expect(fleet.errors.filter(({ error }) => !error.message.includes('silent'))).toEqual([])
  expect((await limit.peek('joe')).remaining).toBe(100 - 50 + 1 + 10 - 4)
  expect(worstExcess(fleet.slotsUs, { intervalUs: 5000, burst: 5 })).toBeLessThanOrEqual(0)
})
