import { randomUUID } from 'node:crypto'
import { createHistogram } from 'node:perf_hooks'
import fastifyRateLimit from '@fastify/rate-limit'
import autocannon from 'autocannon'
import { Queue } from 'bullmq'
import { type FastifyInstance, fastify } from 'fastify'
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { byApiKey, createGateway, fastifyMiddleware, type Middleware, rateLimit } from 'sluice-gateway'
import { atLeast, atMost, type Comparison, compared, rounds } from './harness/compare.ts'
import { type Bench, connectionTo, type Figure, inTurn, type RedisAddress, type Row } from './harness/figure.ts'
import type { Remote } from './harness/processes.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { type Cost, costOf, describeCost } from './harness/redis.ts'

const KEY_HEADER = 'x-api-key'
const MINUTE_MS = 60_000
/** The rate of the queue. */
const PER_SECOND = 1000
/** The schema of a job's data, the same for all servers. */
const DATA = {
  type: 'object',
  required: ['to', 'subject', 'text'],
  additionalProperties: false,
  properties: { to: { type: 'string', maxLength: 320 }, subject: { type: 'string' }, text: { type: 'string' } },
} as const
const BODY = { type: 'object', required: ['data'], additionalProperties: false, properties: { data: DATA } } as const
/** The body of a posted job: a typical mail. */
const JOB_BODY = JSON.stringify({ data: { to: 'ada@example.com', subject: 'Welcome', text: 'x'.repeat(200) } })

interface Spec {
  readonly redis: RedisAddress
  /** The queue of the jobs, and its capacity. */
  readonly queue: string
  readonly capacity: number
  /** Calls that a limited route allows per minute and key. */
  readonly perMinute: number
}

interface OpenServer {
  readonly url: string
  close(): Promise<unknown>
}

type Open = (spec: Spec) => Promise<OpenServer>

async function onFastify(register: (app: FastifyInstance) => unknown, end: () => unknown): Promise<OpenServer> {
  const app = fastify()
  await register(app)
  return { url: await app.listen({ host: '127.0.0.1', port: 0 }), close: () => app.close().then(end) }
}

/** A typical route without Sluice, with the gateway's answer as far as BullMQ can: nothing is bounded. */
const addingRoute: Open = async ({ redis, queue: name, capacity }) => {
  const queue = new Queue(name, { connection: connectionTo(redis) })
  await queue.waitUntilReady()
  const register = (app: FastifyInstance) =>
    app.post('/queues/:queue/jobs', { schema: { body: BODY } }, async (request, reply) => {
      const { data } = request.body as { data: unknown }
      const jobId = randomUUID()
      const [job, waiting] = await Promise.all([queue.add('job', data, { jobId }), queue.getWaitingCount()])
      const startsAt = new Date(Date.now() + (waiting / PER_SECOND) * 1000)
      return reply
        .code(202)
        .headers({
          'cache-control': 'no-store',
          location: `/queues/${name}/jobs/${job.id}`,
          'ratelimit-policy': `"${name}-admission";q=${capacity}, "${name}-egress";q=${PER_SECOND};w=1`,
          ratelimit: `"${name}-admission";r=${Math.max(0, capacity - waiting)}`,
        })
        .send({ id: job.id, state: 'waiting', position: waiting, startsAt })
    })
  return onFastify(register, () => queue.close())
}

/** A window of a minute per key, as in the other library. */
function limited(redis: Redis, perMinute: number): Middleware {
  const rate = { limit: perMinute, period: MINUTE_MS }
  const limit = createLimiter(redis, { name: 'route', algorithm: 'fixed-window', rate, timeoutMs: 5000 })
  return rateLimit({ limit, key: byApiKey({ header: KEY_HEADER }) })
}

const keyGenerator = ({ headers }: { headers: NodeJS.Dict<string | string[]> }) => String(headers[KEY_HEADER])

const limitedFastify = (register: (app: FastifyInstance, redis: Redis, perMinute: number) => unknown): Open => {
  return ({ redis, perMinute }) => {
    const client = new Redis(connectionTo(redis))
    const both = async (app: FastifyInstance) => {
      await register(app, client, perMinute)
      app.get('/', async () => ({ ok: true }))
    }
    return onFastify(both, () => client.disconnect())
  }
}

