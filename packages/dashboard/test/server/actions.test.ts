import { EventEmitter, once } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer, type ShapedQueue, ShapedWorker } from '../../../../src/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { actionSchema } from '../../src/action.ts'
import { failedJob, SAME_ORIGIN, type Served, serve, shapedQueue, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix, allowActions: true }
const reason = 'incident 4711'

const act = ({ post }: Served, name: string, action: object, headers?: Record<string, string>) =>
  post(`api/queues/${name}/actions`, action, headers)

test('setShape, for a while, and clearShape of fields and of all', async () => {
  const queue = await shapedQueue(redis, 'shape')
  const served = await serve({ ...options, actor: () => 'ada' })
  const set = await act(served, 'shape', {
    action: 'setShape',
    shape: { rate: '5/s', burst: 3 },
    ttlMs: 60_000,
    reason,
  })
  expect([set.status, await set.text()]).toEqual([204, ''])
  const shape = await queue.getShape()
  expect(shape).toMatchObject({ rate: '5/s', burst: 3 })
  expect(shape?.overrides.rate).toMatchObject({ by: 'ada', reason })
  expect((await act(served, 'shape', { action: 'clearShape', fields: ['burst'], reason })).status).toBe(204)
  expect(await queue.getShape()).toMatchObject({ rate: '5/s', burst: 1 })
  expect((await act(served, 'shape', { action: 'clearShape', reason })).status).toBe(204)
  expect(await queue.getShape()).toMatchObject({ rate: '50/s', burst: 1 })
  const { history } = (await (await served.get('api/queues/shape')).json()) as { history: object[] }
  const told = { by: 'ada', reason }
  expect(history.slice(0, 3)).toMatchObject([
    { kind: 'cleared', ...told },
    { kind: 'cleared', ...told },
    { kind: 'override', ...told },
  ])
})

test("a pause with a time is the meter's, one without BullMQ's, and resume lifts both", async () => {
  const queue = await shapedQueue(redis, 'pause')
  const served = await serve(options)
  expect((await act(served, 'pause', { action: 'pause', ttlMs: 60_000, reason })).status).toBe(204)
  const { at, pausedUntil, pauseReason, paused } = await queue.meter()
  expect([paused, pauseReason]).toEqual([false, reason])
  const leftMs = (pausedUntil?.getTime() ?? 0) - at.getTime()
  expect(leftMs).toBeGreaterThan(50_000)
  expect(leftMs).toBeLessThanOrEqual(60_000)
  expect((await act(served, 'pause', { action: 'pause', reason })).status).toBe(204)
  expect(await queue.isPaused()).toBe(true)
  expect((await act(served, 'pause', { action: 'resume', reason })).status).toBe(204)
  expect(await queue.meter()).toMatchObject({ paused: false, pausedUntil: undefined })
})

test('a group is paused, for a while or until it is resumed, and others are not', async () => {
  const queue = await shapedQueue(redis, 'tenants', { rate: '50/s', groups: {} })
  for (const id of ['a/b', 'c']) await queue.add('job', {}, { group: { id } })
  const served = await serve({ ...options, actor: () => 'ada' })
  const pause = { action: 'pauseGroup', group: 'a/b', reason }
  expect((await act(served, 'tenants', { ...pause, ttlMs: 60_000 })).status).toBe(204)
  const { at, status, until, overrides } = await queue.getGroup('a/b')
  expect([status, overrides.paused]).toMatchObject(['paused', { by: 'ada', reason }])
  expect((until?.getTime() ?? 0) - at.getTime()).toBeGreaterThan(50_000)
  expect((await act(served, 'tenants', pause)).status).toBe(204)
  expect(await queue.getGroup('a/b')).toMatchObject({ status: 'paused', until: undefined })
  expect(await queue.getGroupStatus('c')).toBe('waiting')
  expect((await act(served, 'tenants', { action: 'resumeGroup', group: 'a/b', reason })).status).toBe(204)
  expect(await queue.getGroup('a/b')).toMatchObject({ status: 'waiting', overrides: {} })
  const { history } = (await (await served.get('api/queues/tenants')).json()) as { history: object[] }
  const changed = { kind: 'group', by: 'ada', reason, change: { group: 'a/b' } }
  expect(history.slice(0, 3)).toMatchObject([changed, changed, changed])
})

