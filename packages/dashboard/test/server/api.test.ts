import { expect, onTestFinished, test, vi } from 'vitest'
import { startProxy } from '../../../../test/support/proxy.ts'
import { connectionOptions, useRedis } from '../../../../test/support/redis.ts'
import { failedJob, serve, shapedQueue } from './support.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }
const XSS = '<img src=x onerror=alert(1)>'

async function json<T = Record<string, unknown>>(answer: Promise<Response>): Promise<T> {
  const { status, headers } = await answer
  expect([status, headers.get('content-type'), headers.get('cache-control')]).toEqual([
    200,
    'application/json; charset=utf-8',
    'no-store',
  ])
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  return (await answer).json() as Promise<T>
}

test('the fleet: every queue, and what the page may do', async () => {
  const queue = await shapedQueue(redis, 'fleet')
  await queue.add('one', {})
  const { get } = await serve({ ...options, title: 'Mails', showData: true })
  const fleet = await json<{ at: string; queues: { name: string }[] }>(get('api/fleet'))
  expect(fleet).toMatchObject({ title: 'Mails', allowActions: false, showData: true, redis: { role: 'master' } })
  expect(Math.abs(Date.parse(fleet.at) - Date.now())).toBeLessThan(60_000)
  const found = fleet.queues.find(({ name }) => name === 'fleet')
  expect(found).toMatchObject({ waiting: 1, depth: 1, capacity: 100, rate: '50/s', workers: [] })
})

test('one queue: its state and its last changes', async () => {
  const queue = await shapedQueue(redis, 'one')
  await queue.setShape({ rate: '5/s' }, { by: 'ada', reason: 'slower' })
  const { get } = await serve(options)
  const { status, history } = await json<{ status: object; history: object[] }>(get('api/queues/one'))
  expect(status).toMatchObject({ name: 'one', rate: '5/s', cause: 'override' })
  expect(history[0]).toMatchObject({ kind: 'override', by: 'ada', reason: 'slower' })
})

test.each(['.', '..', '~', '~..', '%2e%2e'])(
  'what is named %j is found by the URL that the page asks',
  async (name) => {
    const queue = await shapedQueue(redis, name, { rate: '1/h', groups: {} })
    await queue.add('job', {}, { group: { id: name } })
    await queue.add('job', {}, { jobId: name })
    const { url } = await serve(options)
    vi.stubGlobal('document', { getElementById: () => null })
    vi.stubGlobal('location', { href: url })
    onTestFinished(() => void vi.unstubAllGlobals())
    vi.resetModules()
    const api = await import(new URL('../../web/base/api.js', import.meta.url).href)
    expect(await api.getQueue(name)).toMatchObject({ status: { name } })
    expect(await api.getGroup(name, name)).toMatchObject({ id: name })
    expect(await api.getJob(name, name)).toMatchObject({ id: name })
    expect(await api.getExplanation(name, name)).toMatchObject({ id: name })
  },
)

