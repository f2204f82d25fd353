import { expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { MAIL, placeIn, post, queueOf, startGateway, told, workerOf } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const ID = /^j_[\w-]{27}(-\d+)?$/

test('a job comes in, is found, runs, and gives its result', async () => {
  const shape = { rate: '10/s', capacity: 100 }
  const { url } = await startGateway(place, { mails: { shape, schema: MAIL, results: true } })
  const jobs = `${url}/queues/mails/jobs`
  const accepted = await post(jobs, { data: { to: 'a@example.com' } })
  expect(accepted.status).toBe(202)
  const { id, state, position, startsAt } = (await accepted.json()) as Record<string, string>
  expect({ state, position }).toEqual({ state: 'waiting', position: 0 })
  expect(id).toMatch(ID)
  expect(accepted.headers.get('location')).toBe(`/queues/mails/jobs/${id}`)
  expect(accepted.headers.get('cache-control')).toBe('no-store')
  expect(Math.abs(Date.parse(startsAt as string) - Date.now())).toBeLessThan(5000)
  const waiting = await fetch(`${jobs}/${id}`)
  expect(waiting.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
  expect(await told(waiting)).toMatchObject({ status: 200, id, state: 'waiting', position: 0 })
  const finished = new Promise((resolve) =>
    workerOf(place, 'mails', async ({ name, data }) => ({ name, sent: data.to })).once('completed', resolve),
  )
  await finished
  const done = await fetch(`${jobs}/${id}`)
  expect(done.headers.get('retry-after')).toBeNull()
  expect(await told(done)).toEqual({
    status: 200,
    id,
    state: 'completed',
    result: { name: 'job', sent: 'a@example.com' },
  })
})

test('an array comes in whole or not at all', async () => {
  const { url } = await startGateway(place, { many: { shape: { capacity: 3 }, schema: MAIL, maxJobs: 4 } })
  const jobs = `${url}/queues/many/jobs`
  const mails = (count: number) => Array.from({ length: count }, (_, i) => ({ data: { to: `m${i}@example.com` } }))
  const accepted = await post(jobs, mails(2))
  expect(accepted.headers.get('location')).toBeNull()
  const { status, jobs: both } = await told(accepted)
  expect(status).toBe(202)
  expect(both).toEqual([
    { id: expect.stringMatching(ID), state: 'waiting' },
    { id: expect.stringMatching(ID), state: 'waiting' },
  ])
  const queue = queueOf(place, 'many')
  expect(await told(post(jobs, mails(2)))).toMatchObject({ status: 429 })
  expect(await told(post(jobs, [...mails(1), { data: { to: 5 } }]))).toMatchObject({ status: 422 })
  expect(await told(post(jobs, mails(4)))).toMatchObject({ status: 413 })
  expect(await told(post(jobs, mails(5)))).toMatchObject({ status: 413, limit: 4 })
  expect(await told(post(jobs, []))).toMatchObject({ status: 422 })
  expect((await queue.getWaiting()).map(({ data }) => data)).toHaveLength(2)
  expect(await told(post(jobs, mails(1)))).toMatchObject({ status: 202 })
})

test('full: 429, with the words of it, and two policies of different names', async () => {
  const shape = { rate: '30/min', capacity: 2 }
  const { url } = await startGateway(place, { full: { shape, schema: true } })
  const jobs = `${url}/queues/full/jobs`
  const first = await post(jobs, { data: 1 })
  expect(first.headers.get('ratelimit-policy')).toBe('"full-admission";q=2, "full-egress";q=30;w=60')
  expect(first.headers.get('ratelimit')).toBe('"full-admission";r=1')
  expect((await post(jobs, { data: 2 })).headers.get('ratelimit')).toBe('"full-admission";r=0')
  const refused = await post(jobs, { data: 3 })
  expect(refused.status).toBe(429)
  expect(refused.headers.get('content-type')).toBe('application/problem+json')
  expect(refused.headers.get('cache-control')).toBe('no-store')
  const problem = (await refused.json()) as Record<string, unknown>
  expect(problem).toMatchObject({
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    status: 429,
    'violated-policies': ['full-admission'],
    limit: 2,
    remaining: 0,
    instance: '/queues/full/jobs',
    retry_after: Number(refused.headers.get('retry-after')),
  })
  expect((problem.retry_after as number) * 1000).toBeGreaterThanOrEqual(problem.retryAfterMs as number)
  expect(refused.headers.get('ratelimit')).toMatch(/^"full-admission";r=0;t=\d+$/)
})

test('what a rule allows of a job reaches it, and nothing else does', async () => {
  const allow = ['delay', 'priority', 'cost', 'mustStartBefore', 'keys'] as const
  const shape = { rate: '1/s', burst: 5 }
  const rule = { schema: true, jobName: 'welcome', jobOptions: { attempts: 3 }, shape }
  const { url } = await startGateway(place, { free: { ...rule, allow }, strict: rule })
  const keys = { model: 'large', tier: 3 }
  const opts = { delay: 60_000, priority: 3, cost: 2, mustStartBefore: '2036-01-01T00:00:00Z', keys }
  const { id, ...rest } = await told(post(`${url}/queues/free/jobs`, { data: null, opts }))
  expect(rest).toEqual({ status: 202, state: 'delayed' })
  const job = await queueOf(place, 'free').getJob(id as string)
  const stored = {
    ...opts,
    mustStartBefore: Date.parse(opts.mustStartBefore),
    keys: { ...keys, tier: '3' },
    attempts: 3,
  }
  expect(job).toMatchObject({ name: 'welcome', data: null, opts: stored })
  for (const name of allow) {
    const answer = await told(post(`${url}/queues/strict/jobs`, { data: 1, opts: { [name]: opts[name] } }))
    expect(answer, name).toMatchObject({ status: 422 })
  }
  const wrong: unknown[] = [{ jobId: 'active' }, { attempts: 9 }, { delay: -1 }, { priority: 2_097_153 }, { cost: 0 }]
  for (const one of [{ 'a:b': 'x' }, { group: 'x' }, { model: '' }, { model: true }, { model: 'é'.repeat(129) }]) {
    wrong.push({ keys: one })
  }
  for (const one of [...wrong, { mustStartBefore: 'soon' }, { mustStartBefore: '1999-01-01T00:00:00Z' }, { cost: 6 }]) {
    const answer = await told(post(`${url}/queues/free/jobs`, { data: 1, opts: one }))
    expect(answer, JSON.stringify(one)).toMatchObject({ status: 422 })
  }
})

test('a position in the middle of the queue, and of one with a priority', async () => {
  const rule = { schema: true, shape: { rate: '1/s' }, allow: ['priority'] } as const
  const { url } = await startGateway(place, { line: rule })
  const jobs = `${url}/queues/line/jobs`
  const ids: unknown[] = []
  for (let i = 0; i < 4; i++) ids.push((await told(post(jobs, { data: i, opts: i === 3 ? { priority: 5 } : {} }))).id)
  const fromMs = Date.now()
  const found = await Promise.all(ids.map((id) => told(fetch(`${jobs}/${id}`))))
  const toMs = Date.now()
  expect(found.map(({ state, position }) => [state, position])).toEqual([
    ...[
      ['waiting', 0],
      ['waiting', 1],
      ['waiting', 2],
    ],
    ['prioritized', 3],
  ])
  // Each counted from when it was looked at.
  for (const [i, { startsAt }] of found.entries()) {
    const lookedAtMs = Date.parse(startsAt as string) - 1000 * i
    expect(lookedAtMs).toBeGreaterThanOrEqual(fromMs)
    expect(lookedAtMs).toBeLessThanOrEqual(toMs)
  }
})

test('what waits is removed, what runs is aborted, and what has ended stays', async () => {
  const { url } = await startGateway(place, { gone: { schema: true } })
  const jobs = `${url}/queues/gone/jobs`
  const remove = (id: unknown) => fetch(`${jobs}/${id}`, { method: 'DELETE' })
  const { id } = await told(post(jobs, { data: 1 }))
  expect((await remove(id)).status).toBe(204)
  expect(await told(remove(id))).toMatchObject({ status: 404 })
  expect(await told(fetch(`${jobs}/${id}`))).toMatchObject({ status: 404 })
  const queue = queueOf(place, 'gone')
  expect(await queue.getJobCounts('waiting')).toEqual({ waiting: 0 })
  const seen: unknown[] = []
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const worker = workerOf(place, 'gone', async (_job, _token, signal) => {
    const aborted = new Promise((resolve) => signal?.addEventListener('abort', () => resolve(signal.reason)))
    seen.push(await aborted)
    await released
  })
  const active = new Promise((resolve) => worker.once('active', resolve))
  const running = await told(post(jobs, { data: 2 }))
  await active
  expect(await told(remove(running.id))).toEqual({ status: 202, id: running.id, state: 'active' })
  const completed = new Promise((resolve) => worker.once('completed', resolve))
  release()
  await completed
  expect(seen).toEqual(['cancelled: deleted by its caller'])
  expect(await told(remove(running.id))).toMatchObject({ status: 409, detail: 'The job has ended.' })
  expect(await told(fetch(`${jobs}/${running.id}`))).toEqual({ status: 200, id: running.id, state: 'completed' })
})

test('the meter, without what is nobody’s business', async () => {
  const { url } = await startGateway(place, { metered: { schema: true, shape: { rate: '50/s', capacity: 10 } } })
  await post(`${url}/queues/metered/jobs`, { data: 1 })
  const meter = await told(fetch(`${url}/queues/metered/meter`))
  expect(meter).toMatchObject({ status: 200, depth: 1, capacity: 10, waiting: 1, rate: '50/s', cause: 'declared' })
  expect(Object.keys(meter)).not.toContain('shape')
})
