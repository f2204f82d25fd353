import { createLimiter } from '../../src/limits/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

// Fault table, row 24: names that come from callers, on a server where nothing else is.
useConcurrentTests()

/** Names of BullMQ's own keys, what separates keys and commands, patterns, and what means something to JavaScript. */
const HOSTILE = [
  ...['active', 'wait', 'meta', 'meta:shape', 'groups', 'id', '0', 'repeat:x', 'a:b', 'a:b:c', ':', '#', '|', ','],
  ...['{}', '{other}', 'x}{y', '*', '?', '[a]', '../..', ' ', '\0', '\r\nFLUSHALL\r\n', '"', '\\', '%s', '%d'],
  ...['__proto__', 'constructor', 'toString', '\u{1f600}', 'é', 'e\u0301', '\u202e', 'k'.repeat(256)],
]

test('as groups with limits of their own they keep the queue going, are told apart, and all keys are below its prefix', async () => {
  const { url } = await startOwnRedis()
  const connection = quickConnection(url)
  const fleet = new Fleet()
  const limits = [{ name: 'daily', by: 'group', algorithm: 'fixed-window', rate: '2/day' }] as const
  const shape = { capacity: 500, groups: { concurrency: 1, capacity: 5, rate: '1000/s', burst: 10 }, limits }
  const queue = fleet.queue('mail', { connection, shape })
  const jobs = HOSTILE.flatMap((id) => [1, 2, 3].map(() => ({ name: id, data: { id }, opts: { group: { id } } })))
  const ids = idsOf(await queue.addBulk(jobs))
  const admin = adminOf(url)
  const keys = () => admin.keys('*')
  expect((await keys()).filter((key) => !key.startsWith('bull:mail:') && key !== 'bull:shaped-queues')).toEqual([])
  for (const id of HOSTILE) expect(await queue.getGroup(id), JSON.stringify(id)).toMatchObject({ waiting: 3 })

  fleet.worker('mail', { connection, concurrency: 10 })
  // The third of each has to wait for tomorrow: no two of them share a state.
  await fleet.until(() => fleet.completed.length === 2 * HOSTILE.length)
  const done = fleet.completed.map((id) => (jobs[ids.indexOf(id)] as (typeof jobs)[0]).name)
  expect(done.toSorted()).toEqual([...HOSTILE, ...HOSTILE].toSorted())
  for (const id of HOSTILE)
    expect(await queue.getGroup(id), JSON.stringify(id)).toMatchObject({ waiting: 1, active: 0 })
  expect((await keys()).filter((key) => !key.startsWith('bull:mail:') && key !== 'bull:shaped-queues')).toEqual([])
  expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
})

test('as keys of a limiter each is a state of its own, below its prefix', async () => {
  const { url } = await startOwnRedis()
  const admin = adminOf(url)
  const limiter = createLimiter(admin, { name: 'callers', rate: '1/day', timeoutMs: 5000 })
  for (const key of HOSTILE) {
    const twice = [await limiter.take(key), await limiter.take(key)]
    expect(
      twice.map(({ allowed }) => allowed),
      JSON.stringify(key),
    ).toEqual([true, false])
  }
  const keys = await admin.keys('*')
  expect(keys.filter((key) => !/^\w+:limit:\{callers\}/.test(key))).toEqual([])
  expect(keys.filter((key) => key.includes(':g:'))).toHaveLength(HOSTILE.length)
})
