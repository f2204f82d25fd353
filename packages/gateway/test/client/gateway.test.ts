import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import {
  createGatewayClient,
  createPoliteFetch,
  GatewayError,
  GatewayRefusedError,
  InvalidGatewayCallError,
} from '../../src/client/index.ts'
import { MAIL, placeIn, queueOf, startGateway, workerOf } from '../jobs/support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
/** Nothing is asked again, and nothing waits. */
const once = { fetch: globalThis.fetch }

/** A server that says what it is told to, and notes what came. */
async function answering(...answers: readonly [status: number, headers: Record<string, string>, body: string][]) {
  const came: IncomingMessage[] = []
  const server = createServer((request, response) => {
    const [status, headers, body] = answers[
      Math.min(came.push(request), answers.length) - 1
    ] as (typeof answers)[number]
    response.writeHead(status, headers).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/`, came }
}

test('a job from its request to its result', async () => {
  const queues = { mails: { schema: MAIL, results: true, maxWaitMs: 10_000, shape: { rate: '50/s', capacity: 10 } } }
  const { url } = await startGateway(place, queues)
  const jobs = createGatewayClient({ url })
  const added = await jobs.enqueue('mails', { to: 'a@example.com' })
  expect(added).toMatchObject({ state: 'waiting', position: 0, replayed: false })
  const waiting = await jobs.job('mails', added.id)
  expect(waiting).toMatchObject({ id: added.id, state: 'waiting', position: 0 })
  expect(waiting?.pollAfterMs).toBeGreaterThanOrEqual(1000)
  expect(await jobs.meter('mails')).toMatchObject({ depth: 1, capacity: 10, rate: '50/s' })
  expect(await jobs.remove('mails', added.id)).toBe(true)
  expect(await jobs.remove('mails', added.id)).toBe(false)
  expect(await jobs.job('mails', added.id)).toBeUndefined()
  workerOf(place, 'mails', async ({ data }) => `sent to ${data.to}`)
  const done = await jobs.enqueue('mails', { to: 'b@example.com' }, { waitMs: 9500 })
  expect(done).toMatchObject({ state: 'completed', result: 'sent to b@example.com' })
  expect(await jobs.job('mails', done.id)).toEqual({
    id: done.id,
    state: 'completed',
    result: 'sent to b@example.com',
  })
})

test('several jobs, once for their key, with what is said of them', async () => {
  const { url } = await startGateway(place, {
    many: { schema: true, allow: ['delay', 'priority', 'mustStartBefore', 'keys'] },
  })
  const jobs = createGatewayClient({ url })
  const mustStartBefore = new Date(Date.now() + 3_600_000)
  const list = [{ data: 1 }, { data: 2, delay: 60_000, mustStartBefore, keys: { model: 7 } }, { data: 3, priority: 2 }]
  const key = { idempotencyKey: 'a "quoted" \\ key' }
  const added = await jobs.enqueueAll('many', list, key)
  expect(added.map(({ state, replayed }) => [state, replayed])).toEqual([
    ['waiting', false],
    ['delayed', false],
    ['prioritized', false],
  ])
  const again = await jobs.enqueueAll('many', list, key)
  expect(again.map(({ id, replayed }) => [id, replayed])).toEqual(added.map(({ id }) => [id, true]))
  const job = await queueOf(place, 'many').getJob(added[1]?.id as string)
  expect(job?.opts).toMatchObject({ delay: 60_000, mustStartBefore: mustStartBefore.getTime(), keys: { model: '7' } })
})

test('refusals and mistakes have types', async () => {
  const { url } = await startGateway(place, { full: { schema: MAIL, shape: { rate: '1/min', capacity: 1 } } })
  const jobs = createGatewayClient({ url, ...once })
  const mail = { to: 'a@example.com' }
  await jobs.enqueue('full', mail, { idempotencyKey: 'k' })
  const full = await jobs.enqueue('full', mail).catch((error: unknown) => error)
  expect(full).toBeInstanceOf(GatewayRefusedError)
  expect(full).toMatchObject({ status: 429, violatedPolicies: ['full-admission'], problem: { limit: 1, remaining: 0 } })
  expect((full as GatewayRefusedError).retryAfterMs).toBeGreaterThan(0)
  const wrong = await jobs.enqueue('full', { to: 1 }).catch((error: unknown) => error)
  expect(wrong).toBeInstanceOf(GatewayError)
  expect(wrong).toMatchObject({ status: 422, problem: { errors: [{ pointer: '/data/to', detail: 'must be string' }] } })
  const other = jobs.enqueue('full', { to: 'b@example.com' }, { idempotencyKey: 'k' })
  await expect(other).rejects.toMatchObject({ name: 'GatewayError', status: 422 })
  const nowhere = { name: 'GatewayError', status: 404 }
  await expect(jobs.enqueue('nowhere', 1)).rejects.toMatchObject(nowhere)
  await expect(jobs.job('nowhere', 'x')).rejects.toMatchObject(nowhere)
  await expect(jobs.remove('nowhere', 'x')).rejects.toMatchObject(nowhere)
})

test('what failed is sent again with the same key; token and path go along', async () => {
  const { url, came } = await answering([500, {}, ''], [429, { 'retry-after-ms': '5' }, ''], [202, {}, '{"id":"j"}'])
  const jobs = createGatewayClient({ url, token: 'secret', fetch: createPoliteFetch({ baseMs: 1 }) })
  expect(await jobs.enqueue('a b', 1)).toEqual({ id: 'j', replayed: false })
  expect(came.map((request) => request.url)).toEqual(Array(3).fill('/v1/queues/a%20b/jobs'))
  const keys = came.map(({ headers }) => headers['idempotency-key'])
  expect(keys[0]).toMatch(/^"[\da-f-]{36}"$/)
  expect(new Set(keys).size).toBe(1)
  expect(came[0]?.headers.authorization).toBe('Bearer secret')
  await jobs.enqueue('a b', 1)
  expect(came[3]?.headers['idempotency-key']).not.toBe(keys[0])
})

test.each([
  ['no problem at all', 503, { 'retry-after': '7' }, '<html>', { retryAfterMs: 7000, violatedPolicies: [] }],
  ['no time', 429, {}, '', { retryAfterMs: 1000 }],
  [
    'a date in the place of seconds',
    429,
    { 'retry-after': 'Sun, 22 Nov 2026 00:00:00 GMT' },
    '[]',
    { retryAfterMs: 1000 },
  ],
  ['the exact time', 429, { 'retry-after': '2' }, '{"retryAfterMs":1234}', { retryAfterMs: 1234 }],
])('a refusal with %s', async (_what, status, headers, body, expected) => {
  const { url } = await answering([status, headers as Record<string, string>, body])
  const jobs = createGatewayClient({ url, ...once })
  await expect(jobs.enqueue('a', 1)).rejects.toMatchObject({ name: 'GatewayRefusedError', status, ...expected })
})

test('a call ends with its signal', async () => {
  const { url } = await answering([503, { 'retry-after': '100' }, ''])
  const stop = new AbortController()
  const call = createGatewayClient({ url }).enqueue('a', 1, { signal: stop.signal })
  stop.abort()
  await expect(call).rejects.toMatchObject({ name: 'AbortError' })
})

test.each([
  () => createGatewayClient({ url: 'jobs.example.com' }),
  () => createGatewayClient({ url: 'http://127.0.0.1:1' }).enqueue('a', 1, { idempotencyKey: '' }),
  () => createGatewayClient({ url: 'http://127.0.0.1:1' }).enqueue('a', 1, { idempotencyKey: 'é' }),
  () => createGatewayClient({ url: 'http://127.0.0.1:1' }).enqueue('a', 1, { idempotencyKey: 'x'.repeat(129) }),
])('what can never work is refused before anything is sent (%#)', async (call) => {
  await expect((async () => call())()).rejects.toBeInstanceOf(InvalidGatewayCallError)
})
