import type { Redis } from 'ioredis'
import { NotReplicatedError, type Shape, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { startProxy } from '../support/proxy.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { startPair } from './support/replicated-pair.ts'

useConcurrentTests()

const SHAPE = { durability: { replicas: 1, timeoutMs: 300 } } as const
/** Where replicas do answer, however busy the machine is. */
const PATIENT = { durability: { replicas: 1, timeoutMs: 5000 } } as const
const JOBS = [1, 2, 3].map(() => ({ name: 'job', data: {} }))
const ONCE = { key: 'k', fingerprint: 'f' }

function queueOf(url: string, shape: Shape = SHAPE): ShapedQueue {
  const queue = new ShapedQueue('mail', { connection: quickConnection(url), shape })
  queue.on('error', () => {})
  onTestFinished(() => queue.close())
  return queue
}

/** The calls of a command so far. */
async function callsOf(admin: Redis, command: string): Promise<number> {
  const [, calls = 0] = new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await admin.info('commandstats')) ?? []
  return Number(calls)
}

const idsOn = async (client: Redis) =>
  (await client.keys('bull:mail:*')).flatMap((key) => /^bull:mail:([\w:-]+)$/.exec(key)?.[1] ?? [])

test('when a call is answered, a replica has every job that it accepted', async () => {
  const { master, replica } = await startPair()
  const queue = queueOf(master.url, { ...PATIENT, capacity: 1000 })
  const flows = new ShapedFlowProducer({ connection: quickConnection(master.url) })
  onTestFinished(() => flows.close())
  const ways: [way: string, add: () => Promise<readonly (string | undefined)[]>][] = [
    ['add', async () => [(await queue.add('job', {})).id]],
    ['addBulk', async () => (await queue.addBulk(JOBS)).map(({ id }) => id)],
    ['addOnce', async () => (await queue.addOnce(JOBS, ONCE)).ids],
    ['addWhenFree', async () => [(await queue.addWhenFree('job', {})).id]],
    ['delayed', async () => [(await queue.add('job', {}, { delay: 60_000 })).id]],
    ['a scheduler', async () => [(await queue.upsertJobScheduler('s', { every: 60_000 })).id]],
    [
      'a flow',
      async () => {
        const child = { name: 'child', queueName: 'mail' }
        const { job, children = [] } = await flows.add({ name: 'parent', queueName: 'mail', children: [child] })
        return [job.id, ...children.map(({ job: { id } }) => id)]
      },
    ],
  ]
  for (const [way, add] of ways) {
    const ids = await add()
    const there = await Promise.all(ids.map((id) => replica.exists(`bull:mail:${id}`)))
    expect(there, way).toEqual(ids.map(() => 1))
  }
  expect(await queue.offer('job', {})).toMatchObject({ accepted: true })
})

test('calls that are made together ask replicas together; without the field no one asks', async () => {
  const { master, admin } = await startPair()
  const plain = queueOf(master.url, { capacity: 1000 })
  await Promise.all(Array.from({ length: 20 }, () => plain.add('job', {})))
  expect(await callsOf(admin, 'wait')).toBe(0)
  await plain.setShape(PATIENT, { by: 'ops', reason: 'test' })
  await Promise.all(Array.from({ length: 200 }, () => plain.add('job', {})))
  const asked = await callsOf(admin, 'wait')
  expect(asked).toBeGreaterThan(0)
  expect(asked).toBeLessThan(20)
})

