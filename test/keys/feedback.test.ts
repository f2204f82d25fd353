import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { extendProfile, profiles } from '../../src/egress/index.ts'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { type FeedbackChange, InvalidInputError, type QueueLimit, type ShapedQueue } from '../../src/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// What the downstream answers to a job holds, slows and lowers a limit with `by` for the keys of that job alone.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const HOUR_MS = 3_600_000
const RPM: QueueLimit = { name: 'rpm', by: 'model', algorithm: 'token-bucket', rate: '100/s', burst: 10 }
const WHO = { by: 'ops', reason: 'test' }

const about = (feedback: object) => ({ ...said, scope: { limit: 'rpm' }, ...feedback }) as unknown as Feedback
const pause = (forMs?: number) => about({ kind: 'pause', forMs, hard: true })
const left = (remaining: number, scope: object = { limit: 'rpm' }, resetMs = 1) =>
  about({ kind: 'ok', remaining, resetMs, scope })

const of = (model: string, count: number, opts: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ name: `${model}${i}`, data: {}, opts: { keys: { model }, ...opts } }))

/** A worker whose calls get these answers, by the name of the job: thrown if one of them refuses. */
function worker(
  queue: { name: string },
  answer: (name: string) => readonly Feedback[] | undefined,
  options: object = {},
) {
  const processor = async ({ name }: { name: string }) => {
    const found = answer(name)
    if (found?.some(({ kind }) => kind !== 'ok')) throw new Told(...found)
    return found && new Told(...found)
  }
  const made = shop.worker(queue, processor as never, { feedback: ears, ...options })
  return { worker: made, completed: eventsOf('completed', made), changes: eventsOf<FeedbackChange>('feedback', made) }
}

const refuses =
  (model: string, ...found: readonly Feedback[]) =>
  (name: string) =>
    name.startsWith(model) ? found : undefined

test('an answer that names a time holds the key of its job in the whole fleet, for all groups, and no other key', async () => {
  const queue = shop.queue({ groups: {}, limits: [RPM] })
  await queue.addBulk([...of('large', 2, { group: { id: 'acme' } }), ...of('small', 3)])
  const { worker: first, completed, changes } = worker(queue, refuses('large', pause(HOUR_MS)))
  await Promise.all([completed.reach(3), changes.reach(1)])
  await first.close()
  const others = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  await queue.addBulk([...of('large', 1, { group: { id: 'other' } }), ...of('small', 2, { group: { id: 'acme' } })])
  await others.reach(2)
  expect(others.all.map(({ name }) => name).toSorted()).toEqual(['small0', 'small1'])
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { limit: 'rpm', keys: { model: 'large' } } })
  const { overrides, retryAfterMs } = await queue.getLimit('rpm', 'large')
  expect(overrides).toMatchObject({ limited: { value: true, reason: '429', until: changes.all[0]!.until } })
  expect(retryAfterMs).toBeGreaterThan(HOUR_MS - 60_000)
  expect(await queue.getLimit('rpm', 'small')).toMatchObject({ overrides: {}, retryAfterMs: 0 })
  expect((await queue.meter()).pausedUntil).toBeUndefined()
  await queue.clearLimit('rpm', 'large', WHO)
  await others.reach(5)
})

const BY_MODEL = { name: 'rpm', by: 'model' } as const

test.each<[string, QueueLimit]>([
  ['a bucket', RPM],
  ['a window', { ...BY_MODEL, algorithm: 'fixed-window', rate: '100/s' }],
  ['places', { ...BY_MODEL, algorithm: 'concurrency', concurrency: 5 }],
])('jobs follow when the time of their key is over: %s', async (_, limit) => {
  const queue = shop.queue({ limits: [limit] })
  await queue.addBulk([...of('large', 3), ...of('small', 9)])
  let refusals = 0
  const { completed } = worker(queue, (name) => {
    if (!name.startsWith('large') || refusals === 1) return undefined
    refusals += 1
    return [pause(1000)]
  })
  await completed.reach(12)
  expect(completed.all.slice(-3).map(({ name }) => name.slice(0, 5))).toEqual(Array(3).fill('large'))
  expect(completed.all.every(({ attemptsMade }) => attemptsMade === 1)).toBe(true)
})