/** What the history tells of single jobs, the last first. */
async function jobsTold(served: Served, name: string): Promise<object[]> {
  const { history } = (await (await served.get(`api/queues/${name}`)).json()) as { history: { kind: string }[] }
  return history.filter(({ kind }) => kind === 'job')
}

test('a failed job is retried, once, and the history tells of it', async () => {
  const queue = await shapedQueue(redis, 'retry')
  const jobId = await failedJob(redis, queue)
  const served = await serve({ ...options, actor: () => 'ada' })
  const retry = { action: 'retryJob', jobId, reason }
  expect((await act(served, 'retry', retry)).status).toBe(204)
  expect(await queue.getJobState(jobId)).toBe('waiting')
  const again = await act(served, 'retry', retry)
  expect([again.status, await again.json()]).toMatchObject([409, { detail: expect.stringContaining('is waiting') }])
  expect(await queue.count()).toBe(1)
  expect(await jobsTold(served, 'retry')).toMatchObject([{ by: 'ada', reason, change: { retried: jobId } }])
})

test('a retry for which the queue has no place is refused with the time to come back, and changes nothing', async () => {
  const queue = await shapedQueue(redis, 'crowded', { rate: '1/min', capacity: 1 })
  const jobId = await failedJob(redis, queue)
  await queue.add('in the way', {})
  const served = await serve(options)
  const retry = { action: 'retryJob', jobId, reason }
  const refused = await act(served, 'crowded', retry)
  expect([refused.status, refused.headers.get('content-type')]).toEqual([429, 'application/problem+json'])
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(30)
  const detail = expect.stringContaining('is full (1 of 1)')
  expect(await refused.json()).toMatchObject({ detail, depth: 1, capacity: 1 })
  expect([await queue.getJobState(jobId), await queue.count()]).toEqual(['failed', 1])
  expect(await jobsTold(served, 'crowded')).toEqual([])
  await queue.setShape({ mode: 'shadow' }, { by: 'ada', reason })
  expect((await act(served, 'crowded', retry)).status).toBe(204)
  expect(await queue.count()).toBe(2)
})

test('a failed job is removed', async () => {
  const queue = await shapedQueue(redis, 'remove')
  const jobId = await failedJob(redis, queue)
  const served = await serve({ ...options, actor: () => 'ada' })
  const remove = { action: 'removeJob', jobId, reason }
  expect((await act(served, 'remove', remove)).status).toBe(204)
  expect(await queue.getJob(jobId)).toBeUndefined()
  expect((await act(served, 'remove', remove)).status).toBe(404)
  expect(await jobsTold(served, 'remove')).toMatchObject([{ by: 'ada', reason, change: { removed: jobId } }])
})

/** So many jobs that have failed, for these reasons in turn. */
async function failedJobs(queue: ShapedQueue, reasons: readonly string[]): Promise<string[]> {
  const { connection, prefix } = redis
  const worker = new ShapedWorker(queue.name, async ({ data }) => Promise.reject(new Error(data)), {
    connection,
    prefix,
  })
  onTestFinished(() => worker.close())
  const ids: string[] = []
  for (const [i, why] of reasons.entries()) {
    ids.push((await queue.add('job', why, { jobId: `job-${i}` })).id as string)
    await expect.poll(() => queue.getFailedCount()).toBe(i + 1)
  }
  await worker.close()
  return ids
}

test('failed jobs with a reason are retried, each as soon as there is a place; others and later ones are not', async () => {
  const queue = await shapedQueue(redis, 'retry-many', { rate: '50/s', capacity: 2 })
  const ids = await failedJobs(queue, ['ECONNREFUSED 1', 'no user', 'ECONNREFUSED 2', 'ECONNREFUSED 3'])
  const served = await serve({ ...options, actor: () => 'ada' })
  const retry = { action: 'retryJobs', failedReason: 'ECONNREFUSED', reason }
  expect((await act(served, 'retry-many', retry)).status).toBe(204)
  await expect.poll(() => queue.count()).toBe(2)
  const again = await act(served, 'retry-many', retry)
  expect([again.status, await again.json()]).toMatchObject([
    409,
    { detail: 'this runs already: failed jobs are retried' },
  ])
  expect((await queue.getFailed()).map(({ id }) => id).toSorted()).toEqual([ids[1], ids[3]])
  const worker = new ShapedWorker('retry-many', async () => {}, { connection: redis.connection, prefix: redis.prefix })
  onTestFinished(() => worker.close())
  await expect.poll(() => queue.getFailedCount()).toBe(1)
  await expect
    .poll(() => jobsTold(served, 'retry-many'))
    .toMatchObject([{ by: 'ada', reason, change: { retried: 3, failedReason: 'ECONNREFUSED' } }])
})

