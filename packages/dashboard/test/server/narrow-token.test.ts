import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import type { QueueLimit, Shape, ShapedQueue } from '../../../../src/index.ts'
import { SETTABLE_FIELDS } from '../../../../src/shape/shape.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { departuresOf, gate, Workshop } from '../../../../test/worker/support.ts'
import { actionSchema } from '../../src/action.ts'
import { SORTS } from '../../src/fleet-page.ts'
import { dashboard } from '../../src/index.ts'
import { deadQuery, eventsQuery, fleetQuery, jobsQuery, limitQuery, seriesQuery } from '../../src/queue-params.ts'
import { type Served, serve, shapedQueue, tokenFile } from './support.ts'

// A token for `mine` and `mine-dead`, and every field of every route: nothing of `others` may be read, written or counted.

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const options = { connection: redis.connection, prefix: redis.prefix, allowActions: true, showData: true }
const limitPrefix = `${redis.prefix}-limits`
const reason = 'why'
/** Long enough not to turn up in the times that ids are made of. */
const CAPACITY = 4_711_471_147
const FOREIGN = new RegExp(`secret|${CAPACITY}`)

const shared = (more: Partial<QueueLimit> = {}): QueueLimit => ({
  ...{ name: 'api', shared: true, prefix: limitPrefix, rate: '10/s' },
  ...more,
})

/** What a field may be filled with, and what comes of it. */
type Fill = readonly [value: unknown, status: number]

const ALL_FROM: readonly Fill[] = [
  ['mine-dead', 200],
  ['mine', 200],
  ['others', 403],
  ['others-dead', 403],
  ['nothing', 403],
]
const PAGE: Readonly<Record<string, readonly Fill[]>> = { start: [['0', 200]], count: [['200', 200]] }
const FLEET: Readonly<Record<string, readonly Fill[]>> = {
  ...PAGE,
  sort: SORTS.map((sort) => [sort, 200] as const),
  down: [['true', 200]],
  marked: [['true', 200]],
  filter: ['others', 'nothing', 'mine'].map((filter) => [filter, 200] as const),
}
/** Each route that reads, with each of its fields. */
const READS: Readonly<Record<string, Readonly<Record<string, readonly Fill[]>>>> = {
  '/api/jobs/:id': {},
  '/api/fleet': FLEET,
  '/api/queues/:name': {},
  '/api/queues/:name/series': { since: [['2020-01-01T00:00:00Z', 200]] },
  '/api/queues/:name/jobs': {
    ...PAGE,
    state: jobsQuery.shape.state.unwrap().options.map((state) => [state, 200] as const),
    failedReason: [['no', 200]],
  },
  '/api/queues/:name/failed-reasons': {},
  '/api/queues/:name/dead': { ...PAGE, from: ALL_FROM },
  '/api/queues/:name/jobs/:id': {},
  '/api/queues/:name/jobs/:id/explain': {},
  // The queues that are read here have no groups.
  '/api/queues/:name/groups': {},
  '/api/queues/:name/groups/:id': {},
  // Nor limits by keys.
  '/api/queues/:name/limits': {},
  '/api/queues/:name/limits/:limit': { keys: [['{"model":"gpt"}', 404]] },
}
const IDS = ['1', 'secret-id', 'others:secret-id', '../others:secret-id', 'wait', 'meta', '%2e%2e']

const SCHEMAS = {
  '/api/fleet': fleetQuery,
  '/api/queues/:name/series': seriesQuery,
  '/api/queues/:name/jobs': jobsQuery,
  '/api/queues/:name/dead': deadQuery,
  '/api/queues/:name/limits/:limit': limitQuery,
}