test('a job without the key of the limit waits alone', async () => {
  const queue = shop.queue({ limits: [RPM] })
  await queue.addBulk([{ name: 'bare', data: {} }, ...of('small', 3)])
  const { completed, changes } = worker(queue, refuses('bare', pause(HOUR_MS)))
  await completed.reach(3)
  await expect.poll(() => queue.getDelayedCount()).toBe(1)
  expect(changes.all).toEqual([])
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('refusals that repeat while others of the key succeed are those of the job; those of other keys say nothing', async () => {
  const queue = shop.queue({ limits: [RPM] })
  await queue.addBulk(of('small', 5))
  let bad = 0
  const { completed, changes } = worker(queue, (name) => {
    if (name !== 'bad') return undefined
    bad += 1
    return [pause(bad === 1 ? 50 : HOUR_MS)]
  })
  await completed.reach(5)
  const options = { keys: { model: 'large' } }
  await queue.add('bad', {}, options)
  await changes.reach(1)
  // Others have been called since it was refused first, but none of its key.
  await queue.addBulk(of('small', 5))
  await changes.reach(2)
  expect(changes.all.map(({ scope }) => scope)).toEqual(Array(2).fill({ limit: 'rpm', keys: { model: 'large' } }))
  await queue.clearLimit('rpm', 'large', WHO)
})

test.each<[string, Partial<QueueLimit>]>([
  ['a token bucket', {}],
  ['GCRA', { algorithm: 'gcra' }],
  ['a window', { algorithm: 'fixed-window', rate: '10/h' }],
  ['a log', { algorithm: 'sliding-window-log', rate: '10/h' }],
  ['tiers', { rate: '1/h', burst: 1, tiers: { pro: { rate: '1/h', burst: 10 } } }],
])('what an answer says is left lowers the value of its key, never raises it: %s', async (_, more) => {
  const shape: QueueLimit = { ...RPM, rate: '1/h', ...more }
  const queue = shop.queue({ limits: [shape] })
  if (more.algorithm?.includes('window')) await queue.setLimit('rpm', 'small', { rate: '10/h' }, WHO)
  const tier = more.tiers ? { tier: 'pro' } : {}
  if (more.tiers) for (const model of ['large', 'small']) await queue.setLimit('rpm', model, { tier: 'pro' }, WHO)
  await queue.addBulk([...of('large', 1, tier), ...of('small', 1, tier)])
  const { completed } = worker(queue, (name) => [left(name.startsWith('large') ? 3 : 1000)])
  await completed.reach(2)
  const remaining = async (model: string) => (await queue.getLimit('rpm', model)).remaining
  await expect.poll(() => remaining('large')).toBe(3)
  expect(await remaining('small')).toBe(9)
})

test('what is used up holds its key until the reset that is named; without one, nothing is left of it', async () => {
  const queue = shop.queue({ limits: [{ ...RPM, rate: '1/h' }] })
  await queue.addBulk([...of('large', 1), ...of('small', 1)])
  const { completed, changes } = worker(queue, (name) => [left(0, undefined, name.startsWith('large') ? 1 : 0)])
  await Promise.all([completed.reach(2), changes.reach(1)])
  const remaining = async (model: string) => (await queue.getLimit('rpm', model)).remaining
  await expect.poll(() => remaining('small')).toBe(0)
  expect(await remaining('large')).toBe(9)
})

test('what is left of a limit without keys, and of a shared one with them, is lowered in the same way', async () => {
  const shared: QueueLimit = { ...RPM, rate: '1/h', shared: true, prefix: redis.prefix }
  const limits: QueueLimit[] = [{ name: 'all', algorithm: 'token-bucket', rate: '1/h', burst: 10 }, shared]
  const [queue, other] = [shop.queue({ limits }), shop.queue({ limits })]
  await queue.addBulk(of('large', 1))
  const { worker: first, completed } = worker(queue, () => [left(1), left(1, { limit: 'all' })])
  await completed.reach(1)
  await expect.poll(async () => (await other.getLimit('rpm', 'large')).remaining).toBe(1)
  expect((await other.getLimit('rpm', 'small')).remaining).toBe(10)
  await first.close()
  // One more than is left.
  await queue.addBulk(of('small', 2))
  const { completed: more } = worker(queue, () => undefined)
  await more.reach(1)
  expect(await queue.getPrioritizedCount()).toBe(1)
})

test('a pause of a shared limit holds the key in every queue that shares it', async () => {
  const shared: QueueLimit = { ...RPM, shared: true, prefix: redis.prefix, name: 'rpm' }
  const shape = { limits: [{ ...shared, name: 'both' }] }
  const [queue, other] = [shop.queue(shape), shop.queue(shape)]
  await queue.addBulk(of('large', 1))
  const held = { ...pause(HOUR_MS), scope: { limit: 'both' } } as Feedback
  const { changes } = worker(queue, refuses('large', held))
  await changes.reach(1)
  await other.addBulk([...of('large', 1), ...of('small', 2)])
  const { completed } = worker(other, () => undefined)
  await completed.reach(2)
  expect(completed.all.every(({ name }) => name.startsWith('small'))).toBe(true)
  expect((await other.getLimit('both', 'large')).retryAfterMs).toBeGreaterThan(HOUR_MS - 60_000)
})

test('a slower rate holds the key until its time, below what setLimit says, and clearLimit lifts it', async () => {
  const queue = shop.queue({ limits: [RPM] })
  await queue.setLimit('rpm', 'large', { rate: '50/s' }, WHO)
  await queue.addBulk(of('large', 1))
  const slow = (limit: number, ttlMs: number) => about({ kind: 'slow', rate: { limit, period: 1000 }, ttlMs })
  const found = [slow(5, HOUR_MS), slow(2, 60_000), slow(9, 2 * HOUR_MS)]
  const { worker: made, changes } = worker(queue, refuses('large', ...found))
  await changes.reach(3)
  await made.close()
  expect((await queue.getLimit('rpm', 'large')).inForce).toMatchObject({ rate: '2/s' })
  expect((await queue.getLimit('rpm', 'small')).inForce).toMatchObject({ rate: '100/s' })
  await queue.clearLimit('rpm', 'large', { fields: ['slowed'], ...WHO })
  expect((await queue.getLimit('rpm', 'large')).inForce).toMatchObject({ rate: '50/s' })
})

const HOSTS: QueueLimit = { name: 'perHost', by: 'host', rate: '100/s' }
const toHost = (host: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({ name: `${host}${i}`, data: {}, opts: { keys: { host } } }))

test('with feedbackScope by a key, what a profile finds about the queue is about that key: two workers, adapting', async () => {
  const queue = shop.queue({ groups: { rate: '50/s' }, limits: [HOSTS] })
  await queue.addBulk([...toHost('a', 30), ...toHost('b', 10)])
  const found = { kind: 'pause', forMs: 200, hard: true, ...said } as const
  let refused = false
  const answer = (name: string) => {
    if (!name.startsWith('a') || refused) return undefined
    refused = true
    return [found]
  }
  const options = { feedbackScope: { by: 'host' }, adapt: true } as const
  const workers = [worker(queue, answer, options), worker(queue, answer, options)]
  await expect.poll(() => workers.flatMap(({ completed }) => completed.all).length, { timeout: 10_000 }).toBe(40)
  const changes = workers.flatMap((one) => one.changes.all)
  expect(changes.map(({ kind, scope }) => [kind, scope])).toEqual([
    ['pause', { limit: 'perHost', keys: { host: 'a' } }],
    ['slow', { limit: 'perHost', keys: { host: 'a' } }],
  ])
  const { inForce, overrides } = await queue.getLimit('perHost', 'a')
  expect([inForce.rate, overrides.paced!.value]).toEqual(['70/s', '70/s'])
  expect((await queue.getLimit('perHost', 'b')).overrides).toEqual({})
})

test('feedbackScope by a key needs a limit by it that can be slowed', async () => {
  const queue = shop.queue({ limits: [RPM] })
  const bad: QueueLimit[] = [{ ...HOSTS, shared: true }, { ...HOSTS, algorithm: 'fixed-window' }, RPM]
  for (const limit of bad) {
    const options = { feedbackScope: { by: 'host' }, shape: { limits: [limit] } } as const
    expect(() => worker(queue, () => undefined, options)).toThrow(InvalidInputError)
    expect(() => worker(queue, () => undefined, options)).toThrow(
      'feedbackScope {"by":"host"} needs a limit of the shape such as { name, by: "host", rate, burst }',
    )
  }
  for (const wrong of [{ by: [] }, { by: 'a b' }, { key: 'host' }, 'host', null]) {
    const options = { feedbackScope: wrong }
    expect(() => worker(queue, () => undefined, options)).toThrow(
      "feedbackScope must be 'queue', 'group', { by: 'a key' } or { pool: 'a limit' }",
    )
  }
  // Where only the queue has the shape, the worker says so, and its job waits alone.
  await queue.addBulk([...toHost('a', 1), ...of('small', 1)])
  const found = { kind: 'pause', forMs: HOUR_MS, hard: true, ...said } as const
  const { worker: made, completed } = worker(queue, refuses('a', found), { feedbackScope: { by: 'host' } })
  const errors = eventsOf<Error>('error', made)
  await Promise.all([completed.reach(1), errors.reach(1)])
  await expect.poll(() => queue.getDelayedCount()).toBe(1)
  expect(errors.all.map(({ message }) => message)).toEqual([expect.stringContaining('it has rpm')])
})

/** An API of two models, with OpenAI's headers. Others have used up one of them. */
async function fakeApi() {
  const calls: string[] = []
  let usedUp = false
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const model = request.url!.slice(1)
    calls.push(model)
    const refused = usedUp && model === 'gpt-large'
    const gate = (name: string, remaining: number) => ({
      [`x-ratelimit-limit-${name}`]: '100',
      [`x-ratelimit-remaining-${name}`]: String(remaining),
      [`x-ratelimit-reset-${name}`]: '1h0m0s',
    })
    const [requests, tokens] = [model === 'gpt-large' ? 50 : 90, model === 'gpt-large' ? 5 : 9000]
    const headers = {
      'content-type': 'application/json',
      ...gate('requests', requests),
      ...gate('tokens', refused ? 0 : tokens),
    }
    if (refused)
      response.writeHead(429, { ...headers, 'retry-after': '3600' }).end('{"error":{"code":"rate_limit_exceeded"}}')
    else response.writeHead(200, headers).end('{"usage":{"total_tokens":7}}')
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  return { url, calls, useUp: () => (usedUp = true) }
}

test('answers of a language model steer the limits of that model: one that is used up holds no other', async () => {
  const api = await fakeApi()
  const tpm: QueueLimit = {
    name: 'tpm',
    by: 'model',
    unit: 'tokens',
    algorithm: 'token-bucket',
    rate: '1/h',
    burst: 1000,
  }
  const queue = shop.queue({ limits: [RPM, tpm] }) as ShapedQueue
  const call = async ({ opts }: { opts: { keys: { model: string } } }) => {
    const response = await fetch(`${api.url}${opts.keys.model}`)
    const data = await response.json()
    if (!response.ok) throw Object.assign(new Error('refused'), { response, data })
    return { status: response.status, headers: Object.fromEntries(response.headers), data }
  }
  const feedback = extendProfile(profiles.openai, { quota: { requests: 'rpm', tokens: 'tpm' } })
  const made = [1, 2].map(() => shop.worker(queue, call as never, { feedback, concurrency: 1 }))
  const [completed, changes] = [
    made.map((one) => eventsOf('completed', one)),
    made.map((one) => eventsOf<FeedbackChange>('feedback', one)),
  ]
  const done = () => completed.flatMap(({ all }) => all).length
  const jobs = (model: string, count: number) => of(model, count, { costs: { tokens: 1 } })
  await queue.addBulk([...jobs('gpt-large', 1), ...jobs('gpt-small', 1)])
  await expect.poll(async () => (await queue.getLimit('tpm', 'gpt-large')).remaining).toBe(5)
  expect((await queue.getLimit('tpm', 'gpt-small')).remaining).toBe(999)
  api.useUp()
  await queue.addBulk([...jobs('gpt-large', 10), ...jobs('gpt-small', 30)])
  await expect.poll(done, { timeout: 10_000 }).toBe(32)
  const { overrides } = await queue.getLimit('tpm', 'gpt-large')
  expect(overrides.limited).toMatchObject({ value: true, reason: '429 Retry-After 3600 s' })
  expect((await queue.getLimit('rpm', 'gpt-large')).overrides).toEqual({})
  expect((await queue.meter()).pausedUntil).toBeUndefined()
  const found = changes.flatMap(({ all }) => all)
  expect(found[0]).toMatchObject({ kind: 'pause', scope: { limit: 'tpm', keys: { model: 'gpt-large' } } })
  // No more than both workers had begun, or held, at that time.
  expect(api.calls.filter((model) => model === 'gpt-large').length).toBeLessThanOrEqual(5)
  expect(await queue.getJobCountByTypes('prioritized', 'wait', 'delayed')).toBe(10)
})

test('a rate that follows the clock is slowed, too, and counts down from what an answer says is left', async () => {
  const schedule = [{ rate: '100/s' }]
  // A job that comes late would go back, and its unit is lost soon after a change.
  const queue = shop.queue({ limits: [{ ...RPM, rate: { schedule } }], maxLatenessMs: 60_000 })
  await queue.addBulk(of('large', 1))
  const slow = about({ kind: 'slow', rate: { limit: 1, period: HOUR_MS }, ttlMs: HOUR_MS })
  const { worker: made, changes } = worker(queue, refuses('large', slow))
  await changes.reach(1)
  await made.close()
  const { completed } = worker(queue, () => [left(4)])
  // The burst is full but for the first call; then four are left.
  await completed.reach(1)
  await expect.poll(async () => (await queue.getLimit('rpm', 'large')).remaining).toBe(4)
  await queue.addBulk([...of('large', 9), ...of('small', 1)])
  await completed.reach(6)
  expect(await queue.getPrioritizedCount()).toBe(5)
  expect((await queue.getLimit('rpm', 'large')).retryAfterMs).toBeGreaterThan(60_000)
})