/** Servers that admit jobs, and those that limit a route of their framework, each with the same limit. */
const SERVERS = {
  gateway: async ({ redis, queue, capacity }) => {
    const shape = { capacity, rate: `${PER_SECOND}/s` } as const
    const gateway = createGateway({ connection: { ...redis }, queues: { [queue]: { shape, schema: DATA } } })
    await gateway.waitUntilReady()
    return onFastify(
      (app) => app.register(fastifyMiddleware(gateway)),
      () => gateway.close(),
    )
  },
  'queue.add': addingRoute,
  rateLimit: limitedFastify((app, redis, perMinute) => app.register(fastifyMiddleware(limited(redis, perMinute)))),
  '@fastify/rate-limit': limitedFastify((app, redis, perMinute) =>
    app.register(fastifyRateLimit, { redis, max: perMinute, timeWindow: MINUTE_MS, keyGenerator }),
  ),
} satisfies Record<string, Open>
type Server = keyof typeof SERVERS

let opened: OpenServer | undefined

/** Of a process with one server. */
export const methods = {
  /** @returns the URL to call */
  async open(server: Server, spec: Spec): Promise<string> {
    opened = await SERVERS[server](spec)
    return opened.url
  },
  /** CPU that the process has used, µs. */
  async cpuUs(): Promise<number> {
    const { user, system } = process.cpuUsage()
    return user + system
  },
  async close(): Promise<void> {
    await opened?.close()
  },
}

/** What is called of a server, and how many calls may pass or be refused. Default: any number. */
interface Trial extends Partial<Omit<Spec, 'redis'>> {
  readonly server: Server
  readonly path?: string
  readonly most: { readonly ok?: number; readonly refused?: number }
}

interface Calling {
  readonly connections: number
  readonly seconds: number
  /** What is posted. Default: GET. */
  readonly body?: string
  /** Number of rounds, where not quick. */
  readonly full?: number
  /** Before each measurement. */
  reset(): Promise<unknown>
}

/** What a call costs; percentiles in ms. */
interface CallCost extends Cost {
  readonly p50: number
  readonly p99: number
}

/** Calls a server as fast as it answers, over keep-alive connections, each with an API key of its own. */
async function callServer(
  { client }: Bench,
  { process, url }: { readonly process: Remote<typeof methods>; readonly url: string },
  { path = '/', most, server }: Trial,
  { connections, seconds, body }: Calling,
): Promise<CallCost> {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' }
  const latencyUs = createHistogram()
  let callers = 0
  const cost = await costOf(client, async () => {
    const cpuUs = await process.call('cpuUs')
    const running = autocannon({
      ...{ url: `${url}${path}`, connections, duration: seconds },
      ...(body !== undefined && { method: 'POST', body }),
      setupClient: (one) => one.setHeaders({ ...headers, [KEY_HEADER]: `caller-${callers++}` }),
    })
    // Its types only declare the promise.
    const responses = running as unknown as autocannon.Instance
    responses.on('response', (_client, _status, _bytes, ms) => latencyUs.record(Math.max(1, Math.round(ms * 1000))))
    const { '2xx': ok, '4xx': refused, '5xx': failed, errors, timeouts, duration } = await running
    const other = failed + errors + timeouts
    if (other > 0 || ok > (most.ok ?? ok) || refused > (most.refused ?? refused))
      throw new Error(`${server}: ${ok} passed, ${refused} refused, ${other} failed`)
    return { units: ok + refused, elapsedMs: duration * 1000, clientUs: (await process.call('cpuUs')) - cpuUs }
  })
  return { ...cost, p50: latencyUs.percentile(50) / 1000, p99: latencyUs.percentile(99) / 1000 }
}

function describeCalls(cost: CallCost): string {
  return `${describeCost(cost)}, p50 ${cost.p50.toFixed(2)} ms, p99 ${cost.p99.toFixed(2)} ms`
}

/** Calls the servers in turns, each in a process of its own. */
async function trials<Name extends string>(
  bench: Bench,
  all: Readonly<Record<Name, Trial>>,
  calling: Calling,
  rows: Readonly<Record<string, Omit<Comparison<Name, CallCost>, 'describe'>>>,
): Promise<Row[]> {
  const names = Object.keys(all) as Name[]
  const servers = names.map((name) => ({
    name,
    process: bench.processes.start<typeof methods>(new URL(import.meta.url)),
  }))
  const urls = new Map<Name, string>()
  const measure = async (name: Name) => {
    await calling.reset()
    const { process } = servers.find((server) => server.name === name) as (typeof servers)[number]
    return callServer(bench, { process, url: urls.get(name) as string }, all[name], calling)
  }
  try {
    for (const { name, process } of servers) {
      const { server, queue = '', capacity = 0, perMinute = 0 } = all[name]
      urls.set(name, await process.call('open', server, { redis: bench.redis, queue, capacity, perMinute }))
    }
    const measured = await rounds(bench.quick, names, measure, calling.full)
    return Object.entries(rows).map(([setup, comparison]) =>
      compared(setup, measured, { ...comparison, describe: describeCalls }),
    )
  } finally {
    for (const { process } of servers) await process.call('close').finally(() => process.stop())
  }
}