test('a replica that stands still: the jobs are there and unconfirmed, and asking again is safe', async () => {
  const { master, admin, freeze, thaw } = await startPair()
  const queue = queueOf(master.url)
  await queue.waitUntilReady()
  freeze()
  const added = () => queue.add('job', {}, { jobId: 'mine' })
  const known = { replicas: 1, acknowledged: 0, timeoutMs: 300, mayBeStored: true }
  const unconfirmed = await added().catch((error: unknown) => error)
  expect(unconfirmed).toBeInstanceOf(NotReplicatedError)
  expect(unconfirmed).toMatchObject({ ...known, jobIds: ['mine'] })
  // The job is known by now, and nothing is written for it: still it is not confirmed.
  await expect(added()).rejects.toMatchObject({ ...known, jobIds: ['mine'] })
  await expect(queue.offer('job', {}, { jobId: 'mine' })).rejects.toBeInstanceOf(NotReplicatedError)
  const once = (await queue.addOnce(JOBS, ONCE).catch((error: unknown) => error)) as NotReplicatedError
  expect(once).toMatchObject({ ...known, name: 'NotReplicatedError' })
  expect(await queue.getWaitingCount()).toBe(4)
  expect((await queue.meter()).unconfirmedTotal).toBe(1 + 1 + 1 + JOBS.length)
  await thaw()
  await queue.setShape(PATIENT, { by: 'ops', reason: 'test' })
  expect((await added()).id).toBe('mine')
  expect(await queue.addOnce(JOBS, ONCE)).toMatchObject({ ids: once.jobIds, replayed: true })
  expect(await queue.getWaitingCount()).toBe(4)
  expect((await idsOn(admin)).filter((id) => id === 'mine' || once.jobIds.includes(id))).toHaveLength(4)
})

test('the time that a call stands behind the question of another is part of its own', async () => {
  const { url } = await startOwnRedis()
  const terms = { replicas: 1, timeoutMs: 3000 }
  const queue = queueOf(url, { durability: terms })
  await queue.waitUntilReady()
  const admin = adminOf(url)
  const seen = await admin.monitor()
  onTestFinished(() => seen.disconnect())
  const waits: number[] = []
  seen.on('monitor', (_: string, [command, , timeoutMs]: string[]) => {
    if (command?.toLowerCase() === 'wait') waits.push(Number(timeoutMs))
  })
  const unconfirmed = expect.objectContaining({ name: 'NotReplicatedError', ...terms })
  const one = queue.add('job', {}).catch((error: unknown) => error)
  await expect.poll(() => admin.info('clients'), { timeout: 60_000, interval: 5 }).toMatch(/^blocked_clients:1/m)
  // The watch of the connection sees that Redis was asked to wait.
  const { commandQueue } = (await queue.backend.connection.client) as unknown as {
    commandQueue: { peekFront(): { command: { name: string } } | undefined }
  }
  // What was sent before it is answered by then, but perhaps not read.
  await expect.poll(() => commandQueue.peekFront()?.command.name, { interval: 5 }).toBe('wait')
  // Its command is answered only after that question.
  const other = queue.add('job', {}).catch((error: unknown) => error)
  expect(await Promise.all([one, other])).toEqual([unconfirmed, unconfirmed])
  expect(waits).toHaveLength(2)
  expect(waits[1]).toBeLessThan(waits[0] as number)
  expect(await admin.llen('bull:mail:wait')).toBe(2)
})

test('no replica at all: the same, after the time that is waited for it', async () => {
  const { url } = await startOwnRedis()
  const queue = queueOf(url)
  await expect(queue.addBulk(JOBS)).rejects.toThrow(
    'accepted 3 jobs, but 0 of 1 replicas confirmed them within 300 ms: they will run',
  )
  expect(await queue.getWaitingCount()).toBe(3)
})

/** Another program sets the field, and lifts it. */
function fieldOf(url: string) {
  const ops = queueOf(url, { capacity: 1000 })
  const who = { by: 'ops', reason: 'test' }
  return {
    set: () => ops.setShape({ durability: { replicas: 1, timeoutMs: 1 } }, who),
    lift: () => ops.clearShape({ fields: ['durability'], ...who }),
  }
}

