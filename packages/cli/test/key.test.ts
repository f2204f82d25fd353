import { afterEach, beforeEach, expect, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const json = (...args: string[]) => jsonHere(redis, args)
const run = (...args: string[]) => runHere(redis, args)

const SHAPE = {
  groups: {},
  limits: [
    { name: 'tpm', by: 'model', rate: '60/min', burst: 10, tiers: { pro: { rate: '600/min' } } },
    { name: 'endpoint', by: ['group', 'host'], rate: '5/s' },
  ],
} as const

let queue: ShapedQueue
let count = 0

beforeEach(async () => {
  count += 1
  queue = new ShapedQueue(`chats-${count}`, { connection, prefix, shape: SHAPE })
  await queue.waitUntilReady()
})

afterEach(() => queue.close())

test('sets what one value may use, shows and lists it, and clears it', async () => {
  const set = await json('key', 'set', queue.name, 'tpm', 'a', '--burst', '2', '--for', '1h', '--reason', 'tier 4')
  expect(set).toMatchObject({ limit: 'tpm', key: 'a', set: { burst: 2 }, forMs: 3_600_000, reason: 'tier 4' })
  await run('key', 'set', queue.name, 'endpoint', 'group=acme', 'host=h', '--rate', 'none', '--reason', 'a backfill')
  await run('key', 'set', queue.name, 'tpm', 'b', '--tier', 'pro', '--reason', 'upgraded')
  const shown = await json('key', 'show', queue.name, 'tpm', 'a')
  expect(shown).toMatchObject({ inForce: { rate: '60/min', burst: 2 }, remaining: 2, retryAfterMs: 0 })
  const { stdout } = await run('key', 'show', queue.name, 'tpm', 'a')
  expect(stdout).toMatch(/^limit tpm of chats-\d+, model a: 2 left, one more now, all at 20/)
  expect(stdout).toMatch(/^rate +60\/min +shape$/m)
  expect(stdout).toMatch(/^burst set by .+, until 20.+: tier 4$/m)
  const unlimited = await run('key', 'show', queue.name, 'endpoint', 'host=h', 'group=acme')
  expect(unlimited.stdout).toContain('group acme, host h: no limit')
  expect(await json('key', 'list', queue.name)).toMatchObject({
    count: 3,
    values: [
      { limit: 'endpoint', keys: { group: 'acme', host: 'h' } },
      { keys: { model: 'a' } },
      { keys: { model: 'b' } },
    ],
  })
  const listed = await run('key', 'list', queue.name, 'tpm', '--count', '1')
  expect(listed.stdout).toMatch(/tpm +model a +burst +2 +20/)
  expect(listed.stdout).toContain('and 1 more: --count')
  await run('key', 'clear', queue.name, 'tpm', 'a', '--field', 'burst', '--reason', 'over')
  await run('key', 'clear', queue.name, 'tpm', 'b', '--reason', 'over')
  await run('key', 'clear', queue.name, 'endpoint', 'group=acme', 'host=h', '--reason', 'over')
  const none = await run('key', 'list', queue.name)
  expect(none.stdout).toContain('nothing is set for values of the limits')
})

test.each([
  ['no field', ['set', 'tpm', 'a', '--reason', 'x'], 2, 'expected at least one field'],
  ['no name', ['show', 'endpoint', 'group=a', 'h'], 2, "expected name=value for each key; got 'h'"],
  ['no reason', ['set', 'tpm', 'a', '--burst', '2'], 2, '--reason'],
  ['another limit', ['show', 'rpm', 'a'], 2, 'has no limit "rpm" with by or pool; it has tpm, endpoint'],
  ['a wrong value', ['set', 'tpm', 'a', '--burst', '0', '--reason', 'x'], 2, 'burst must be'],
])('%s is refused', async (_what, [verb = '', ...args], code, text) => {
  const { code: ended, stderr } = await run('key', verb, queue.name, ...args)
  expect([ended, stderr]).toEqual([code, expect.stringContaining(text)])
})

test('a value may have hours of its own, which are shown as they were set', async () => {
  const rate = '{"schedule":[{"from":"08:00","to":"20:00","rate":"60/min"},{"rate":0}],"timeZone":"Asia/Tokyo"}'
  await run('key', 'set', queue.name, 'tpm', 'a', '--rate', rate, '--reason', 'quiet hours')
  for (const what of [
    ['show', queue.name, 'tpm', 'a'],
    ['list', queue.name],
  ]) {
    const { stdout } = await run('key', ...what)
    expect(stdout).toContain('"timeZone":"Asia/Tokyo"')
  }
  const refused = await run('key', 'set', queue.name, 'tpm', 'a', '--rate', '{"schedule":', '--reason', 'quiet hours')
  expect(refused.stderr).toContain("expected a rate such as '50/s', or a JSON object of schedule and timeZone")
})

test('a queue that does not exist is not made', async () => {
  const { code } = await run('key', 'show', 'nothing', 'tpm', 'a')
  expect(code).toBe(4)
  expect(await redis.client().keys(`${prefix}:nothing:*`)).toEqual([])
})