test('failed jobs are removed by their reason, or all', async () => {
  const queue = await shapedQueue(redis, 'remove-many')
  const ids = await failedJobs(queue, ['ECONNREFUSED', 'no user', 'no user'])
  const served = await serve(options)
  const remove = { action: 'removeJobs', reason }
  expect((await act(served, 'remove-many', { ...remove, failedReason: 'no user' })).status).toBe(204)
  await expect.poll(() => queue.getFailedCount()).toBe(1)
  expect(await queue.getJobState(ids[0] as string)).toBe('failed')
  await expect
    .poll(() => jobsTold(served, 'remove-many'))
    .toMatchObject([{ change: { removed: 2, failedReason: 'no user' } }])
  // The first one ends just after its entry in the history; until then another is refused.
  await expect.poll(async () => (await act(served, 'remove-many', remove)).status).toBe(204)
  await expect.poll(() => queue.getFailedCount()).toBe(0)
})

test('failed jobs go to the dead letters, one or all with a reason, and come back as they were', async () => {
  const queue = await shapedQueue(redis, 'deadLetter')
  const letters = await shapedQueue(redis, 'letters', {})
  const ids = (await failedJobs(queue, ['no user', 'ECONNREFUSED', 'no user'])) as [string, string, string]
  const served = await serve({ ...options, actor: () => 'ada' })
  const where = { to: 'letters', reason }
  expect((await act(served, 'deadLetter', { ...where, action: 'deadLetterJob', jobId: ids[1] })).status).toBe(204)
  expect([await queue.getJob(ids[1]), await letters.count()]).toEqual([undefined, 1])
  expect(await jobsTold(served, 'deadLetter')).toMatchObject([
    { by: 'ada', change: { 'moved to dead letters': ids[1] } },
  ])
  expect(
    (await act(served, 'deadLetter', { ...where, action: 'deadLetterJobs', failedReason: 'no user' })).status,
  ).toBe(204)
  await expect.poll(() => letters.count()).toBe(3)
  await expect.poll(() => queue.getFailedCount()).toBe(0)
  const { status } = (await (await served.get('api/queues/deadLetter')).json()) as { status: object }
  expect(status).toMatchObject({ deadLetterQueues: ['letters'] })
  const { letters: listed } = (await (await served.get('api/queues/deadLetter/dead?from=letters')).json()) as Letters
  expect(listed).toMatchObject([{ id: ids[1], failedReason: 'ECONNREFUSED', attemptsMade: 1 }, { id: ids[0] }, {}])
  const back = { action: 'redrive', from: 'letters', reason }
  expect((await act(served, 'deadLetter', { ...back, jobId: ids[2] })).status).toBe(204)
  await expect.poll(() => queue.getJobState(ids[2])).toBe('waiting')
  await expect.poll(() => letters.count()).toBe(2)
  await expect.poll(async () => (await act(served, 'deadLetter', { ...back, failedReason: 'ECONN' })).status).toBe(204)
  await expect.poll(() => queue.getJobState(ids[1])).toBe('waiting')
  const job = await queue.getJob(ids[1])
  expect([job?.data, job?.attemptsMade]).toEqual(['ECONNREFUSED', 0])
  expect(await queue.getJobState(ids[0])).toBe('unknown')
})

interface Letters {
  readonly letters: readonly object[]
}