test('flows obey a field that another program sets, and one that it lifts', async () => {
  const { url } = await startOwnRedis()
  const field = fieldOf(url)
  const flows = new ShapedFlowProducer({ connection: quickConnection(url) })
  onTestFinished(() => flows.close())
  const children = [{ name: 'child', queueName: 'mail' }]
  const add = () => flows.add({ name: 'parent', queueName: 'reports', children })
  await add()
  await field.set()
  await expect(add()).rejects.toMatchObject({ name: 'NotReplicatedError', replicas: 1 })
  await field.lift()
  expect((await add()).children).toHaveLength(1)
})

test('so do replayed calls', async () => {
  const { url } = await startOwnRedis()
  const field = fieldOf(url)
  const queue = queueOf(url, { capacity: 1000 })
  const { ids } = await queue.addOnce(JOBS, ONCE)
  await field.set()
  await expect(queue.addOnce(JOBS, ONCE)).rejects.toMatchObject({ name: 'NotReplicatedError', jobIds: ids })
  await field.lift()
  expect(await queue.addOnce(JOBS, ONCE)).toMatchObject({ ids, replayed: true })
})

test('a connection that is replaced before replicas have answered confirms nothing: the next one may lead to another server', async () => {
  const { master } = await startPair()
  const proxy = await startProxy(master.url)
  const queue = queueOf(proxy.url, PATIENT)
  onTestFinished(() => proxy.stop())
  await queue.waitUntilReady()
  const dropped = proxy.dropReplyOf(([command]) => command?.toLowerCase() === 'set')
  const adding = queue.add('job', {}, { jobId: 'mine' }).catch((error: unknown) => error)
  await dropped
  expect(await adding).toMatchObject({ name: 'NotReplicatedError', jobIds: ['mine'], acknowledged: 0 })
  expect((await queue.add('job', {}, { jobId: 'mine' })).id).toBe('mine')
})

const PARTS: [shape: string, Shape][] = [
  ['without a capacity', PATIENT],
  ['with a capacity, whose places are claimed first', { ...PATIENT, capacity: 10_000 }],
]
test.each(PARTS)('a bulk of which a server that takes over lacks a part is not confirmed: %s', async (_, shape) => {
  const before = await startOwnRedis()
  const { master, admin } = await startPair()
  const proxy = await startProxy(before.url)
  const queue = queueOf(proxy.url, shape)
  onTestFinished(() => proxy.stop())
  await queue.waitUntilReady()
  let parts = 0
  const dropped = proxy.dropReplyOf(({ length }) => length > 200 && ++parts === 2)
  proxy.redirect(master.url)
  const adding = queue.addBulk(Array.from({ length: 1500 }, () => JOBS[0] as (typeof JOBS)[0])).catch((e: unknown) => e)
  await dropped
  const unconfirmed = (await adding) as NotReplicatedError
  expect(await admin.llen('bull:mail:wait')).toBe(1450)
  expect(unconfirmed).toMatchObject({ name: 'NotReplicatedError', acknowledged: 0 })
  expect(unconfirmed.jobIds).toHaveLength(1500)
})

test('nor are jobs that are added together, and are too large for one script', async () => {
  const before = await startOwnRedis()
  const { master, replica } = await startPair()
  const proxy = await startProxy(before.url)
  const queue = queueOf(proxy.url, PATIENT)
  onTestFinished(() => proxy.stop())
  await queue.waitUntilReady()
  let parts = 0
  const data = { text: 'x'.repeat(300_000) }
  // The texts of scripts are as large.
  const isLarge = (command: readonly string[]) => command.some((word) => word.includes(data.text))
  const dropped = proxy.dropReplyOf((command) => isLarge(command) && ++parts === 2)
  proxy.redirect(master.url)
  const alone = queue.add('job', {}).catch(() => {})
  const together = Promise.allSettled([1, 2, 3, 4].map((i) => queue.add('job', data, { jobId: `large-${i}` })))
  await dropped
  const confirmed = (await together).map(({ status }) => status === 'fulfilled')
  expect(confirmed).toEqual(
    await Promise.all([1, 2, 3, 4].map(async (i) => (await replica.exists(`bull:mail:large-${i}`)) === 1)),
  )
  expect(confirmed).toContain(false)
  await alone
})