/** Each field of a shape that can be set, with what it may be filled with. */
const SHAPE: Readonly<Record<string, readonly Fill[]>> = {
  ...{ rate: [['5/s', 204]], burst: [[3, 204]], capacity: [[50, 204]], capacityHorizonMs: [[5, 204]] },
  ...{ reservedPlaces: [[{ 1: 2 }, 204]], overflow: [['drop-oldest', 204]], maxWaitMs: [[500, 204]] },
  ...{ concurrency: [[2, 204]], mode: [['shadow', 204]], maxLatenessMs: [[50, 204]], audit: [[10, 204]] },
  groups: [[{ weight: 2 }, 204]],
  priorityAgeingMs: [[60_000, 204]],
  rampUp: [[{ from: 0.5, overMs: 60_000 }, 204]],
  onClosed: [['refuse', 204]],
  durability: [
    [{ replicas: 1, timeoutMs: 500 }, 403],
    [null, 204],
  ],
  overflowTo: [
    ['others', 403],
    ['others-dead', 403],
    ['nothing', 403],
    ['mine-dead', 204],
    [null, 204],
  ],
  limits: [
    [[shared()], 403],
    [[shared({ version: 9, rate: '1/s' })], 403],
    [[shared({ key: 'somebody' })], 403],
    [[shared({ name: 'ours', rate: '9/s' })], 403],
    [[shared({ name: 'ours', version: 2 })], 403],
    [[shared({ name: 'ours', key: 'somebody' })], 403],
    [[shared({ name: 'ours', mode: 'off' })], 403],
    [[{ name: 'own', rate: '5/s' }, shared({ name: 'new' })], 403],
    // What the queue has already may stay beside what is new.
    [[shared({ name: 'ours' }), { name: 'own', rate: '5/s' }], 204],
    [[{ name: 'api', rate: '5/s' }], 204],
    [null, 204],
  ],
}

/** Ids of jobs of another queue, however they are spelt. */
const NO_JOBS: readonly Fill[] = IDS.map((id) => [id, 404] as const)

/** Each kind of change, with what its fields may be filled with. */
const ACTIONS: Readonly<Record<string, Readonly<Record<string, readonly Fill[]>>>> = {
  setShape: {
    ttlMs: [[60_000, 204]],
    shape: Object.entries(SHAPE).flatMap(([field, fills]) =>
      fills.map(([value, status]) => [{ [field]: value }, status] as const),
    ),
  },
  clearShape: { fields: [[['overflowTo', 'limits'], 204]] },
  pause: { ttlMs: [[60_000, 204]] },
  resume: {},
  setGroup: {
    group: [['acme', 204]],
    settings: [
      [{ rate: '5/s', burst: 2 }, 204],
      [{ concurrency: 2, capacity: null, weight: 3 }, 204],
    ],
    ttlMs: [[60_000, 204]],
  },
  clearGroup: { group: [['acme', 204]], fields: [[['rate', 'weight'], 204]] },
  pauseGroup: { group: [['acme', 204]], ttlMs: [[60_000, 204]] },
  resumeGroup: { group: [['acme', 204]] },
  setLimit: {
    limit: [
      ['rpm', 204],
      ['together', 422],
    ],
    keys: [[{ model: 'gpt' }, 204]],
    values: [[{ rate: '5/min', burst: 2 }, 204]],
    ttlMs: [[60_000, 204]],
  },
  clearLimit: {
    limit: [
      ['rpm', 204],
      ['together', 422],
    ],
    keys: [[{ model: 'gpt' }, 204]],
    fields: [[['rate', 'burst'], 204]],
  },
  setMode: { mode: [['off', 204]], ttlMs: [[60_000, 204]] },
  redrive: {
    from: [['mine-dead', 204], ...ALL_FROM.slice(2)],
    jobId: [['secret-id', 204]],
    failedReason: [['no', 204]],
  },
  dropDeadLetter: { from: [['mine-dead', 404], ...ALL_FROM.slice(2)], letterId: NO_JOBS },
  dropDeadLetters: { from: [['mine-dead', 204], ...ALL_FROM.slice(2)], failedReason: [['no', 204]] },
  retryJob: { jobId: NO_JOBS },
  removeJob: { jobId: NO_JOBS },
  deadLetterJob: { jobId: NO_JOBS, to: [['mine-dead', 404], ...ALL_FROM.slice(2)] },
  promoteJob: { jobId: NO_JOBS },
  cancelJob: { jobId: NO_JOBS },
  retryJobs: { failedReason: [['no', 204]] },
  removeJobs: { failedReason: [['no', 204]] },
  deadLetterJobs: { failedReason: [['no', 204]], to: [['mine-dead', 204], ...ALL_FROM.slice(2)] },
}
/** What makes an action whole beside the field that is tried. */
const REST: Readonly<Record<string, object>> = {
  setShape: { shape: { burst: 2 } },
  setGroup: { group: 'acme', settings: { rate: '5/s' } },
  clearGroup: { group: 'acme' },
  pauseGroup: { group: 'acme' },
  resumeGroup: { group: 'acme' },
  setLimit: { limit: 'rpm', keys: { model: 'gpt' }, values: { rate: '5/min' } },
  clearLimit: { limit: 'rpm', keys: { model: 'gpt' } },
  setMode: { mode: 'shadow' },
  redrive: { from: 'mine-dead' },
  dropDeadLetter: { from: 'mine-dead', letterId: 'secret-id' },
  dropDeadLetters: { from: 'mine-dead' },
  deadLetterJob: { jobId: 'secret-id', to: 'mine-dead' },
  deadLetterJobs: { to: 'mine-dead' },
}

