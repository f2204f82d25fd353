import { describe, expect, test } from 'vitest'
import {
  InvalidCostError,
  InvalidDeadlineError,
  InvalidInputError,
  InvalidJobIdError,
  TooLargeError,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const OPTIONS = { key: 'k', fingerprint: 'f' }

/** Names of BullMQ's own keys, what parts keys and commands, what is no text. */
const HOSTILE = [
  ...['active', 'wait', 'meta', 'delayed', 'completed', 'id', '0', '12', 'repeat:x', 'a:b', 'a:b:c', ':', 'meta:shape'],
  ...['{}', '{other}', '*', '?', '../..', ' ', '\0', '\r\nFLUSHALL\r\n', '"', '\\', '__proto__', 'constructor'],
  ...['\ud800', '\ud801', '\udc00', '\ufffd', '\u{1f600}', 'é', 'e\u0301', 'k'.repeat(1024)],
]

test('no key leaves the queue, collides with another, or stops the queue', async () => {
  const queue = shop.queue({ rate: '10000/s', burst: 100, capacity: 100 })
  const ids = new Set<string>()
  for (const key of HOSTILE) {
    const first = await queue.addOnce(many(1), { key, fingerprint: key })
    expect(first).toMatchObject({ ids: [expect.stringMatching(/^j_[\w-]{27}$/)], replayed: false })
    expect(await queue.addOnce(many(1), { key, fingerprint: key })).toMatchObject({ ids: first.ids, replayed: true })
    ids.add(first.ids[0] as string)
  }
  expect(ids.size).toBe(HOSTILE.length)
  const keys = (await client.keys('*meta:once:*')).filter((key) => key.includes(redis.prefix))
  expect(keys).toHaveLength(HOSTILE.length)
  for (const key of keys) expect(key.slice(queue.toKey('meta:once:').length)).toMatch(/^[\w-]{27}$/)

  const taker = new Taker(shop, queue)
  for (const id of ids) {
    const job = await taker.take()
    expect(job.id).toBe(id)
    await taker.complete(job)
  }
  expect(await queue.getJobCounts('wait', 'active', 'completed')).toEqual({
    ...{ wait: 0, active: 0, completed: HOSTILE.length },
  })
})

describe('what can not be is refused, and nothing is stored:', () => {
  const job = (opts: object) => [...many(1), { name: 'job', data: {}, opts }]

  test.each([
    ['an empty key', many(1), { ...OPTIONS, key: '' }, InvalidInputError, 'got 0 characters'],
    ['a key of 100 kB', many(1), { ...OPTIONS, key: 'x'.repeat(100_000) }, InvalidInputError, 'got 100000 characters'],
    ['a key that is no string', many(1), { ...OPTIONS, key: { length: 5 } }, InvalidInputError, 'got object'],
    ['an empty fingerprint', many(1), { ...OPTIONS, fingerprint: '' }, InvalidInputError, 'got 0 characters'],
    ['no fingerprint', many(1), { key: 'k' }, InvalidInputError, 'got undefined'],
    ['no time to live', many(1), { ...OPTIONS, ttlMs: 0 }, InvalidInputError, 'got 0'],
    ['a part of a ms', many(1), { ...OPTIONS, ttlMs: 1.5 }, InvalidInputError, 'got 1.5'],
    ['an endless time to live', many(1), { ...OPTIONS, ttlMs: Infinity }, InvalidInputError, 'got Infinity'],
    ['no job', [], OPTIONS, InvalidInputError, 'got none'],
    ['201 jobs', many(201), OPTIONS, TooLargeError, '201 jobs at once do not fit into one addOnce'],
    ['more jobs than the queue holds', many(6), OPTIONS, TooLargeError, 'which holds 5'],
    ['a job id', job({ jobId: 'mine' }), OPTIONS, InvalidJobIdError, 'leave jobId out'],
    ['a cost that is none', job({ cost: -1 }), OPTIONS, InvalidCostError, 'cost must be'],
    ['a deadline that is none', job({ mustStartBefore: 'soon' }), OPTIONS, InvalidDeadlineError, '"soon"'],
    ['a deadline that is over', job({ mustStartBefore: 1 }), OPTIONS, InvalidDeadlineError, 'must be in the future'],
    ['what BullMQ refuses', job({ priority: 1.5 }), OPTIONS, Error, 'Priority should not be float'],
  ])('%s', async (_what, jobs, options, type, words) => {
    const queue = shop.queue({ rate: '50/s', capacity: 5 })
    const error = await rejection(queue.addOnce(jobs, options as never))
    expect(error).toBeInstanceOf(type)
    expect(error.message).toContain(words)
    expect(error.message.length).toBeLessThan(200)
    expect(await client.keys(queue.toKey('meta:once:*'))).toEqual([])
    expect(await queue.count()).toBe(0)
  })
})
