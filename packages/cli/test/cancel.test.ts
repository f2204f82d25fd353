import { afterEach, beforeEach, expect, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const run = (...args: string[]) => runHere(redis, args)
const json = (...args: string[]) => jsonHere(redis, args)
const WHY = ['--reason', 'wrong recipients']

let queue: ShapedQueue
let queues = 0

beforeEach(async () => {
  queues += 1
  queue = new ShapedQueue(`cancel${queues}`, { connection, prefix, shape: { rate: '1000/s', groups: {} } })
})
afterEach(() => queue.close())

test('jobs are cancelled by their ids, with the reason, and what was not is said', async () => {
  const [one, two] = await queue.addBulk(['one', 'two'].map((jobId) => ({ name: 'mail', data: {}, opts: { jobId } })))
  expect(await run('cancel', queue.name, 'one', ...WHY)).toMatchObject({ code: 0, stdout: 'one has failed\n' })
  expect((await queue.getJob('one'))?.failedReason).toMatch(/^cancelled by .+: wrong recipients$/)
  expect(await one?.getState()).toBe('failed')
  const more = await run('cancel', queue.name, 'two', 'three', '--remove', ...WHY)
  expect(more).toMatchObject({ code: 4, stdout: 'two is removed\nthree is not in the queue\n' })
  expect(await two?.getState()).toBe('unknown')
})

test('or by a filter, or all', async () => {
  const opts = (id: string) => ({ group: { id } })
  await queue.addBulk(['a', 'a', 'b'].map((id) => ({ name: 'mail', data: {}, opts: opts(id) })))
  await queue.add('report', {})
  expect(await json('cancel', queue.name, '--group', 'a', '--name', 'mail', ...WHY)).toMatchObject({ failed: 2 })
  const { stdout } = await run('cancel', queue.name, '--older-than', '1h', ...WHY)
  expect(stdout).toBe(`${queue.name}: no such jobs\n`)
  expect((await run('cancel', queue.name, '--all', '--remove', ...WHY)).stdout).toBe(`${queue.name}: 2 removed\n`)
})

test.each([
  ['nothing to cancel', []],
  ['ids and all', ['a1', '--all']],
  ['all and a group', ['--all', '--group', 'a']],
  ['no reason', ['a1']],
])('%s is a mistake, and changes nothing', async (what, args) => {
  await queue.add('mail', {}, { jobId: 'a1' })
  expect((await run('cancel', queue.name, ...args, ...(what === 'no reason' ? [] : WHY))).code).toBe(2)
  expect(await queue.getJobState('a1')).toBe('waiting')
})

test('a queue that does not exist is not made', async () => {
  expect((await run('cancel', 'nowhere', 'a1', ...WHY)).code).toBe(4)
})
