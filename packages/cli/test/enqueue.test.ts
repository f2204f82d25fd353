import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { type Shape, ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { startProxy } from '../../../test/support/proxy.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'
import { useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const sluice = useSluice(redis)
const WAIT = { timeout: 60_000, interval: 20 }
const folder = mkdtempSync(join(tmpdir(), 'sluice-enqueue-'))
afterAll(() => rmSync(folder, { recursive: true }))

let queue: ShapedQueue
let count = 0

beforeEach(() => {
  count += 1
})
afterEach(() => queue.close())

async function open(shape: Shape): Promise<string> {
  queue = new ShapedQueue(`jobs-${count}`, { connection, prefix, shape })
  await queue.waitUntilReady()
  await queue.getShape()
  return queue.name
}

function fileOf(jobs: number, change: (line: number) => object = () => ({})): string {
  const lines = Array.from({ length: jobs }, (_, i) => JSON.stringify({ name: 'job', data: { i }, ...change(i + 1) }))
  const file = join(folder, `${count}-${jobs}.ndjson`)
  writeFileSync(file, `${lines.join('\n')}\n`)
  return file
}

const enqueue = (file: string, ...args: string[]) => jsonHere(redis, ['enqueue', queue.name, '--file', file, ...args])

/** What the jobs of the queue carry, those that leave first at the head. */
async function numbers(): Promise<number[]> {
  return (await queue.getJobs(['waiting'], 0, -1, true)).map(({ data }) => data.i)
}

test('adds each line once, also when it runs again after the jobs are done', async () => {
  await open({ capacity: 1000 })
  const file = fileOf(200)
  const { key, ...first } = await enqueue(file)
  expect(first).toEqual({ queue: queue.name, added: 200, present: 0 })
  expect(await numbers()).toEqual(Array.from({ length: 200 }, (_, i) => i))
  await queue.drain()
  expect(await enqueue(file)).toEqual({ queue: queue.name, key, added: 0, present: 200 })
  expect(await numbers()).toEqual([])
  expect(await enqueue(file, '--key', 'another')).toMatchObject({ added: 200, present: 0 })
})

test('a run that is named goes on in a file that grew, and refuses one that says something else', async () => {
  await open({ capacity: 1000 })
  expect(await enqueue(fileOf(10), '--key', 'today')).toMatchObject({ added: 10 })
  expect(await enqueue(fileOf(12), '--key', 'today')).toMatchObject({ added: 2, present: 10 })
  const other = fileOf(11, (line) => (line === 4 ? { name: 'other' } : {}))
  const { code, stderr } = await runHere(redis, ['enqueue', queue.name, '--file', other, '--key', 'today'])
  expect(code).toBe(2)
  expect(stderr).toContain('sluice: line 4: the idempotency key was used for another request')
})

test('a line that is wrong stops it before anything is added', async () => {
  await open({ capacity: 1000 })
  const file = fileOf(100, (line) => (line === 99 ? { opts: { dealy: 1 } } : {}))
  const { code, stderr } = await runHere(redis, ['enqueue', queue.name, '--file', file])
  expect(code).toBe(2)
  expect(stderr).toMatch(/^sluice: line 99: opts has no 'dealy' here/)
  expect(await queue.getWaitingCount()).toBe(0)
})

test.each([['--no-wait'], ['--timeout', '100ms']])(
  'a full queue ends %j with 5, and the run can go on',
  async (...args) => {
    await open({ rate: '1/h', capacity: 5 })
    const file = fileOf(8)
    const { code, stderr } = await runHere(redis, ['enqueue', queue.name, '--file', file, ...args])
    expect(code).toBe(5)
    expect(stderr).toMatch(
      /^5 jobs added, 0 were already there; to continue: --key \S+\nsluice: line 6: queue "jobs-\d+" [^\n]+\n$/,
    )
    await queue.setShape({ capacity: 100 }, { by: 'test', reason: 'room' })
    expect(await enqueue(file)).toMatchObject({ added: 3, present: 5 })
    expect(await numbers()).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
  },
)

test('waits for places, and keeps the order', async () => {
  await open({ rate: '100/s', capacity: 5 })
  const started: number[] = []
  const worker = new ShapedWorker(queue.name, async ({ data }) => started.push(data.i), { connection, prefix })
  expect(await enqueue(fileOf(60))).toMatchObject({ added: 60, present: 0 })
  await expect.poll(() => started.length, WAIT).toBe(60)
  await worker.close()
  expect(started.slice(5)).toEqual(started.slice(5).toSorted((a, b) => a - b))
})

test('interrupted it ends with 130, and run again adds what is left, nothing twice', async () => {
  await open({ rate: '1/h', capacity: 20 })
  const file = fileOf(50)
  const running = sluice.start(['enqueue', queue.name, '--file', file])
  await expect.poll(() => queue.getWaitingCount(), WAIT).toBe(20)
  running.child.kill('SIGINT')
  const { code, stderr } = await running.ended
  expect(code, stderr).toBe(130)
  expect(stderr).toContain('20 jobs added')
  await queue.setShape({ capacity: 1000 }, { by: 'test', reason: 'room' })
  expect(await enqueue(file)).toMatchObject({ added: 30, present: 20 })
  expect(await numbers()).toEqual(Array.from({ length: 50 }, (_, i) => i))
})

test('killed when the answer of Redis is lost, and run again, it adds nothing twice', async () => {
  await open({ capacity: 1000 })
  const proxy = await startProxy(redis.url)
  try {
    const file = fileOf(150)
    const dropped = proxy.dropReplyOf((words) => words.some((word) => word.includes('"i":')), 1, { holdOpen: true })
    const running = sluice.start(['enqueue', queue.name, '--file', file], { env: { REDIS_URL: proxy.url } })
    await dropped
    running.child.kill('SIGKILL')
    await running.ended
    const before = await queue.getWaitingCount()
    expect(before).toBeGreaterThan(0)
    expect(before).toBeLessThan(150)
    const { added, present } = await enqueue(file)
    expect([added, present]).toEqual([150 - before, before])
    expect((await numbers()).toSorted((a, b) => a - b)).toEqual(Array.from({ length: 150 }, (_, i) => i))
  } finally {
    await proxy.stop()
  }
})

test('reads stdin', async () => {
  const name = await open({ capacity: 10 })
  const input = '{"name":"a","data":{"i":1}}\n{"name":"b","data":{"i":2},"opts":{"jobId":"mine"}}'
  const { code, stdout, stderr } = await sluice.run(['enqueue', name, '--file', '-'], { input })
  expect({ code, stdout, stderr }).toEqual({
    code: 0,
    stdout: `${name}: 2 jobs added, 0 were already there\n`,
    stderr: '',
  })
  expect((await queue.getJob('mine'))?.data).toEqual({ i: 2 })
})