const ROOM = 10_000_000

async function postRows(bench: Bench, connections: number): Promise<Row[]> {
  const queue = await makeQueue(bench, 'sluice', 'gateway')
  const trial = { queue: queue.name, capacity: ROOM, path: `/queues/${queue.name}/jobs`, most: { refused: 0 } }
  const all = { gateway: { server: 'gateway', ...trial }, 'queue.add': { server: 'queue.add', ...trial } } as const
  const calling = { connections, seconds: bench.quick ? 1 : 2, body: JOB_BODY, full: 13, reset: () => queue.drain() }
  const ours = { ours: 'gateway', over: ['queue.add'] } as const
  const rows = await trials(bench, all, calling, {
    [`${connections} connections: requests per second`]: { ...ours, asked: atLeast(0.9) },
    [`${connections} connections: p99, inverted`]: { ...ours, asked: atLeast(0.9), of: ({ p99 }) => 1 / p99 },
  })
  await removeQueue(queue)
  return rows
}

/** Each key calls over its own connection. */
const KEYS = 100

/** @param isRefused whether almost no call passes, or nearly all do */
async function limitedRows(bench: Bench, isRefused: boolean): Promise<Row[]> {
  // A new window may begin during the calls.
  const trial = isRefused ? { perMinute: 1, most: { ok: 2 * KEYS } } : { perMinute: 1e9, most: { refused: 0 } }
  const [ours, theirs] = ['rateLimit', '@fastify/rate-limit'] as const
  const all = { [ours]: { server: ours, ...trial }, [theirs]: { server: theirs, ...trial } }
  const calling = { connections: KEYS, seconds: bench.quick ? 1 : 2, full: 11, reset: () => bench.client.flushdb() }
  const setup = isRefused ? 'refused' : 'allowed'
  return trials(bench, all as Record<typeof ours | typeof theirs, Trial>, calling, {
    [setup]: { ours, over: [theirs], asked: atLeast(1.2) },
  })
}

async function refusedRows(bench: Bench): Promise<Row[]> {
  const free = await makeQueue(bench, 'sluice', 'gateway')
  // No worker takes the job that fills it.
  const full = await makeQueue(bench, 'sluice', 'gateway', { capacity: 1, rate: '1/min' })
  await addJobs(full, 1)
  const post = ({ name: queue }: Queue, capacity: number, most: Trial['most']): Trial => {
    return { server: 'gateway', queue, capacity, path: `/queues/${queue}/jobs`, most }
  }
  const all = { admitted: post(free, ROOM, { refused: 0 }), refused: post(full, 1, { ok: 0 }) }
  const calling = { connections: 50, seconds: bench.quick ? 1 : 4, body: JOB_BODY, reset: () => free.drain() }
  const rows = await trials(bench, all, calling, {
    'a full queue': { ours: 'refused', over: ['admitted'], of: ({ clientUs }) => clientUs, asked: atMost(0.5) },
  })
  await removeQueue(free)
  await removeQueue(full)
  return rows
}

const METHOD = 'median of interleaved rounds, the first discarded'

export const gateway: readonly Figure[] = [
  {
    name: 'gateway-post',
    title:
      'POST of one job to the gateway (Fastify) over a route of Fastify that calls queue.add of BullMQ and gives the ' +
      `same answer: requests per second and p99, ${METHOD}; CPU of the server and of Redis per request`,
    run: (bench) => inTurn([1, 10, 100], (connections) => postRows(bench, connections)),
  },
  {
    name: 'gateway-limited',
    title:
      `A limited route, a fixed window of a minute in Redis for each of ${KEYS} API keys, a connection each: requests ` +
      `per second over @fastify/rate-limit, ${METHOD}`,
    run: (bench) => inTurn([false, true], (isRefused) => limitedRows(bench, isRefused)),
  },
  {
    name: 'gateway-refused',
    title: `CPU of the gateway's process per refused POST over that per admitted one, 50 connections: ${METHOD}`,
    run: refusedRows,
  },
]