test('a failed parent is not removed while one of its children runs', async () => {
  const queue = await shapedQueue(redis, 'family')
  const flows = new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })
  onTestFinished(() => flows.close())
  const running = new EventEmitter()
  const worker = new ShapedWorker(
    'family',
    async ({ name }) => {
      if (name === 'fails') throw new Error('no')
      await once(running, 'end')
    },
    { connection: redis.connection, prefix: redis.prefix, concurrency: 3 },
  )
  onTestFinished(() => worker.close())
  onTestFinished(() => void running.emit('end'))
  const { job } = await flows.add({
    ...{ name: 'parent', queueName: 'family' },
    children: [
      { name: 'runs', queueName: 'family' },
      { name: 'fails', queueName: 'family', opts: { failParentOnFailure: true } },
    ],
  })
  const jobId = job.id as string
  await expect.poll(() => queue.getJobState(jobId)).toBe('failed')
  const served = await serve(options)
  const refused = await act(served, 'family', { action: 'removeJob', jobId, reason })
  expect([refused.status, await queue.getJobState(jobId)]).toEqual([409, 'failed'])
  expect(await jobsTold(served, 'family')).toEqual([])
})

test('a delayed job is promoted, also in a full queue, and no other is', async () => {
  const queue = await shapedQueue(redis, 'promote', { rate: '50/s', capacity: 1 })
  const jobId = (await queue.add('later', {}, { delay: 3_600_000 })).id as string
  const served = await serve({ ...options, actor: () => 'ada' })
  const promote = { action: 'promoteJob', jobId, reason }
  expect((await act(served, 'promote', { ...promote, action: 'retryJob' })).status).toBe(409)
  expect((await act(served, 'promote', { ...promote, action: 'removeJob' })).status).toBe(409)
  expect((await act(served, 'promote', promote)).status).toBe(204)
  expect(await queue.getJobState(jobId)).toBe('waiting')
  expect((await act(served, 'promote', promote)).status).toBe(409)
  expect(await jobsTold(served, 'promote')).toMatchObject([{ by: 'ada', reason, change: { promoted: jobId } }])
})

test('a job that waits or runs is cancelled, and one that has ended is not', async () => {
  const queue = await shapedQueue(redis, 'cancel', { rate: '50/s' })
  const jobId = (await queue.add('mail', {})).id as string
  const served = await serve({ ...options, actor: () => 'ada' })
  const cancel = { action: 'cancelJob', jobId, reason }
  expect((await act(served, 'cancel', cancel)).status).toBe(204)
  expect(await queue.getJob(jobId)).toMatchObject({ failedReason: `cancelled by ada: ${reason}` })
  expect((await act(served, 'cancel', { ...cancel, reason: 'again' })).status).toBe(409)
  expect(await jobsTold(served, 'cancel')).toMatchObject([{ by: 'ada', reason, change: { cancelled: jobId } }])
})

test.each(['nobody', 'wait', 'meta', 'failed', '../promote:1'])('%s is no job to be changed', async (jobId) => {
  await shapedQueue(redis, 'nobody')
  const served = await serve(options)
  for (const action of ['retryJob', 'removeJob', 'promoteJob', 'cancelJob', 'deadLetterJob']) {
    const to = action === 'deadLetterJob' ? { to: 'dead' } : {}
    expect((await act(served, 'nobody', { action, jobId, ...to, reason })).status).toBe(404)
  }
  expect(await jobsTold(served, 'nobody')).toEqual([])
})

test('the mode', async () => {
  const queue = await shapedQueue(redis, 'mode')
  const { file, tokens } = tokenFile({ bob: undefined })
  const served = await serve({ ...options, tokens: file })
  const headers = { authorization: `Bearer ${tokens.bob}` }
  expect((await act(served, 'mode', { action: 'setMode', mode: 'shadow', reason }, headers)).status).toBe(204)
  const shape = await queue.getShape()
  expect(shape?.mode).toBe('shadow')
  expect(shape?.overrides.mode).toMatchObject({ by: 'bob', reason })
})

