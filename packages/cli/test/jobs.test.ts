import { afterEach, beforeEach, expect, test } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const WAIT = { timeout: 60_000, interval: 20 }
const run = (...args: string[]) => runHere(redis, args)
const json = (...args: string[]) => jsonHere(redis, args)

let queue: ShapedQueue
let queues = 0

beforeEach(async () => {
  queues += 1
  queue = new ShapedQueue(`jobs${queues}`, { connection, prefix, shape: { rate: '1000/s', burst: 10 } })
})
afterEach(() => queue.close())

/** Jobs that have failed, in this order. */
async function failed(...jobs: { id: string; name?: string; reason?: string }[]): Promise<void> {
  const reasons = new Map(jobs.map(({ id, reason = 'no route' }) => [id, reason]))
  const worker = new ShapedWorker(
    queue.name,
    async (job) => {
      await job.log('tried')
      throw new Error(reasons.get(job.id as string))
    },
    { connection, prefix },
  )
  const before = await queue.getFailedCount()
  for (const { id, name = 'mail' } of jobs) await queue.add(name, { to: 'a@example.com' }, { jobId: id })
  await expect.poll(() => queue.getFailedCount(), WAIT).toBe(before + jobs.length)
  await worker.close()
}

const WHY = ['--reason', 'the server is back']

const LONG = ['j_0123456789abcdefghijklmnopq-1', 'j_0123456789abcdefghijklmnopq-2', 'j_0999999999abcdefghijklmnopq-1']

test('failed jobs are listed, the last first, their ids short enough for a table', async () => {
  expect((await run('jobs', 'failed', 'nowhere')).code).toBe(4)
  await failed({ id: LONG[0] as string }, { id: 'second', reason: 'x'.repeat(100) })
  const { total, jobs } = await json('jobs', 'failed', queue.name)
  expect([total, jobs.map(({ id }: never) => id)]).toEqual([2, ['second', LONG[0]]])
  const { stdout } = await run('jobs', 'failed', queue.name, '--count', '1', '--start', '1')
  expect(stdout).toMatch(/^job +name +failed +attempts +why\nj_\S+…\S+ +mail +\S+Z +1 +no route\n$/)
  expect(stdout).not.toContain(LONG[0])
  expect((await run('jobs', 'failed', queue.name)).stdout).toContain(`${'x'.repeat(60)}…\n`)
})

test('one is shown in full, found by its short id too, without an escape sequence', async () => {
  await failed(
    { id: LONG[2] as string, name: 'a\u001b[31mb', reason: 'bad\u001b]0;title\u0007' },
    { id: LONG[0] as string },
  )
  const shown = await json('jobs', 'show', queue.name, LONG[2] as string)
  expect(shown).toMatchObject({ queue: queue.name, state: 'failed', attemptsMade: 1, data: { to: 'a@example.com' } })
  expect([shown.id, shown.logs]).toEqual([LONG[2], ['tried']])
  const [, short = ''] = /^(j_09\S+…\S+)/m.exec((await run('jobs', 'failed', queue.name)).stdout) ?? []
  const { stdout } = await run('jobs', 'show', queue.name, short)
  expect(stdout).toContain(String.raw`a\u001b[31mb`)
  expect(stdout).toContain('"to": "a@example.com"')
  expect(stdout).toMatch(/logs\n {2}tried\n/)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
  expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/)
  expect((await run('jobs', 'show', queue.name, 'nobody')).code).toBe(4)
})

test('jobs are retried by id, all or none, and a short id that several have is refused', async () => {
  await failed(...LONG.map((id) => ({ id })))
  expect(await run('jobs', 'retry', queue.name, 'j_0123…', ...WHY)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('several ids'),
  })
  expect((await run('jobs', 'retry', queue.name, LONG[0] as string, 'nobody', ...WHY)).code).toBe(4)
  expect(await queue.getWaitingCount()).toBe(0)
  const retried = await json('jobs', 'retry', queue.name, 'j_09…pq-1', LONG[0] as string, ...WHY)
  expect(retried).toEqual({ queue: queue.name, retried: [LONG[2], LONG[0]] })
  expect((await queue.getWaiting()).map(({ id }) => id).toSorted()).toEqual([LONG[0], LONG[2]])
  const again = await run('jobs', 'retry', queue.name, LONG[0] as string, ...WHY)
  expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('has not failed: it is waiting') })
})

test('jobs are retried by their reason, or all', async () => {
  await failed({ id: 'a', reason: 'ECONNREFUSED 1' }, { id: 'b', reason: 'no such user' }, { id: 'c' })
  expect((await run('jobs', 'retry', queue.name, ...WHY)).code).toBe(2)
  expect((await run('jobs', 'retry', queue.name, 'a', '--all', ...WHY)).code).toBe(2)
  expect((await json('jobs', 'retry', queue.name, '--failed-reason', 'ECONN', ...WHY)).retried).toEqual(['a'])
  expect((await run('jobs', 'retry', queue.name, '--all', ...WHY)).stdout).toBe(`${queue.name}: 2 jobs put back\n`)
  const { history } = await json('shape', 'history', queue.name, '--count', '2')
  const note = { kind: 'job', by: 'tester', reason: 'the server is back' }
  expect(history).toMatchObject([
    { ...note, change: { retried: 2 } },
    { ...note, change: { retried: 'a', failedReason: 'ECONN' } },
  ])
  expect(await queue.getFailedCount()).toBe(0)
})

test('a retry has to have a place: one by id is refused, those with a reason wait', async () => {
  await failed({ id: 'a' }, { id: 'b' }, { id: 'c' })
  await queue.setShape({ capacity: 1 }, { by: 'ada', reason: 'a test' })
  await queue.add('in the way', {})
  const refused = await run('jobs', 'retry', queue.name, 'b', ...WHY)
  expect(refused).toMatchObject({ code: 5, stderr: expect.stringContaining('is full (1 of 1)') })
  expect([await queue.getJobState('b'), await queue.count()]).toEqual(['failed', 1])
  const worker = new ShapedWorker(queue.name, async () => {}, { connection, prefix })
  const { retried } = await json('jobs', 'retry', queue.name, '--all', ...WHY)
  await worker.close()
  expect(retried).toEqual(['a', 'b', 'c'])
  expect(await queue.getFailedCount()).toBe(0)
})
