import { setTimeout as delay } from 'node:timers/promises'
import { DelayedError, type Job, RateLimitError, WaitingChildrenError, WaitingError, type Worker } from 'bullmq'
import { describe, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { QueueLimit, ShapedQueue } from '../../src/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const processes = useProcesses()

const running = (concurrency: number, by: QueueLimit['by'] = 'model', more: Partial<QueueLimit> = {}): QueueLimit => ({
  ...{ name: 'running', by: by as string, algorithm: 'concurrency', concurrency },
  ...more,
})

const add = (queue: ShapedQueue, jobId: string, keys: Record<string, string>, more: ShapedJobsOptions = {}) =>
  queue.add(jobId, {}, { jobId, keys, ...more })

/** Waits until nothing of the limit is left in Redis but what is kept for good. */
async function expectNoPlaces(queue: ShapedQueue): Promise<void> {
  const base = queue.toKey('')
  await expect.poll(() => client.keys(`${base}meta:group:limit:*:n:*`)).toEqual([])
  expect(await client.exists(`${base}meta:lanes:places`, `${base}meta:lines`, `${base}meta:lines:due`)).toBe(0)
}

test.each<[string, QueueLimit['by'], (i: number) => { keys: Record<string, string>; group?: { id: string } }]>([
  ['a key', 'model', (i) => ({ keys: { model: `m${i % 3}` } })],
  ['the group', 'group', (i) => ({ keys: {}, group: { id: `g${i % 3}` } })],
  ['both', ['group', 'model'], (i) => ({ keys: { model: `m${i % 2}` }, group: { id: `g${i % 3}` } })],
])('never more than two run of one value of %s, over several workers', async (_what, by, options) => {
  const queue = shop.queue({ groups: {}, limits: [running(2, by, { leaseMs: 1000 })] })
  const value = ({ opts: { keys = {}, group } }: Job & { opts: ShapedJobsOptions }) => `${group?.id} ${keys.model}`
  const [now, most] = [new Map<string, number>(), new Map<string, number>()]
  const workers = [1, 2].map(() =>
    shop.worker(
      queue,
      async (job) => {
        const own = value(job)
        now.set(own, (now.get(own) ?? 0) + 1)
        most.set(own, Math.max(most.get(own) ?? 0, now.get(own) as number))
        await delay(2)
        now.set(own, (now.get(own) as number) - 1)
      },
      { concurrency: 10 },
    ),
  )
  const completed = eventsOf('completed', ...workers)
  await queue.addBulk(Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: {}, opts: options(i) })))
  await completed.reach(60)
  expect([...most.values()].every((count) => count === 2)).toBe(true)
  await expectNoPlaces(queue)
})