test('a redrive goes on behind its answer', async () => {
  const queue = await shapedQueue(redis, 'redrive')
  const worker = new ShapedWorker('redrive', async () => Promise.reject(new Error('no')), {
    ...{ connection: redis.connection, prefix: redis.prefix, deadLetter: 'redrive-dead' },
  })
  onTestFinished(() => worker.close())
  const failed = once(worker, 'failed')
  const { id } = await queue.add('job', {})
  await failed
  await worker.close()
  const served = await serve(options)
  const { status } = (await (await served.get('api/queues/redrive')).json()) as { status: object }
  expect(status).toMatchObject({ deadLetterQueues: ['redrive-dead'], workers: [] })
  const started = await act(served, 'redrive', { action: 'redrive', from: 'redrive-dead', reason })
  expect(started.status).toBe(204)
  await expect.poll(async () => (await queue.getJob(id as string))?.getState()).toBe('waiting')
})

test('one redrive of a queue runs at a time, and closing stops it', async () => {
  const queue = await shapedQueue(redis, 'full', { rate: '50/s', capacity: 1 })
  const letters = await shapedQueue(redis, 'full-dead', {})
  await queue.add('in the way', {})
  const letter = { prefix: redis.prefix, queueName: 'full', id: 'old', name: 'job', data: {}, opts: {}, redriven: 0 }
  await letters.add('job', { ...letter, failedReason: 'no', attemptsMade: 1, timestamp: 1, finishedOn: 2 })
  const served = await serve(options)
  const redrive = { action: 'redrive', from: 'full-dead', reason }
  expect((await act(served, 'full', redrive)).status).toBe(204)
  const again = await act(served, 'full', redrive)
  expect([again.status, again.headers.get('content-type')]).toEqual([409, 'application/problem+json'])
  await served.app.close()
  expect(await letters.count()).toBe(1)
})

test('a group is set for a while and cleared, and is as it was where a field is wrong', async () => {
  const queue = await shapedQueue(redis, 'settings', { rate: '50/s', groups: { rate: '10/s', burst: 3 } })
  const served = await serve(options)
  const set = (settings: object) =>
    act(served, 'settings', { action: 'setGroup', group: 'acme', settings, ttlMs: 60_000, reason })
  expect((await set({ rate: '2/s', capacity: 5, burst: null })).status).toBe(204)
  const state = await queue.getGroup('acme')
  expect(state.inForce).toEqual({ rate: '2/s', capacity: 5 })
  expect(state.overrides.rate).toMatchObject({ by: 'dashboard', reason, until: expect.any(Date) })
  const wrong = await set({ rate: '3/s', concurrency: 1.5 })
  expect([wrong.status, await wrong.json()]).toEqual([
    422,
    expect.objectContaining({ field: 'settings.concurrency', detail: expect.stringContaining('a whole number >= 1') }),
  ])
  expect((await queue.getGroup('acme')).inForce).toEqual({ rate: '2/s', capacity: 5 })
  const clear = (fields?: string[]) =>
    act(served, 'settings', { action: 'clearGroup', group: 'acme', ...(fields && { fields }), reason })
  expect((await clear(['capacity'])).status).toBe(204)
  expect((await queue.getGroup('acme')).inForce).toEqual({ rate: '2/s' })
  expect((await clear()).status).toBe(204)
  expect((await queue.getGroup('acme')).inForce).toEqual({ rate: '10/s', burst: 3 })
})

test('a value of a limit is set and lifted, and shown with its history', async () => {
  const limits = [{ name: 'rpm', by: 'model', algorithm: 'token-bucket', rate: '60/min', burst: 10 } as const]
  const queue = await shapedQueue(redis, 'limited', { limits })
  const served = await serve(options)
  const keys = { model: 'gpt-large' }
  const set = (values: object) =>
    act(served, 'limited', { action: 'setLimit', limit: 'rpm', keys, values, ttlMs: 60_000, reason })
  expect((await set({ rate: '600/min', burst: 50 })).status).toBe(204)
  const found = await served.get(`api/queues/limited/limits/rpm?keys=${encodeURIComponent(JSON.stringify(keys))}`)
  expect(await found.json()).toMatchObject({
    ...{ limit: 'rpm', keys, inForce: { rate: '600/min', burst: 50 }, used: expect.any(Number), most: 50 },
    overrides: { rate: { by: 'dashboard', reason, until: expect.any(String) } },
    ...{ jobs: [], holders: [], history: [{ by: 'dashboard', reason }] },
  })
  const wrong = await set({ rate: 'often' })
  expect([wrong.status, await wrong.json()]).toEqual([422, expect.objectContaining({ field: 'values.rate' })])
  expect((await set({ concurrency: 2 })).status).toBe(422)
  const clear = (fields?: string[]) =>
    act(served, 'limited', { action: 'clearLimit', limit: 'rpm', keys, ...(fields && { fields }), reason })
  expect((await clear(['burst'])).status).toBe(204)
  expect((await queue.getLimit('rpm', keys)).inForce).toEqual({ rate: '600/min', burst: 10 })
  expect((await clear(['weight'])).status).toBe(422)
  expect((await clear()).status).toBe(204)
  expect((await queue.getLimit('rpm', keys)).inForce).toEqual({ rate: '60/min', burst: 10 })
  expect((await served.get('api/queues/limited/limits')).status).toBe(200)
  for (const [path, status] of [
    ['limits/rpm', 400],
    ['limits/rpm?keys=gpt', 400],
    ['limits/rpm?keys={"host":"a"}', 404],
    ['limits/nope?keys={"model":"a"}', 404],
  ] as const) {
    expect([path, (await served.get(`api/queues/limited/${path}`)).status]).toEqual([path, status])
  }
})