const LONG = ['redrive', 'dropDeadLetters', 'retryJobs', 'removeJobs', 'deadLetterJobs']

/** A queue that is none of the token's. */
async function otherQueue(): Promise<ShapedQueue> {
  const queue = await shapedQueue(redis, 'others', { rate: '5/s', capacity: CAPACITY, limits: [shared()] })
  await queue.add('secret', { secret: true }, { jobId: 'secret-id' })
  return queue
}

async function served(more: Shape = {}): Promise<Served & { readonly headers: Record<string, string> }> {
  await shapedQueue(redis, 'mine', { rate: '50/s', capacity: 100, limits: [shared({ name: 'ours' })], ...more })
  const { file, tokens } = tokenFile({ narrow: ['mine', 'mine-dead'] })
  const running = await serve({ ...options, tokens: file })
  return { ...running, headers: { authorization: `Bearer ${tokens.narrow}` } }
}

/** All that Redis holds of others, byte by byte. */
async function stateOfOthers(): Promise<unknown> {
  const client = redis.client()
  const found = await Promise.all(
    ['others', 'others-dead', 'nothing'].map((name) => client.keys(`${redis.prefix}:${name}:*`)),
  )
  const keys = [...found.flat(), ...(await client.keys(`${limitPrefix}:*`))].sort()
  return Promise.all(keys.map(async (key) => [key, await client.dumpBuffer(key)]))
}

test('every route and every field is known here', async () => {
  const routes = new Set<string>()
  const app = fastify()
  onTestFinished(() => app.close())
  app.addHook('onRoute', ({ method, url }) => {
    for (const one of [method].flat()) if (one === 'GET' || one === 'POST') routes.add(`${one} ${url}`)
  })
  await app.register(dashboard(options))
  const reads = Object.keys(READS).map((path) => `GET ${path}`)
  const rest = ['GET /', 'GET /api/events', 'GET /api/*', 'POST /api/*']
  const changes = ['POST /login', 'POST /logout', 'POST /api/queues/:name/actions']
  const isFile = (route: string) => /^GET \/(assets\/[\w.-]+|index\.html|first-theme\.js)$/.test(route)
  expect([...routes].filter((route) => !isFile(route)).sort()).toEqual([...reads, ...rest, ...changes].sort())
  for (const [path, schema] of Object.entries(SCHEMAS)) {
    expect(Object.keys(READS[path] as object).sort()).toEqual(Object.keys(schema.shape).sort())
  }
  expect(Object.keys(eventsQuery.shape).sort()).toEqual([...Object.keys(FLEET), 'queue', 'fleet'].sort())
  expect(Object.keys(SHAPE).sort()).toEqual([...SETTABLE_FIELDS].sort())
  const actions = actionSchema.options.map(({ shape: { action, reason: _, ...fields } }) => [
    action.value,
    Object.keys(fields).sort(),
  ])
  const known = Object.entries(ACTIONS).map(([action, fields]) => [action, Object.keys(fields).sort()])
  expect(known).toEqual(actions)
})

/** Each path that reads something of a queue, with its status. */
function readPaths(name: string): Fill[] {
  return Object.entries(READS).flatMap(([route, fields]) => {
    const needed = { ...('from' in fields && { from: 'mine-dead' }), ...('keys' in fields && { keys: '{}' }) }
    const one = Object.entries(fields).flatMap(([field, fills]) =>
      fills.map(([value, status]) => [{ ...needed, [field]: String(value) }, status] as const),
    )
    const ids = route.includes(':id') ? IDS : ['']
    return [[needed, 200] as const, ...one].flatMap(([query, status]) =>
      ids.map((id): Fill => {
        const path = route.replace(':name', name).replace(':id', id).slice(1)
        const isThere = id === '' && !/\/(groups|limits)/.test(route)
        return [`${path}?${new URLSearchParams(query)}`, isThere ? status : 404]
      }),
    )
  })
}

/** What every route that reads answers, but for times. */
async function readAll(): Promise<string[]> {
  const { get, headers } = await served()
  const answers: string[] = []
  for (const [path, status] of readPaths('mine')) {
    const answer = await get(String(path), headers)
    const text = (await answer.text()).replace(/"\d{4}-[^"]*Z"/g, '"time"')
    expect([path, answer.status]).toEqual([path, status])
    expect(text).not.toMatch(FOREIGN)
    answers.push(`${path} ${text}`)
  }
  for (const [path] of readPaths('others')) {
    if (String(path).startsWith('api/queues/others')) expect((await get(String(path), headers)).status).toBe(404)
  }
  expect((await get('api/events?queue=others', headers)).status).toBe(404)
  return answers
}