test('a value of which as many run as may holds no other of its group', async () => {
  const queue = shop.queue({ groups: {}, limits: [running(1)] })
  const run = gate()
  const worker = shop.worker(queue, ({ name }) => (name === 'a1' ? run.opened : Promise.resolve()), { concurrency: 5 })
  shop.keep({ close: async () => run.open() })
  const departed = departuresOf(worker)
  for (const id of ['a1', 'a2', 'a3']) await add(queue, id, { model: 'a' }, { group: { id: 'acme' } })
  for (const id of ['b1', 'b2']) await add(queue, id, { model: 'b' }, { group: { id: 'acme' } })
  const ids = () => departed.all.map(({ id }) => id)
  await departed.until(() => ids().includes('b2'))
  expect(ids()).not.toContain('a2')
  run.open()
  await departed.reach(5)
  expect(ids().filter((id) => id.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
})

type End = (job: Job, token: string, worker: Worker, queue: ShapedQueue) => Promise<unknown>

/** How the first run of a job ends; it is done at the second one. */
const ENDS: readonly [how: string, end: End, options?: ShapedJobsOptions][] = [
  ['completes', async () => undefined],
  ['completes and is removed', async () => undefined, { removeOnComplete: true }],
  ['fails', () => Promise.reject(new Error('failed'))],
  ['fails and is removed', () => Promise.reject(new Error('failed')), { removeOnFail: true }],
  ['is retried at once', () => Promise.reject(new Error('failed')), { attempts: 2 }],
  ['is retried later', () => Promise.reject(new Error('failed')), { attempts: 2, backoff: 60_000 }],
  [
    'is delayed by its processor',
    async (job, token) => {
      await job.moveToDelayed(Date.now() + 60_000, token)
      throw new DelayedError()
    },
  ],
  [
    'goes back by its processor',
    async (job, token) => {
      await job.moveToWait(token)
      throw new WaitingError()
    },
  ],
  [
    'waits for its children',
    async (job, token, _worker, queue) => {
      await queue.add('child', {}, { parent: { id: job.id as string, queue: queue.qualifiedName }, delay: 60_000 })
      if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError()
    },
  ],
  [
    'is refused by its downstream',
    async (_job, _token, worker) => {
      await worker.rateLimit(1)
      throw new RateLimitError()
    },
  ],
]

describe.each([
  ['one worker', 1],
  ['two workers', 2],
])('with %s', (_what, count) => {
  test.each(ENDS)('the place of a job that %s goes to the next', async (_how, end, options = {}) => {
    const queue = shop.queue({ groups: {}, limits: [running(1)] })
    const run = gate()
    shop.keep({ close: async () => run.open() })
    const workers: Worker[] = []
    for (let i = 0; i < count; i++) {
      const worker: Worker = shop.worker(
        queue,
        async (job, token) => {
          if (job.name === 'before') await run.opened
          if (job.name === 'first' && job.attemptsStarted === 1) await end(job, token as string, worker, queue)
        },
        { concurrency: 3 },
      )
      workers.push(worker)
    }
    const departed = departuresOf(...(workers as Parameters<typeof departuresOf>))
    const failed = eventsOf<Job>('failed', ...workers)
    await add(queue, 'before', { model: 'a' })
    await departed.reach(1)
    await add(queue, 'first', { model: 'a' }, { ...options, group: { id: 'a' } })
    await add(queue, 'second', { model: 'a' }, { group: { id: 'b' } })
    await add(queue, 'other', { model: 'b' })
    await departed.reach(2)
    expect(departed.all[1]?.id).toBe('other')
    const time = new RunningTime(client)
    run.open()
    await departed.until((all) => all.some(({ id }) => id === 'second'))
    expect(failed.all.map(({ failedReason }) => failedReason).filter((reason) => reason !== 'failed')).toEqual([])
    // Faster than holders of places are looked at.
    expect(time.ms).toBeLessThan(900)
  })
})

test('a place of a job that is put back before it starts is free', async () => {
  const queue = shop.queue({ rate: '1/s', horizonMs: 1000, limits: [running(2)] })
  await add(queue, 'a1', { model: 'a' })
  await add(queue, 'a2', { model: 'a' })
  // Of two slots, the second one is granted ahead; its worker closes before.
  const first = shop.worker(queue, async () => {}, { concurrency: 5 })
  await departuresOf(first).reach(1)
  await expect.poll(() => client.llen(queue.toKey('active'))).toBe(1)
  await first.close()
  expect(await client.exists(queue.toKey('meta:lanes:places'))).toBe(0)
  const second = shop.worker(queue, async () => {})
  await departuresOf(second).reach(1)
  await expectNoPlaces(queue)
})

test('a job takes as many places as it costs, and never more than there are', async () => {
  const queue = shop.queue({ limits: [running(3, 'model', { unit: 'slots' })] })
  const gates = new Map(['a', 'b', 'c'].map((id) => [id, gate()]))
  shop.keep({ close: async () => void [...gates.values()].map((each) => each.open()) })
  const worker = shop.worker(queue, ({ name }) => gates.get(name)?.opened ?? Promise.resolve(), { concurrency: 10 })
  const departed = departuresOf(worker)
  const take = (id: string, slots: number) => add(queue, id, { model: 'm' }, { costs: { slots } })
  await expect(take('d', 4)).rejects.toThrow('cost 4 exceeds what limit "running" allows at once, 3')
  await take('a', 2)
  await departed.reach(1)
  await take('b', 3)
  await take('free', 0)
  await departed.reach(2)
  expect(departed.all[1]?.id).toBe('free')
  gates.get('a')?.open()
  await departed.reach(3)
  await take('c', 1)
  await add(queue, 'other', { model: 'n' })
  await departed.reach(4)
  expect(departed.all[3]?.id).toBe('other')
  gates.get('b')?.open()
  await departed.reach(5)
  gates.get('c')?.open()
  await expectNoPlaces(queue)
})

test('jobs that run when a queue gets such a limit count', async () => {
  const queue = shop.queue({ groups: {} })
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const worker = shop.worker(queue, ({ name }) => (name === 'a1' ? run.opened : Promise.resolve()), { concurrency: 5 })
  const departed = departuresOf(worker)
  await add(queue, 'a1', { model: 'a' })
  await departed.reach(1)
  await queue.setShape({ limits: [running(1)] }, { by: 'test', reason: 'test' })
  await add(queue, 'a2', { model: 'a' })
  await add(queue, 'b1', { model: 'b' })
  await departed.reach(2)
  expect(departed.all[1]?.id).toBe('b1')
  run.open()
  await departed.reach(3)
  await expectNoPlaces(queue)
})

test('a higher limit lets those go that wait', async () => {
  const queue = shop.queue({ limits: [running(1)] })
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const worker = shop.worker(queue, () => run.opened, { concurrency: 5, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  for (const id of ['a1', 'a2', 'a3']) await add(queue, id, { model: 'a' })
  void worker.run()
  await asksUntil(calls, 'closed')
  expect(departed.all).toHaveLength(1)
  const time = new RunningTime(client)
  await queue.setShape({ limits: [running(3)] }, { by: 'test', reason: 'test' })
  await departed.reach(3)
  expect(time.ms).toBeLessThan(900)
})

test('a job keeps its place for longer than a lease and than its state would be kept', async () => {
  const queue = shop.queue({ limits: [running(1, 'model', { leaseMs: 100 })] })
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const worker = shop.worker(queue, () => run.opened, { concurrency: 5, lockDuration: 90_000, lockRenewTime: 50 })
  const departed = departuresOf(worker)
  await add(queue, 'a1', { model: 'a' })
  await departed.reach(1)
  const key = `${queue.toKey('meta:group:limit:running')}:n:a`
  expect(await client.pttl(key)).toBeGreaterThan(80_000)
  await client.pexpire(key, 60_000)
  await expect.poll(() => client.pttl(key)).toBeGreaterThan(80_000)
  const job = await queue.getJob('a1')
  await job?.extendLock((await client.get(queue.toKey('a1:lock'))) as string, 200_000)
  expect(await client.pttl(key)).toBeGreaterThan(190_000)
  // Each time that a lease has run out, the jobs are looked at.
  await add(queue, 'a2', { model: 'a' })
  const asked = callsOf(worker)
  await asked.until((all) => all.length >= 3)
  expect(departed.all).toHaveLength(1)
  run.open()
  await departed.reach(2)
})

test('the place of a worker that was killed is free once the lock of its job has ended, and explain says who holds it', async () => {
  const queue = shop.queue({ groups: {}, limits: [running(1, ['group', 'model'], { leaseMs: 3_600_000 })] })
  const own = { keys: { model: 'gpt' }, group: { id: 'acme' } }
  await queue.add('job', {}, { jobId: 'held', ...own })
  type Message = { type: 'started'; id: string } | { type: 'error'; message: string }
  const args = [queue.name, redis.prefix, JSON.stringify(redis.connection), '1500']
  const holder = processes.fork<Message>(new URL('../queue-limits/programs/holder.ts', import.meta.url), { args })
  await holder.waitFor('started', ({ id }) => id === 'held')
  await queue.add('job', {}, { jobId: 'waits', ...own })
  const worker = shop.worker(queue, async () => {}, { autorun: false, skipStalledCheck: true })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'closed')
  const explained = () => inspectorOf(redis, shop).explain(queue.name, 'waits')
  expect(await explained()).toMatchObject({
    hold: { cause: 'limits', limit: 'running', keys: { group: 'acme', model: 'gpt' } },
    holders: [{ jobId: 'held', lockEndsAt: expect.any(Date) }],
    startsAt: undefined,
  })
  await holder.kill()
  const key = queue.toKey('held:lock')
  await expect.poll(() => client.exists(key), { interval: 10, timeout: 5000 }).toBe(0)
  // Nobody has looked yet.
  const dead = await explained()
  if (dead?.hold) expect(dead.holders).toMatchObject([{ jobId: 'held', lockEndsAt: undefined }])
  await departed.reach(1)
  expect(departed.all[0]?.id).toBe('waits')
})

test('workers that wait for places ask about once a second, and at once when one is free', async () => {
  const queue = shop.queue({ limits: [running(1)] })
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const holder = shop.worker(queue, () => run.opened)
  const held = departuresOf(holder)
  await add(queue, 'a1', { model: 'a' })
  await held.reach(1)
  for (let i = 0; i < 300; i++) await add(queue, `x${i}`, { model: 'a' }, { group: { id: `g${i}` } })
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker, holder)]
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(queue, client, calls)
  const before = calls.all.length
  await calls.until((all) => all.length > before + 2)
  const asked = calls.all.slice(before).map(({ reply }) => reply.nowUs)
  expect((asked.at(-1) as number) - (asked[0] as number)).toBeGreaterThan(1_500_000)
  run.open()
  await departed.reach(300)
})