test('series, oldest first, since a time', async () => {
  await shapedQueue(redis, 'series')
  const client = redis.client()
  const nowMs = Date.now()
  const point = (atMs: number) =>
    JSON.stringify([atMs, 1, 1, 0, 0, 0, 0, 0, -1, 50, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
  await client.rpush(`${redis.prefix}:series:meta:series:2`, point(nowMs), point(nowMs - 2000), point(nowMs - 60_000))
  const { get } = await serve(options)
  const all = await json<{ samples: { at: string }[] }>(get('api/queues/series/series'))
  expect(all.samples.map(({ at }) => Date.parse(at))).toEqual([nowMs - 60_000, nowMs - 2000, nowMs])
  const since = new Date(nowMs - 30_000).toISOString()
  const some = await json<{ samples: { at: string }[] }>(get(`api/queues/series/series?since=${since}`))
  expect(some.samples.map(({ at }) => Date.parse(at))).toEqual([nowMs - 2000, nowMs])
})

test('why jobs failed, and how many', async () => {
  await shapedQueue(redis, 'reasons')
  const client = redis.client()
  for (const [i, failedReason] of ['no user 1', 'no user 2', 'gone'].entries()) {
    await client.hset(`${redis.prefix}:reasons:j${i}`, { failedReason })
    await client.zadd(`${redis.prefix}:reasons:failed`, i, `j${i}`)
  }
  const { get } = await serve(options)
  expect(await json(get('api/queues/reasons/failed-reasons'))).toEqual({
    searched: 3,
    reasons: [
      { reason: 'no user 2', count: 2, contains: 'no user' },
      { reason: 'gone', count: 1, contains: 'gone' },
    ],
  })
})

test('groups, and one of them; a queue without groups has none', async () => {
  const queue = await shapedQueue(redis, 'grouped', { rate: '50/s', groups: { rate: '1/s' } })
  await shapedQueue(redis, 'ungrouped')
  for (const id of ['a/b', 'a/b', 'c']) await queue.add('job', { secret: 'canary' }, { group: { id } })
  const { get } = await serve({ ...options, showData: true })
  const groups = await json<{ largest: object[] }>(get('api/queues/grouped/groups'))
  expect(groups).toMatchObject({ waiting: 3, counts: { waiting: 2, limited: 0, maxed: 0, paused: 0 }, held: [] })
  expect(groups.largest[0]).toMatchObject({ id: 'a/b', waiting: 2, status: 'waiting', inForce: { rate: '1/s' } })
  const one = await json(get(`api/queues/grouped/groups/${encodeURIComponent('a/b')}`))
  expect(one).toMatchObject({ id: 'a/b', waiting: 2, jobs: [{ name: 'job' }, { name: 'job' }] })
  expect(await json(get('api/queues/grouped/groups/unknown'))).toMatchObject({ status: 'idle', waiting: 0, jobs: [] })
  expect((await get('api/queues/ungrouped/groups')).status).toBe(404)
  expect((await get('api/queues/ungrouped/groups/a')).status).toBe(404)
})

test('jobs of a state, page by page, without what they carry', async () => {
  const queue = await shapedQueue(redis, 'jobs')
  for (let i = 1; i <= 5; i++) await queue.add(i === 1 ? XSS : `job ${i}`, { secret: 'canary' }, { jobId: `j${i}` })
  const { get } = await serve(options)
  const first = await json<{ jobs: object[]; total: number }>(get('api/queues/jobs/jobs?state=waiting&start=0&count=2'))
  expect(first).toMatchObject({ jobs: [{ id: 'j1', name: XSS, attemptsStarted: 0 }, { id: 'j2' }], total: 5 })
  expect(JSON.stringify(first)).not.toContain('canary')
  expect(await json(get('api/queues/jobs/jobs?start=4&count=2'))).toMatchObject({ jobs: [{ id: 'j5' }], total: 5 })
  expect(await json(get('api/queues/jobs/jobs?state=failed'))).toEqual({ jobs: [], total: 0 })
})

test('what jobs carry is shown where that is wanted', async () => {
  const queue = await shapedQueue(redis, 'data')
  await queue.add('job', { to: 'ada' })
  const { get } = await serve({ ...options, showData: true })
  expect(await json(get('api/queues/data/jobs'))).toMatchObject({ jobs: [{ data: { to: 'ada' } }], total: 1 })
})

test('one job: what became of it, and what it carries where that is wanted', async () => {
  const queue = await shapedQueue(redis, 'one-job')
  const id = await failedJob(redis, queue)
  const { get } = await serve(options)
  const job = await json(get(`api/queues/one-job/jobs/${id}`))
  expect(job).toMatchObject({
    id,
    name: 'job',
    state: 'failed',
    attemptsMade: 1,
    failedReason: 'no route',
    progress: 40,
  })
  expect(job).toMatchObject({ logs: ['tried'], stacktrace: [expect.stringMatching(/^Error: no route\n +at /)] })
  expect(JSON.stringify(job)).not.toContain('canary')
  const open = await serve({ ...options, showData: true })
  expect(await json(open.get(`api/queues/one-job/jobs/${id}`))).toMatchObject({ data: { secret: 'canary' } })
  for (const none of ['nobody', 'meta', 'wait', 'failed']) {
    expect((await get(`api/queues/one-job/jobs/${none}`)).status).toBe(404)
  }
})

test('of a long log the last lines are told', async () => {
  const queue = await shapedQueue(redis, 'long-log')
  const job = await queue.add('job', {})
  await redis
    .client()
    .rpush(`${redis.prefix}:long-log:${job.id}:logs`, ...Array.from({ length: 150 }, (_, i) => `${i}`))
  const { get } = await serve(options)
  const { logs } = await json<{ logs: string[] }>(get(`api/queues/long-log/jobs/${job.id}`))
  expect([logs.length, logs[0], logs.at(-1)]).toEqual([100, '50', '149'])
})

test('jobs are counted by their states', async () => {
  const queue = await shapedQueue(redis, 'states')
  await queue.addBulk([0, 0, 5].map((priority) => ({ name: 'job', data: {}, opts: { priority } })))
  const { get } = await serve(options)
  expect(await json(get('api/queues/states'))).toMatchObject({ status: { waiting: 3, prioritized: 1, failedKept: 0 } })
  expect(await json(get('api/queues/states/jobs?state=prioritized'))).toMatchObject({ total: 1 })
  expect(await json(get('api/queues/states/jobs?state=waiting'))).toMatchObject({ total: 2 })
})

test('failed jobs are found by their reason, page by page', async () => {
  const queue = await shapedQueue(redis, 'reasons')
  const first = await failedJob(redis, queue)
  const second = await failedJob(redis, queue)
  const { get } = await serve(options)
  const found = (query: string) => json<{ jobs: { id: string }[] }>(get(`api/queues/reasons/jobs?${query}`))
  expect(await found('failedReason=route')).toMatchObject({
    ...{ jobs: [{ id: second, failedReason: 'no route' }, { id: first }], total: 2, isTotalAtLeast: false },
  })
  expect(await found('failedReason=no+route&start=1&count=1')).toMatchObject({ jobs: [{ id: first }], total: 2 })
  expect(await found('failedReason=No')).toEqual({ jobs: [], total: 0, isTotalAtLeast: false })
})

test('dead letters: those of the queue alone, without what they carry', async () => {
  await shapedQueue(redis, 'mails')
  const dead = await shapedQueue(redis, 'dead', {})
  const client = redis.client()
  await client.srem(`${redis.prefix}:shaped-queues`, 'dead')
  const letter = (queueName: string, id: string) => ({
    ...{ prefix: redis.prefix, queueName, id, name: XSS, data: { secret: 'canary' }, opts: {}, failedReason: 'no' },
    ...{ stacktrace: ['canary'], attemptsMade: 3, attemptsStarted: 3, stalledCounter: 0, throttled: 0 },
    ...{ timestamp: 1000, processedOn: 2000, finishedOn: 3000, redriven: 1 },
  })
  await dead.add(XSS, letter('mails', '7'), { jobId: 'l7' })
  await dead.add('other', letter('others', '8'))
  await dead.add('no letter', { id: 5 })
  const { get } = await serve(options)
  const found = await json(get('api/queues/mails/dead?from=dead'))
  const row = { letterId: 'l7', id: '7', name: XSS, failedReason: 'no', attemptsMade: 3, redriven: 1 }
  const times = { addedAt: new Date(1000).toISOString(), failedAt: new Date(3000).toISOString() }
  expect(found).toEqual({ letters: [{ ...row, ...times }], total: 3 })
  const open = await serve({ ...options, showData: true })
  const shown = await json(open.get('api/queues/mails/dead?from=dead'))
  expect(shown).toMatchObject({ letters: [{ data: { secret: 'canary' }, stacktrace: ['canary'] }] })
  expect(await json(get('api/queues/mails/dead?from=nothing'))).toEqual({ letters: [], total: 0 })
})

test('why a job has not started', async () => {
  const queue = await shapedQueue(redis, 'explain')
  const { id } = await queue.add(XSS, {})
  const { get } = await serve(options)
  const explained = await json(get(`api/queues/explain/jobs/${id}/explain`))
  expect(explained).toMatchObject({ queue: 'explain', id, name: XSS, state: 'waiting', ahead: 0 })
  expect((await get('api/queues/explain/jobs/nothing/explain')).status).toBe(404)
})

test.each([
  ['api/queues/unknown', 404],
  ['api/queues/unknown/series', 404],
  ['api/queues/unknown/jobs', 404],
  ['api/queues/unknown/dead?from=a', 404],
  ['api/queues/unknown/jobs/1', 404],
  ['api/queues/unknown/jobs/1/explain', 404],
  ['api/events?queue=unknown', 404],
  [`api/queues/${encodeURIComponent(XSS)}`, 404],
  ['api/queues/..%2f..%2ffleet', 404],
  ['api/queues/__proto__', 404],
  ['api/nothing', 404],
  ['api/queues/known/jobs?state=paused', 400],
  ['api/queues/known/jobs?start=-1', 400],
  ['api/queues/known/jobs?count=201', 400],
  ['api/queues/known/jobs?count=1e9', 400],
  ['api/queues/known/series?since=yesterday', 400],
  ['api/queues/known/dead', 400],
  ['api/queues/known/dead?from=a:b', 400],
  ['api/queues/known/dead?from=a&from=b', 400],
])('%s is refused with %i', async (path, status) => {
  await shapedQueue(redis, 'known')
  const { get } = await serve(options)
  const refused = await get(path)
  expect([refused.status, refused.headers.get('content-type')]).toEqual([status, 'application/problem+json'])
  expect(await refused.json()).toMatchObject({ status, type: 'about:blank' })
})

test('names that are markup are plain JSON', async () => {
  await shapedQueue(redis, XSS)
  const { get } = await serve(options)
  const answer = await get(`api/queues/${encodeURIComponent(XSS)}`)
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8'])
  expect(await answer.json()).toMatchObject({ status: { name: XSS } })
})

test('a Redis that is away is told as 503, without where it is', async () => {
  const proxy = await startProxy(redis.url)
  const { host, port } = connectionOptions(proxy.url)
  try {
    const { get } = await serve({ ...options, connection: { ...redis.connection, host, port } })
    expect((await get('api/fleet')).status).toBe(200)
    await proxy.refuse()
    const refused = await get('api/queues/known')
    expect([refused.status, refused.headers.get('retry-after') !== null]).toEqual([503, true])
    expect(await refused.text()).not.toContain(String(port))
    await proxy.resume()
    await expect.poll(async () => (await get('api/fleet')).status).toBe(200)
  } finally {
    await proxy.stop()
  }
})
