import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { holderText } from '../../packages/cli/src/queue-text.ts'
import { LimitConflictError, type QueueLimit, type ShapedJob, type ShapedQueue } from '../../src/index.ts'
import type { Explanation } from '../../src/inspect/index.ts'
import { createLimiter, type LimitKey } from '../../src/limits/index.ts'
import { encodeKey } from '../../src/limits/limit-keys.ts'
import { inspectorOf } from '../inspect/support.ts'
import { rejection } from '../queue/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const processes = useProcesses()
const { prefix } = redis

let names = 0
const nameOf = () => `shared${++names}`
const running = (name: string, concurrency: number, by: QueueLimit['by'] = 'group'): QueueLimit => ({
  ...{ name, by: by as string, algorithm: 'concurrency', concurrency, shared: true, prefix },
})
const limiterOf = ({ by: _by, shared: _shared, unit: _unit, ...rule }: QueueLimit) =>
  createLimiter(client, { ...rule, timeoutMs: 10_000 })
const tenant = (id: string) => ({ group: { id } })

test('never more of a tenant run over two queues and a limiter than one limit allows, and each gets its turns', async () => {
  const limit = running(nameOf(), 2)
  const limiter = limiterOf(limit)
  const queues = [1, 2].map(() => shop.queue({ groups: {}, limits: [limit] }))
  const [now, most] = [new Map<string, number>(), { all: 0 }]
  const begin = (id: string) => {
    now.set(id, (now.get(id) ?? 0) + 1)
    most.all = Math.max(most.all, now.get(id) as number)
  }
  const end = (id: string) => now.set(id, (now.get(id) as number) - 1)
  const order: number[] = []
  for (const queue of queues)
    await queue.addBulk(
      Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: { id: `t${i % 2}` }, opts: tenant(`t${i % 2}`) })),
    )
  const workers = queues.map((queue, i) =>
    shop.worker(
      queue,
      async ({ data: { id } }) => {
        begin(id)
        order.push(i)
        await delay(5)
        end(id)
      },
      { concurrency: 6 },
    ),
  )
  const completed = eventsOf('completed', ...workers)
  const granted: unknown[] = []
  const takes = (async () => {
    while (completed.all.length < 120) {
      const { allowed, lease } = await limiter.take('t0')
      if (allowed) {
        begin('t0')
        granted.push(1)
        await delay(2)
        end('t0')
        await lease?.release()
      }
      await delay(3)
    }
  })()
  await completed.reach(120)
  await takes
  expect(most.all).toBe(2)
  expect(granted.length).toBeGreaterThan(0)
  // Neither waits until the other is done.
  const half = order.slice(0, 60).filter((i) => i === 0).length
  expect(half).toBeGreaterThan(12)
  expect(half).toBeLessThan(48)
  await expect.poll(() => client.keys(`*${limit.name}*:n:*`)).toEqual([])
})

