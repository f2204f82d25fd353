import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { QueueLimit, Shape } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const processes = useProcesses()

let names = 0
/** A limit that queues share: so many jobs at once. */
function places(concurrency: number, more: Partial<QueueLimit> = {}): QueueLimit {
  names += 1
  return { name: `places${names}`, algorithm: 'concurrency', concurrency, shared: true, prefix: redis.prefix, ...more }
}

/** A queue with a job that runs until the gate opens, and another one with a job that waits for its place. */
async function oneWaits(limit: QueueLimit, more: Shape = {}) {
  const [holding, waiting] = [shop.queue({ ...more, limits: [limit] }), shop.queue({ ...more, limits: [limit] })]
  const run = gate()
  // Also where a test fails, its workers can be closed.
  shop.keep({ close: async () => run.open() })
  const holder = shop.worker(holding, () => run.opened)
  const held = departuresOf(holder)
  await holding.add('job', {})
  await held.reach(1)
  const worker = shop.worker(waiting, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await waiting.add('job', {})
  void worker.run()
  await asksUntil(calls, 'closed')
  return { waiting, run, calls, departed, completed: eventsOf('completed', holder) }
}

test.each([
  ['of one queue', 1],
  ['of two queues that share it', 2],
])('never more run at once than the limit says, over several workers %s', async (_name, count) => {
  const limit = places(3, { leaseMs: 1000 })
  const queues = Array.from({ length: count }, () => shop.queue({ limits: [limit] }))
  for (const queue of queues) await queue.addBulk(jobs(30))
  let [running, most] = [0, 0]
  const workers = queues.flatMap((queue) =>
    [1, 2].map(() =>
      shop.worker(
        queue,
        async () => {
          running += 1
          most = Math.max(most, running)
          await delay(3)
          running -= 1
        },
        { concurrency: 5 },
      ),
    ),
  )
  await eventsOf('completed', ...workers).reach(30 * count)
  expect(most).toBe(3)
})

test('a job that runs longer than a lease lasts keeps its place', async () => {
  const { run, calls, departed } = await oneWaits(places(1, { leaseMs: 100 }))
  // Each time the lease would have run out, the worker asks again.
  const firstUs = calls.all[0]?.reply.nowUs as number
  const asked = calls.until((all) => (all.at(-1)?.reply.nowUs as number) - firstUs > 1_500_000)
  await Promise.race([asked, departed.reach(1)])
  expect(departed.all).toHaveLength(0)
  run.open()
  await departed.reach(1)
})

test.each([
  ['whose worker looks for its next job', {}],
  ['with a rate', { rate: '1000/s', burst: 10 } as const],
])('a place that is freed by one queue goes to a worker of the other: %s', async (_name, more) => {
  const { waiting, run, calls, departed, completed } = await oneWaits(places(1), more)
  await settled(waiting, client, calls)
  expect(departed.all).toHaveLength(0)
  const running = new RunningTime(client)
  run.open()
  await completed.reach(1)
  await departed.reach(1)
  // Of the 30 s that a lease lasts, nothing is waited for.
  expect(running.ms).toBeLessThan(5000)
})

test('a place that a limiter gives back goes to a queue that waits for it', async () => {
  const { shared: _shared, ...rule } = places(1)
  const limiter = createLimiter(client, { ...rule, prefix: redis.prefix, timeoutMs: 10_000 })
  const { lease } = await limiter.take()
  const queue = shop.queue({ limits: [{ ...rule, shared: true }] })
  await queue.add('job', {})
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(queue, client, calls)
  expect(await limiter.take()).toMatchObject({ allowed: false })
  const running = new RunningTime(client)
  await lease?.release()
  await departed.reach(1)
  expect(running.ms).toBeLessThan(5000)
})

test('places last as long as the locks of their jobs, even if no job is looked for meanwhile', async () => {
  const limit = places(2, { leaseMs: 5000 })
  const [holding, waiting] = [shop.queue({ limits: [limit] }), shop.queue({ limits: [limit] })]
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const lockDuration = 90_000
  const held = departuresOf(shop.worker(holding, () => run.opened, { lockDuration, lockRenewTime: 50 }))
  const { id } = await holding.add('job', {})
  await held.reach(1)
  const keys = await client.keys(`${redis.prefix}:limit:*${limit.name}*`)
  const types = await Promise.all(keys.map((key) => client.type(key)))
  const key = keys[types.indexOf('zset')] as string
  const lock = `${holding.toKey(id as string)}:lock`
  expect(await client.pttl(key)).toBeGreaterThan(await client.pttl(lock))

  await client.pexpire(key, 60_000)
  await expect.poll(() => client.pttl(key)).toBeGreaterThan(lockDuration)
  const job = await holding.getJob(id as string)
  await job?.extendLock((await client.get(lock)) as string, 200_000)
  expect(await client.pttl(key)).toBeGreaterThan(200_000)

  const { shared: _shared, ...rule } = limit
  const limiter = createLimiter(client, { ...rule, prefix: redis.prefix, timeoutMs: 10_000 })
  const { lease } = await limiter.take()
  await lease?.extend()
  expect(await client.pttl(key)).toBeGreaterThan(190_000)

  const worker = shop.worker(waiting, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await waiting.add('job', {})
  void worker.run()
  await asksUntil(calls, 'closed')
  expect(departed.all).toEqual([])
  run.open()
  await departed.reach(1)
})

test('the places of a worker that was killed are free once the locks of its jobs have run out', async () => {
  const limit = places(2, { leaseMs: 200 })
  const [holding, waiting] = [shop.queue({ limits: [limit] }), shop.queue({ limits: [limit] })]
  const added = await holding.addBulk(jobs(2))
  type Message = { type: 'started'; id: string } | { type: 'error'; message: string }
  const args = [holding.name, redis.prefix, JSON.stringify(redis.connection), '1500']
  const holder = processes.fork<Message>(new URL('./programs/holder.ts', import.meta.url), { args })
  await Promise.all(added.map(({ id }) => holder.waitFor('started', (started) => started.id === id)))
  await waiting.addBulk(jobs(2))
  const worker = shop.worker(waiting, async () => {}, { concurrency: 5, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'closed')
  expect(departed.all).toHaveLength(0)

  await holder.kill()
  const [seconds, micros] = (await client.time()).map(Number) as [number, number]
  const lives = await Promise.all(added.map(({ id }) => client.pttl(`${holding.toKey(id as string)}:lock`)))
  const firstFreeUs = seconds * 1e6 + micros + Math.min(...lives) * 1000
  expect(Math.min(...lives)).toBeGreaterThan(0)
  await departed.reach(2)
  // PTTL tells whole ms.
  expect(departed.all[0]?.departureTimeUs).toBeGreaterThanOrEqual(firstFreeUs - 2000)
  expect(holder.messages.filter(({ type }) => type === 'error')).toEqual([])
})
