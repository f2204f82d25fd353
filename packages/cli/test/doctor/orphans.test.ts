import { afterEach, expect, test } from 'vitest'
import { ShapedQueue } from '../../../../src/index.ts'
import { jobs } from '../../../../test/worker/support.ts'
import { scanQueueKeys } from '../../src/doctor/checks/orphans.ts'
import { troubles, Ward } from './support.ts'

const ward = new Ward()
const BASE = `${ward.prefix}:q:`

afterEach(() => ward.admin.flushall())

/** A queue with jobs in every state, and what the doctor finds of it then. */
async function foundIn(prepare: () => Promise<unknown>) {
  const queue = new ShapedQueue('q', {
    ...{ connection: ward.redis.connection('operator'), prefix: ward.prefix, shape: { rate: '10/s', capacity: 5000 } },
  })
  await queue.addBulk([...jobs(3), ...jobs(2, { priority: 2 }), ...jobs(2, { delay: 60_000 })])
  await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'scheduled' })
  await queue.addBulk(jobs(1, { deduplication: { id: 'd' } }))
  await prepare()
  await queue.close()
  return (await ward.examine({ queues: ['q'] })).filter(({ check }) => check === 'orphans')
}

test('a queue with jobs in many states has none', async () => {
  const found = await foundIn(async () => {})
  expect(found).toMatchObject([{ level: 'ok', message: expect.stringMatching(/none among \d\d keys/) }])
})

const FUTURE_US = String((Date.now() + 3_600_000) * 1000)

test.each([
  [
    'a job in no state',
    () => ward.admin.hset(`${BASE}lost`, 'name', 'x', 'timestamp', 1),
    'error',
    'in no state: lost',
  ],
  [
    'a job in no state that has ended',
    () => ward.admin.hset(`${BASE}ended`, 'name', 'x', 'finishedOn', 1),
    ...['warning', 'in no state: ended'],
  ],
  ['a lock without an end', () => ward.admin.set(`${BASE}5:lock`, 'token'), 'warning', 'running job: 5'],
  ['logs of nobody', () => ward.admin.rpush(`${BASE}gone:logs`, 'line'), 'warning', 'gone: gone:logs'],
  ['dependencies of nobody', () => ward.admin.sadd(`${BASE}gone:dependencies`, 'x'), 'warning', 'gone:dependencies'],
  ['a sleeper that is gone', () => ward.admin.zadd(`${BASE}meta:sleepers`, 1, 'w1'), 'warning', 'sleepers: w1'],
  ['a grant without an end', () => ward.admin.set(`${BASE}meta:grants:w1:7`, 'x'), 'warning', 'meta:grants:w1:7'],
  ['a claim that is over', () => ward.admin.hset(`${BASE}meta:claims`, 'c1', '20:1'), 'warning', '20 places'],
  [
    'a queue that is gone',
    () => ward.admin.hset(`${ward.prefix}:gone:meta:shape`, 'born', 1),
    ...['warning', 'are gone have keys left: gone'],
  ],
  [
    'the name of a queue that is gone',
    () => ward.admin.sadd(`${ward.prefix}:shaped-queues`, 'q', 'gone'),
    ...['warning', 'still listed: gone'],
  ],
] as const)('%s is found', async (_what, prepare, level, text) => {
  const found = await foundIn(prepare)
  expect(troubles(found)).toMatchObject([{ level, message: expect.stringContaining(text) }])
  expect(found[0]?.remedy).not.toBe('')
})

test.each([
  ['a lock that ends by itself', () => ward.admin.set(`${BASE}5:lock`, 'token', 'PX', 60_000)],
  ['a sleeper that is due later', () => ward.admin.zadd(`${BASE}meta:sleepers`, FUTURE_US, 'w1')],
  ['a grant that ends by itself', () => ward.admin.set(`${BASE}meta:grants:w1:7`, 'x', 'PX', 60_000)],
  ['a claim that holds', () => ward.admin.hset(`${BASE}meta:claims`, 'c1', `20:${FUTURE_US}`)],
  ['limits under the same prefix', () => ward.admin.hset(`${ward.prefix}:limit:{x}`, 'definition', '{}')],
  ['what is no job, and no hash', () => ward.admin.set(`${BASE}counter`, 1)],
  ['keys of others', () => ward.admin.hset(`${ward.prefix}-other:q:5`, 'name', 'x')],
] as const)('%s is none', async (_what, prepare) => {
  expect(troubles(await foundIn(prepare))).toEqual([])
})

test('a prefix with signs of patterns finds its own keys only', async () => {
  await ward.admin.mset('a[b]*:q:wait', 1, 'ab:q:wait', 1, 'a[b]x:q:wait', 1)
  const { queues, keys, complete } = await scanQueueKeys(ward.admin, 'a[b]*')
  expect([[...queues.keys()], keys, complete]).toEqual([['q'], 1, true])
})
