import { afterEach, beforeEach, expect, test } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const json = (...args: string[]) => jsonHere(redis, args)
const run = (...args: string[]) => runHere(redis, args)

let queue: ShapedQueue
let count = 0

beforeEach(async () => {
  count += 1
  queue = new ShapedQueue(`emails-${count}`, { connection, prefix, shape: { groups: { rate: '1/h' } } })
  await queue.waitUntilReady()
  await queue.addBulk(['a', 'a', 'b'].map((id) => ({ name: 'mail', data: {}, opts: { group: { id } } })))
})

afterEach(() => queue.close())

test('lists how many groups are held, and those that are', async () => {
  const worker = new ShapedWorker(queue.name, async () => {}, { connection, prefix })
  await expect.poll(() => queue.getCompletedCount()).toBe(2)
  await worker.close()
  const listed = await json('group', 'list', queue.name)
  expect(listed).toMatchObject({
    counts: { waiting: 0, limited: 1, maxed: 0, paused: 0 },
    groups: [{ id: 'a', status: 'limited', waiting: 1 }],
  })
  const { stdout } = await run('group', 'list', queue.name)
  expect(stdout).toMatch(/^groups of emails-\d+: 1 limited, 0 maxed, 0 paused, 0 waiting$/m)
  expect(stdout).toMatch(/a\s+limited\s+1\s+20\d\d-.*\((59m|60m|1h)/)
  expect(await json('group', 'list', queue.name, '--status', 'paused')).toMatchObject({ groups: [] })
})

test('a queue without groups has none to list', async () => {
  const plain = new ShapedQueue('plain', { connection, prefix, shape: { rate: '1/h' } })
  await plain.waitUntilReady()
  const { code, stderr } = await run('group', 'list', 'plain')
  await plain.close()
  expect([code, stderr]).toEqual([2, expect.stringMatching(/^sluice: queue "plain" has no groups; /)])
})

test('sets, shows and clears what applies to a group', async () => {
  await json(
    'group',
    'set',
    queue.name,
    'a',
    '--rate',
    '5/s',
    '--weight',
    '2.5',
    '--capacity',
    'none',
    '--reason',
    'plan',
  )
  expect(await json('group', 'show', queue.name, 'a')).toMatchObject({
    ...{ id: 'a', status: 'waiting', waiting: 2, inForce: { rate: '5/s', weight: 2.5 } },
    overrides: { rate: { value: '5/s', reason: 'plan' }, capacity: { value: null } },
  })
  const { stdout } = await run('group', 'show', queue.name, 'a')
  expect(stdout).toMatch(/^rate\s+5\/s\s+set$/m)
  expect(stdout).toMatch(/rate set by .*, until it is cleared: plan/)
  await json('group', 'clear', queue.name, 'a', 'rate', '--reason', 'over')
  expect((await json('group', 'show', queue.name, 'a')).inForce).toEqual({ rate: '1/h', weight: 2.5 })
  await json('group', 'set', queue.name, 'a', '--burst', '3', '--for', '1h', '--reason', 'a while')
  expect((await json('group', 'show', queue.name, 'a')).overrides.burst.until).toMatch(/^20/)
  const history = (await json('shape', 'history', queue.name)).history
  expect(history[0]).toMatchObject({ kind: 'group', reason: 'a while', change: { group: 'a', burst: 3 } })
})

test('pauses and resumes a group', async () => {
  expect((await run('group', 'pause', queue.name, 'a', '--reason', 'unpaid')).stdout).toMatch(
    /is paused until it is resumed/,
  )
  expect(await queue.getGroupStatus('a')).toBe('paused')
  expect((await run('group', 'resume', queue.name, 'a', '--reason', 'paid')).stdout).toMatch(/is resumed/)
  expect(await queue.getGroupStatus('a')).toBe('waiting')
  expect((await run('group', 'pause', queue.name, 'a', '--for', '10m', '--reason', 'x')).stdout).toMatch(/for 10m/)
})

test.each([
  [['group', 'set', 'QUEUE', 'a', '--reason', 'x'], 2, 'expected at least one field'],
  [['group', 'set', 'QUEUE', 'a', '--burst', '1.5', '--reason', 'x'], 2, 'setGroup.burst must be a whole number >= 1'],
  [['group', 'set', 'QUEUE', 'a', '--rate', 'fast', '--reason', 'x'], 2, 'fast'],
  [['group', 'set', 'QUEUE', 'a', '--rate', '5/s'], 2, '--reason'],
  [['group', 'clear', 'QUEUE', 'a', 'share', '--reason', 'x'], 2, "no field 'share'"],
  [['group', 'list', 'nothing'], 4, 'no queue "nothing"'],
])('%j is refused', async (args, code, message) => {
  const found = await run(...args.map((one) => (one === 'QUEUE' ? queue.name : one)))
  expect(found.stderr).toContain(message)
  expect(found.code).toBe(code)
})

test('a queue without groups says so', async () => {
  const plain = new ShapedQueue('plain', { connection, prefix, shape: { rate: '5/s' } })
  await plain.waitUntilReady()
  const { code, stderr } = await run('group', 'show', 'plain', 'a')
  await plain.close()
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('has no groups') })
})