/** A queue that runs a job of `acme` until the gate opens, and one that waits for its place. */
async function oneWaits(limit: QueueLimit) {
  const [holding, waiting] = [1, 2].map(() => shop.queue({ groups: {}, limits: [limit] })) as [ShapedQueue, ShapedQueue]
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const holder = shop.worker(holding, () => run.opened)
  const held = departuresOf(holder)
  await holding.add('job', {}, tenant('acme'))
  await held.reach(1)
  const worker = shop.worker(waiting, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await waiting.add('job', {}, tenant('acme'))
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(waiting, client, calls)
  expect(departed.all).toHaveLength(0)
  return { holding, waiting, run, held, departed, calls }
}

test('a place that one queue frees goes to the one that waits longest, not to its own next job', async () => {
  const { holding, run, held, departed } = await oneWaits(running(nameOf(), 1))
  await holding.add('job', {}, tenant('acme'))
  const time = new RunningTime(client)
  run.open()
  await Promise.race([departed.reach(1), held.reach(2).then(() => Promise.reject(new Error('its own job went first')))])
  expect(time.ms).toBeLessThan(500)
  await held.reach(2)
})

test('explain says which job of another queue holds a place', async () => {
  const { holding, waiting, run } = await oneWaits(running(nameOf(), 1))
  const [held] = await holding.getActive()
  const [job] = await waiting.getPrioritized()
  const { hold, holders, at } = (await inspectorOf(redis, shop).explain(waiting.name, job?.id as string)) as Explanation
  expect(hold).toMatchObject({ cause: 'limits', keys: { group: 'acme' } })
  const queue = `${prefix}:${holding.name}`
  expect(holders).toMatchObject([{ jobId: held?.id, queue: `${queue}:`, lockEndsAt: expect.any(Date) }])
  expect(holderText(holders[0] as Explanation['holders'][0], at)).toContain(
    `job ${held?.id} of queue ${queue} of worker`,
  )
  run.open()
})

test('a queue that is paused is passed over', async () => {
  const { holding, waiting, run, held, departed } = await oneWaits(running(nameOf(), 1))
  await holding.add('job', {}, tenant('acme'))
  await waiting.pause()
  run.open()
  await held.reach(2)
  await waiting.resume()
  await departed.reach(1)
})

test('a lease of a limiter holds a place of the same key, and its end calls a queue', async () => {
  const limit = running(nameOf(), 1)
  const limiter = limiterOf(limit)
  const { lease } = await limiter.take('acme')
  const queue = shop.queue({ groups: {}, limits: [limit] })
  await queue.add('job', {}, tenant('acme'))
  await queue.add('free', {}, tenant('other'))
  const worker = shop.worker(queue, async () => {}, { autorun: false, concurrency: 5 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await departed.reach(1)
  expect(departed.all[0]?.name).toBe('free')
  await settled(queue, client, calls)
  const time = new RunningTime(client)
  await lease?.release()
  await departed.reach(2)
  expect(time.ms).toBeLessThan(500)
})

test.each<[string, Partial<QueueLimit>]>([
  ['gcra', {}],
  ['token-bucket', { algorithm: 'token-bucket' }],
  ['leaky-bucket', { algorithm: 'leaky-bucket' }],
  ['sliding-window-log', { algorithm: 'sliding-window-log', burst: undefined as never }],
])('jobs and takes of one key are charged to one bucket: %s', async (_algorithm, more) => {
  const { burst, ...rule } = { rate: '600/h', burst: 600, ...more } as QueueLimit
  const limit = {
    ...rule,
    ...(burst ? { burst } : {}),
    name: nameOf(),
    by: 'group',
    unit: 'tokens',
    shared: true,
    prefix,
  }
  const limiter = limiterOf(limit as QueueLimit)
  const queue = shop.queue({ groups: {}, limits: [limit as QueueLimit] })
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 5 }))
  await queue.add('job', {}, { ...tenant('acme'), costs: { tokens: 200 } })
  await departed.reach(1)
  expect((await limiter.peek('acme')).remaining).toBe(400)
  expect(await limiter.take('acme', { cost: 300 })).toMatchObject({ allowed: true })
  expect((await limiter.peek('other')).remaining).toBe(600)
  await queue.add('late', {}, { ...tenant('acme'), costs: { tokens: 300 } })
  await queue.add('other', {}, { ...tenant('other'), costs: { tokens: 300 } })
  await departed.reach(2)
  expect(departed.all[1]?.name).toBe('other')
  // What it lacks is given back: it goes at once.
  await expect.poll(() => queue.getGroup('acme')).toMatchObject({ status: 'limited', heldBy: limit.name })
  await limiter.reward('acme', 300)
  await departed.reach(3)
})

describe('the key of a value is that of a limiter', () => {
  test.each<[string, LimitKey | undefined, Record<string, string>, QueueLimit['by']]>([
    ['plain', 'gpt-4.1_mini@x', { model: 'gpt-4.1_mini@x' }, 'model'],
    ['with other characters', 'a:b*/ä', { model: 'a:b*/ä' }, 'model'],
    ['a star', '*', { model: '*' }, 'model'],
    ['with the mark of a hash', '#1', { model: '#1' }, 'model'],
    ['of 64 characters', 'x'.repeat(64), { model: 'x'.repeat(64) }, 'model'],
    ['longer', 'x'.repeat(65), { model: 'x'.repeat(65) }, 'model'],
    [
      'of several',
      ['acme', 'api.example.com', 'l:4'],
      { host: 'api.example.com', model: 'l:4' },
      ['model', 'group', 'host'],
    ],
  ])('%s', async (_what, key, keys, by) => {
    const limit = { name: nameOf(), by, rate: '10/h', burst: 10, shared: true, prefix } as QueueLimit
    const queue = shop.queue({ groups: {}, limits: [limit] })
    const departed = departuresOf(shop.worker(queue, async () => {}))
    await queue.add('job', {}, { keys, ...tenant('acme') })
    await departed.reach(1)
    expect((await limiterOf(limit).peek(key)).remaining).toBe(9)
    expect(await client.keys(`*${limit.name}*:g:*`)).toEqual([expect.stringMatching(/:g:/)])
    if (key) expect((await client.keys(`*${limit.name}*:g:*`))[0]?.endsWith(encodeKey(key))).toBe(true)
  })

  test('of jobs without a group, calls without a key', async () => {
    const limit: QueueLimit = { name: nameOf(), by: 'group', rate: '10/h', burst: 10, shared: true, prefix }
    const queue = shop.queue({ groups: {}, limits: [limit] })
    const departed = departuresOf(shop.worker(queue, async () => {}))
    await queue.add('job', {})
    await departed.reach(1)
    expect((await limiterOf(limit).peek()).remaining).toBe(9)
  })
})