test('nothing that is read depends on another queue', async () => {
  const others = await otherQueue()
  const before = await readAll()
  await others.addBulk(Array.from({ length: 5 }, (_, i) => ({ name: 'secret', data: i })))
  await others.setShape({ rate: '1/s' }, { by: 'secret', reason: 'secret' })
  // Of a server of its own: what is read is kept for a moment.
  expect(await readAll()).toEqual(before)
})

const changes = Object.entries(ACTIONS).flatMap(([action, fields]) => [
  // Without its job there is nothing to do.
  ...((action !== 'redrive' && 'jobId' in fields) || 'letterId' in fields ? [] : [[action, {}, 204] as const]),
  ...Object.entries(fields).flatMap(([field, fills]) =>
    fills.map(([value, status]) => [action, { [field]: value }, status] as const),
  ),
])

test('no change reaches another queue, a shared limit, or a dead-letter queue that is not its own', async () => {
  await otherQueue()
  const rpm = { name: 'rpm', by: 'model', rate: '5/min' }
  const together = shared({ name: 'together', by: 'model' })
  const { post, headers } = await served({ groups: {}, limits: [shared({ name: 'ours' }), rpm, together] })
  for (const [action, fields, status] of changes) {
    const before = await stateOfOthers()
    const change = { action, reason, ...REST[action], ...fields }
    const answer = await post('api/queues/mine/actions', change, headers)
    const told = await answer.text()
    // A change that runs already is no matter of reach.
    const came = LONG.includes(action) && answer.status === 409 ? 204 : answer.status
    expect([change, told, came]).toEqual([change, told, status])
    expect(told).not.toMatch(FOREIGN)
    expect(told).not.toContain('10/s')
    expect(await stateOfOthers()).toEqual(before)
    const aimed = await post('api/queues/others/actions', change, headers)
    expect([change, aimed.status]).toEqual([change, 404])
  }
  expect(await stateOfOthers()).not.toEqual([])
})

test('a token for all queues reaches them all', async () => {
  await otherQueue()
  await shapedQueue(redis, 'mine')
  const { file, tokens } = tokenFile({ wide: undefined })
  const { get, post } = await serve({ ...options, tokens: file })
  const headers = { authorization: `Bearer ${tokens.wide}` }
  expect((await get('api/queues/mine/dead?from=others', headers)).status).toBe(200)
  const shape = { overflowTo: 'others', limits: [shared()] }
  expect((await post('api/queues/mine/actions', { action: 'setShape', shape, reason }, headers)).status).toBe(204)
})

test('jobs of another queue that hold the places of a shared limit are not shown', async () => {
  const limit: QueueLimit = {
    ...{ name: 'running', by: 'model', algorithm: 'concurrency', concurrency: 2 },
    ...{ shared: true, prefix: limitPrefix },
  }
  const { open, opened } = gate()
  const [mine, others] = ['sharing', 'other-sharing'].map((name) => shop.queueNamed(name, { limits: [limit] }))
  const departed = [mine, others].map((queue) =>
    departuresOf(shop.worker(queue as ShapedQueue, () => opened, { concurrency: 2 })),
  )
  for (const [i, id] of ['own-id', 'secret-id'].entries()) {
    await [mine, others][i]?.add('job', {}, { jobId: id, keys: { model: 'gpt' } })
  }
  await Promise.all(departed.map((one) => one.reach(1)))
  await mine?.add('job', {}, { jobId: 'waits', keys: { model: 'gpt' } })
  const { file, tokens } = tokenFile({ narrow: ['sharing'], wide: undefined })
  const { get } = await serve({ ...options, tokens: file })
  const seen = async (token: string | undefined, path: string) => {
    const answer = await get(path, { authorization: `Bearer ${token}` })
    const { holders } = (await answer.json()) as { holders: { jobId: string }[] }
    return holders.map(({ jobId }) => jobId).sort()
  }
  const keys = encodeURIComponent('{"model":"gpt"}')
  for (const path of [`api/queues/sharing/limits/running?keys=${keys}`, 'api/queues/sharing/jobs/waits/explain']) {
    await expect.poll(() => seen(tokens.wide, path)).toEqual(['own-id', 'secret-id'])
    expect(await seen(tokens.narrow, path)).toEqual(['own-id'])
  }
  open()
})