test('dead letters of the queue are dropped, one or all whose reason matches, and those of others stay', async () => {
  const queue = await shapedQueue(redis, 'drop')
  const letters = await shapedQueue(redis, 'drop-dead', {})
  const add = (id: string, failedReason: string, queueName = 'drop') => {
    const letter = { prefix: redis.prefix, queueName, id, name: 'job', data: {}, opts: {}, redriven: 0 }
    const ended = { failedReason, attemptsMade: 1, stacktrace: [], timestamp: 1, finishedOn: 2 }
    return letters.add('job', { ...letter, ...ended }, { jobId: `l${id}` })
  }
  for (const id of ['a', 'b', 'c']) await add(id, 'no user')
  await add('d', 'timed out')
  await add('e', 'no user', 'other')
  const left = async () => (await letters.getJobs(['waiting'])).map((job) => job.id).toSorted()
  const served = await serve(options)
  const drop = { from: 'drop-dead', reason }
  const one = (letterId: string) => act(served, 'drop', { action: 'dropDeadLetter', letterId, ...drop })
  expect((await one('la')).status).toBe(204)
  expect([(await one('la')).status, (await one('le')).status]).toEqual([404, 404])
  expect(await left()).toEqual(['lb', 'lc', 'ld', 'le'])
  const matching = { action: 'dropDeadLetters', failedReason: 'no user', ...drop }
  expect((await act(served, 'drop', matching)).status).toBe(204)
  await expect.poll(left).toEqual(['ld', 'le'])
  const history = async () => {
    const { history } = (await (await served.get('api/queues/drop')).json()) as { history: { change: object }[] }
    return history.slice(0, 2).map(({ change }) => change)
  }
  const noted = [
    { 'dead letters dropped': 2, in: 'drop-dead', failedReason: 'no user' },
    { 'dead letter dropped': 'a', in: 'drop-dead' },
  ]
  await expect.poll(history).toEqual(noted)
  expect(await queue.count()).toBe(0)
})

test('a rate that is changed here reaches a worker that runs', async () => {
  const queue = await shapedQueue(redis, 'live', { rate: '1/min' })
  const started: string[] = []
  const worker = new ShapedWorker('live', async ({ name }) => void started.push(name), {
    ...{ connection: redis.connection, prefix: redis.prefix, concurrency: 50 },
  })
  onTestFinished(() => worker.close())
  await worker.waitUntilReady()
  const first = once(worker, 'completed')
  await queue.addBulk(Array.from({ length: 20 }, (_, i) => ({ name: `job ${i}`, data: {} })))
  await first
  expect(started).toEqual(['job 0'])
  const served = await serve(options)
  // At one a minute it would take twenty minutes.
  expect((await act(served, 'live', { action: 'setShape', shape: { rate: '200/s' }, reason })).status).toBe(204)
  await expect.poll(() => started.length).toBe(20)
})

