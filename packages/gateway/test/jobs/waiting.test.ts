import { expect, onTestFinished, test } from 'vitest'
import { startProxy } from '../../../../test/support/proxy.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { RunningTime } from '../../../../test/support/running-time.ts'
import { placeIn, post, queueOf, startGateway, told, workerOf } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const RULE = { schema: true, results: true, maxWaitMs: 20_000 } as const

test('the answer waits for the result', async () => {
  const { url } = await startGateway(place, { wait: RULE })
  workerOf(place, 'wait', async ({ data }) => ({ twice: data * 2 }))
  for (let i = 0; i < 5; i++) {
    const response = await post(`${url}/queues/wait/jobs`, { data: i }, { prefer: 'respond-async, wait=10' })
    expect(response.headers.get('preference-applied')).toBe('wait=10')
    expect(await told(response)).toMatchObject({ status: 200, state: 'completed', result: { twice: i * 2 } })
  }
})

test('a job that is not kept has its result nevertheless, and one that fails its reason', async () => {
  const rule = { ...RULE, jobOptions: { removeOnComplete: true, removeOnFail: true } }
  const { url } = await startGateway(place, { fleeting: rule })
  workerOf(place, 'fleeting', async ({ data }) => {
    if (data === 'bad') throw new Error('no such address')
    return data
  })
  const jobs = `${url}/queues/fleeting/jobs`
  const headers = { prefer: 'wait=10' }
  const good = await told(post(jobs, { data: 'good' }, headers))
  expect(good).toMatchObject({ status: 200, state: 'completed', result: 'good' })
  const bad = await told(post(jobs, { data: 'bad' }, headers))
  expect(bad).toMatchObject({ status: 200, state: 'failed', failedReason: 'no such address' })
})

test('asked again with its key after it ended: the result, once more', async () => {
  const { url } = await startGateway(place, { again: RULE })
  const worker = workerOf(place, 'again', async () => 'done')
  const completed = new Promise((resolve) => worker.once('completed', resolve))
  const headers = { 'idempotency-key': 'k' }
  await post(`${url}/queues/again/jobs`, { data: 1 }, headers)
  await completed
  const running = new RunningTime()
  const again = await post(`${url}/queues/again/jobs`, { data: 1 }, { ...headers, prefer: 'wait=10' })
  expect(running.ms).toBeLessThan(5000)
  expect(again.headers.get('idempotency-replayed')).toBe('true')
  expect(await told(again)).toMatchObject({ status: 200, result: 'done' })
})

test('a result that takes longer than the rule allows: 202', async () => {
  const { url } = await startGateway(place, { slow: { ...RULE, maxWaitMs: 1000 } })
  const startedMs = performance.now()
  const response = await post(`${url}/queues/slow/jobs`, { data: 1 }, { prefer: 'wait=100' })
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(1000)
  expect(response.headers.get('preference-applied')).toBeNull()
  expect(await told(response)).toMatchObject({ status: 202, state: 'waiting' })
})

test.each([
  ['no rule for it', { schema: true }, 'wait=10', { data: 1 }],
  ['no time', RULE, 'wait=0', { data: 1 }],
  ['another wish', RULE, 'return=minimal', { data: 1 }],
  ['an array', RULE, 'wait=10', [{ data: 1 }]],
] as const)('%s: nobody waits', async (_what, rule, prefer, body) => {
  const { url } = await startGateway(place, { none: rule })
  expect(await told(post(`${url}/queues/none/jobs`, body, { prefer }))).toMatchObject({ status: 202 })
})

test('closing answers whoever waits with 202, and whoever comes with 503', async () => {
  const { url, gateway } = await startGateway(place, { closing: RULE })
  const waiting = post(`${url}/queues/closing/jobs`, { data: 1 }, { prefer: 'wait=20' })
  const queue = queueOf(place, 'closing')
  await expect.poll(() => queue.getWaitingCount()).toBe(1)
  const running = new RunningTime()
  await gateway.close()
  expect(await told(waiting)).toMatchObject({ status: 202, state: 'waiting' })
  expect(running.ms).toBeLessThan(5000)
  const late = await post(`${url}/queues/closing/jobs`, { data: 2 })
  expect(late.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
  expect(await told(late)).toMatchObject({ status: 503 })
})

test('a caller who goes is not waited with, and his job stays', async () => {
  const { gateway } = await startGateway(place, { left: RULE })
  const gone = new AbortController()
  const fields: Readonly<Record<string, string>> = { 'content-type': 'application/json', prefer: 'wait=20' }
  const running = new RunningTime()
  const entering = gateway.enter({
    method: 'POST',
    url: '/queues/left/jobs',
    header: (name) => fields[name],
    remoteAddress: undefined,
    body: async () => Buffer.from('{"data":1}'),
    signal: gone.signal,
    raw: undefined,
  })
  const queue = queueOf(place, 'left')
  await expect.poll(() => queue.getWaitingCount()).toBe(1)
  gone.abort()
  expect(await entering).toMatchObject({ response: { status: 202 } })
  expect(running.ms).toBeLessThan(10_000)
  expect(await queue.getWaitingCount()).toBe(1)
})

test('closing does not wait for a connection that it began to open when Redis went away', async () => {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const { host, port } = proxy
  const behind = { ...place, connection: { ...place.connection, host, port } }
  const { url, gateway } = await startGateway(behind, { away: RULE })
  expect((await post(`${url}/queues/away/jobs`, { data: 'scripts are known' })).status).toBe(202)
  // Long enough to see the moment between the connection and its first answer.
  proxy.latency(400)
  const connections = proxy.connections
  const waiting = post(`${url}/queues/away/jobs`, { data: 1 }, { prefer: 'wait=20' })
  await expect.poll(() => proxy.connections).toBeGreaterThan(connections)
  await proxy.refuse()
  const running = new RunningTime()
  await gateway.close()
  expect(running.ms).toBeLessThan(5000)
  expect(await told(waiting)).toMatchObject({ status: 202 })
})