test('two queues use the whole rate of a value, and share it', async () => {
  const limit: QueueLimit = { name: nameOf(), by: 'model', rate: '40/s', shared: true, prefix }
  const queues = [1, 2].map(() => shop.queue({ limits: [limit], maxLatenessMs: 60_000 }))
  for (const queue of queues)
    await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'job', data: {}, opts: { keys: { model: 'm' } } })))
  const workers = queues.map((queue) => shop.worker(queue, async () => {}, { concurrency: 5 }))
  const departed = departuresOf(...workers)
  await departed.reach(120)
  const slots = departed.all
    .slice(0, 120)
    .map(({ departureTimeUs }) => departureTimeUs)
    .sort((a, b) => a - b)
  const seconds = ((slots.at(-1) as number) - (slots[0] as number)) / 1e6
  expect(119 / seconds).toBeLessThanOrEqual(40.001)
  // Half of it if each queue waited for the turns of the other; how near to the whole depends on how busy this machine is.
  expect(119 / seconds).toBeGreaterThan(22)
  for (let i = 1; i < slots.length; i++)
    expect((slots[i] as number) - (slots[i - 1] as number)).toBeGreaterThanOrEqual(24_999)
  const each = await Promise.all(queues.map((queue) => queue.getCompletedCount()))
  for (const count of each) expect(count).toBeGreaterThan(30)
})

test('the definitions of a name have to agree', async () => {
  const limit = running(nameOf(), 2)
  await shop.queue({ groups: {}, limits: [limit] }).waitUntilReady()
  const queue = shop.queue({ groups: {}, limits: [{ ...limit, concurrency: 3 }] })
  expect(await rejection(queue.add('job', {}, tenant('acme')))).toBeInstanceOf(LimitConflictError)
  await expect(limiterOf({ ...limit, concurrency: 3 }).take('acme')).rejects.toThrow(LimitConflictError)
  // What it counts by is no part of it.
  const other = shop.queue({ limits: [{ ...limit, by: 'model' }] })
  await other.add('job', {}, { keys: { model: 'acme' } })
})

test('a job that goes back frees its place and its units in the state that others use', async () => {
  const name = nameOf()
  const places = running(name, 1)
  const bucket: QueueLimit = {
    name: nameOf(),
    by: 'group',
    algorithm: 'fixed-window',
    rate: '200/day',
    shared: true,
    prefix,
  }
  const queue = shop.queue({
    groups: {},
    rate: '1/s',
    horizonMs: 1000,
    limits: [{ ...places, concurrency: 2 }, bucket],
  })
  for (const id of ['a', 'b']) await queue.add('job', {}, { jobId: id, ...tenant('acme') })
  const worker = shop.worker(queue, async () => {}, { concurrency: 5 })
  await departuresOf(worker).reach(1)
  await expect.poll(() => client.llen(queue.toKey('active'))).toBe(1)
  await worker.close()
  expect((await limiterOf(bucket).peek('acme')).remaining).toBe(199)
  expect((await limiterOf({ ...places, concurrency: 2 }).peek('acme')).remaining).toBe(2)
})