test.each<[object, RegExp]>([
  [{ action: 'setShape', shape: { rate: 'fast' }, reason }, /rate/],
  [{ action: 'setShape', shape: { speed: 5 }, reason }, /no field 'speed'/],
  [{ action: 'setShape', shape: { version: 5 }, reason }, /can only be declared/],
  [{ action: 'setShape', shape: {}, reason }, /at least one/],
  [{ action: 'setShape', shape: { rate: '5/s' } }, /reason/],
  [{ action: 'pause', reason: 'x'.repeat(501) }, /at most 500/],
  [{ action: 'redrive', from: 'wrong', reason }, /a queue other than/],
  [{ action: 'redrive', from: 'a:b', reason }, /without ':'/],
  [{ action: 'deadLetterJobs', to: 'wrong', reason }, /a queue other than/],
  [{ action: 'deadLetterJobs', reason }, /to: expected the name of a queue/],
  [{ action: 'retryJobs', failedReason: '', reason }, /failedReason: expected a text/],
  [{ action: 'pauseGroup', group: 'acme', reason }, /has no groups/],
  [{ action: 'pauseGroup', group: '', reason }, /1 to 256 bytes/],
  [{ action: 'resumeGroup', group: 'é'.repeat(129), reason }, /1 to 256 bytes/],
  [{ action: 'explode', reason }, /action/],
])('%j can never work: 422, and nothing is changed', async (action, problem) => {
  const queue = await shapedQueue(redis, 'wrong')
  const before = await queue.getShape()
  const refused = await act(await serve(options), 'wrong', action)
  expect([refused.status, refused.headers.get('content-type')]).toEqual([422, 'application/problem+json'])
  expect(((await refused.json()) as { detail: string }).detail).toMatch(problem)
  expect(await queue.getShape()).toEqual(before)
})

test.each<[string, number, RequestInit & { headers?: Record<string, string> }]>([
  ['another site', 403, { headers: { 'sec-fetch-site': 'cross-site' } }],
  ['another host of the site', 403, { headers: { 'sec-fetch-site': 'same-site' } }],
  ['an old browser on another site', 403, { headers: { origin: 'https://evil.example' } }],
  ['nobody knows whence', 403, {}],
  ['a form', 415, { headers: { ...SAME_ORIGIN, 'content-type': 'application/x-www-form-urlencoded' } }],
  ['a text', 415, { headers: { ...SAME_ORIGIN, 'content-type': 'text/plain' } }],
  ['JSON by another name', 415, { headers: { ...SAME_ORIGIN, 'content-type': 'application/jsonp' } }],
  ['what is no JSON', 400, { headers: SAME_ORIGIN, body: '{' }],
  ['a prototype', 400, { headers: SAME_ORIGIN, body: '{"__proto__":{"x":1},"action":"resume","reason":"why"}' }],
  ['more than fits', 413, { headers: SAME_ORIGIN, body: JSON.stringify({ reason: 'x'.repeat(70_000) }) }],
])('%s is refused with %i, and nothing is changed', async (_who, status, { headers, body }) => {
  const queue = await shapedQueue(redis, 'forged')
  const { url } = await serve(options)
  const refused = await fetch(`${url}api/queues/forged/actions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: body ?? JSON.stringify({ action: 'pause', reason }),
  })
  expect([refused.status, refused.headers.get('content-type')]).toEqual([status, 'application/problem+json'])
  expect(await queue.isPaused()).toBe(false)
})

test('an old browser on the page itself is heard', async () => {
  await shapedQueue(redis, 'origin')
  const served = await serve(options)
  const origin = new URL(served.url).origin
  expect((await act(served, 'origin', { action: 'resume', reason }, { origin })).status).toBe(204)
})

test('without allowActions nothing can be changed', async () => {
  const queue = await shapedQueue(redis, 'readonly')
  const served = await serve({ ...options, allowActions: false })
  for (const action of actionSchema.options.map(({ shape }) => shape.action.value)) {
    expect((await act(served, 'readonly', { action, reason, shape: { rate: '1/s' } })).status).toBe(403)
  }
  expect(await queue.meter()).toMatchObject({ paused: false, rate: '50/s' })
})

test('a queue that nobody knows is not made', async () => {
  const refused = await act(await serve(options), 'unknown', { action: 'pause', reason })
  expect(refused.status).toBe(404)
  expect(await redis.client().keys(`${redis.prefix}:unknown:*`)).toEqual([])
})