test('a settled cost lets a queue go that waits for the value', async () => {
  const limit: QueueLimit = {
    name: nameOf(),
    by: 'group',
    unit: 'tokens',
    rate: '100/h',
    burst: 100,
    shared: true,
    prefix,
  }
  const [one, other] = [1, 2].map(() => shop.queue({ groups: {}, limits: [limit] })) as [ShapedQueue, ShapedQueue]
  const run = gate()
  shop.keep({ close: async () => run.open() })
  const first = shop.worker(one, async (job) => {
    await run.opened
    await (job as ShapedJob).settleCost({ tokens: 1 })
  })
  const held = departuresOf(first)
  await one.add('job', {}, { ...tenant('acme'), costs: { tokens: 90 } })
  await held.reach(1)
  const second = shop.worker(other, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(second), departuresOf(second)]
  await other.add('job', {}, { ...tenant('acme'), costs: { tokens: 60 } })
  void second.run()
  await asksUntil(calls, 'closed')
  await settled(other, client, calls)
  run.open()
  await departed.reach(1)
})

test('a mode that is set at run time lets queues go that wait for any value', async () => {
  const limit: QueueLimit = { name: nameOf(), by: 'group', rate: '1/h', shared: true, prefix }
  const queue = shop.queue({ groups: {}, limits: [limit] })
  for (let i = 0; i < 4; i++) await queue.add('job', {}, tenant(`t${i % 2}`))
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await departed.reach(2)
  await settled(queue, client, calls)
  await limiterOf(limit).setMode('off')
  await departed.reach(4)
})

test('two queues and a limiter share places while workers are killed: never above the limit, and nothing is lost', async () => {
  const limit = running(nameOf(), 2)
  const list = `${prefix}:${limit.name}:order`
  const queues = [1, 2].map(() => shop.queue({ groups: {}, limits: [limit] }))
  const tenants = ['a', 'b']
  const script = new URL('./programs/counting-worker.ts', import.meta.url)
  type Message = { type: 'ready' } | { type: 'error'; message: string }
  const start = (queue: ShapedQueue) => {
    const args = [queue.name, prefix, JSON.stringify(redis.connection), list, '100']
    return processes.fork<Message>(script, { args })
  }
  const [doomed, other] = queues.map(start) as [ReturnType<typeof start>, ReturnType<typeof start>]
  await Promise.all([doomed, other].map((worker) => worker.waitFor('ready')))
  for (const queue of queues)
    await queue.addBulk(
      Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: {}, opts: tenant(tenants[i % 2] as string) })),
    )
  const limiter = limiterOf({ ...limit })
  let [isDone, taken] = [false, 0]
  const takes = (async () => {
    while (!isDone) {
      const { allowed, lease } = await limiter.take('a')
      if (allowed) {
        taken += 1
        await client.rpush(list, `start a limiter ${taken}`)
        await delay(5)
        await client.rpush(list, `end a limiter ${taken}`)
        await lease?.release()
      }
      await delay(10)
    }
  })()
  // It is killed while jobs of its own run.
  const holds = async () => {
    const entries = await client.lrange(list, 0, -1)
    const own = entries.filter((entry) => entry.includes(` ${doomed.pid} `))
    return (
      own.filter((entry) => entry.startsWith('start')).length > own.filter((entry) => entry.startsWith('end')).length
    )
  }
  while (!(await holds())) await delay(1)
  const next = start(queues[0] as ShapedQueue)
  await doomed.kill()
  await client.rpush(list, `killed all ${doomed.pid} -`)
  await expect
    .poll(async () => (await Promise.all(queues.map((queue) => queue.getCompletedCount()))).join(), { timeout: 60_000 })
    .toBe('60,60')
  isDone = true
  await takes
  for (const worker of [other, next]) {
    worker.send('close')
    await worker.exited
  }
  // In the order of Redis.
  const atOnce = new Set<string>()
  let most = 0
  for (const entry of await client.lrange(list, 0, -1)) {
    const [verb, ...about] = entry.split(' ') as [string, string, string, string]
    if (verb === 'start') atOnce.add(about.join(' '))
    else if (verb === 'end') atOnce.delete(about.join(' '))
    else for (const one of atOnce) if (one.split(' ')[1] === about[1]) atOnce.delete(one)
    for (const id of tenants) most = Math.max(most, [...atOnce].filter((one) => one.startsWith(`${id} `)).length)
  }
  expect(most).toBe(2)
  await expect.poll(() => client.keys(`*${limit.name}*:n:*`)).toEqual([])
})
