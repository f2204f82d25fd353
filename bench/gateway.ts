import { createHistogram } from 'node:perf_hooks'
import autocannon from 'autocannon'
import type { Queue } from 'bullmq'
import type { Server, ServerSpec, methods as serverMethods } from './gateway-server.ts'
import { atLeast, atMost, compared, type Round, rounds } from './harness/compare.ts'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import type { Remote } from './harness/processes.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { type Cost, costOf, describeCost, usedMemory } from './harness/redis.ts'

const PROGRAM = new URL('gateway-server.ts', import.meta.url)
const KEY_HEADER = 'x-api-key'
/** The body of a posted job: a typical mail. */
const JOB_BODY = JSON.stringify({ data: { to: 'ada@example.com', subject: 'Welcome', text: 'x'.repeat(200) } })

/** What a call costs, and how it was answered; percentiles in ms. */
interface CallCost extends Cost {
  readonly p50: number
  readonly p99: number
  readonly ok: number
  readonly refused: number
  readonly other: number
}

interface Calling {
  readonly connections: number
  readonly seconds: number
  /** What is posted. Default: GET. */
  readonly body?: string
  /** Whether percentiles are exact to the µs, which costs some CPU per call. Default: whole ms. */
  readonly fine?: true
  /** The API key of the n-th call, which takes most of the CPU per call. */
  readonly keyOf?: (call: number) => string
  /** The API key of all calls on the n-th connection. */
  readonly connectionKeyOf?: (connection: number) => string
}

interface OpenedServer {
  readonly process: Remote<typeof serverMethods>
  readonly url: string
}

function describeCalls(cost: CallCost): string {
  return `${describeCost(cost)}, p50 ${cost.p50.toFixed(2)} ms, p99 ${cost.p99.toFixed(2)} ms`
}

async function openServer(bench: Bench, spec: Omit<ServerSpec, 'redis'>): Promise<OpenedServer> {
  const process = bench.processes.start<typeof serverMethods>(PROGRAM, ['--expose-gc'])
  return { process, url: await process.call('open', { ...spec, redis: bench.redis }) }
}

async function closeServer({ process }: OpenedServer): Promise<void> {
  await process.call('close')
  await process.stop()
}

/** Calls a server as fast as it answers, over keep-alive connections. */
async function callServer(
  { client }: Bench,
  { process, url }: OpenedServer,
  path: string,
  { connections, seconds, body, fine, keyOf, connectionKeyOf }: Calling,
): Promise<CallCost> {
  const sent = body === undefined ? {} : { 'content-type': 'application/json' }
  let [calls, opened] = [0, 0]
  const latencyUs = createHistogram()
  const counts = { ok: 0, refused: 0, other: 0, p50: 0, p99: 0 }
  const cost = await costOf(client, async () => {
    const cpuUs = await process.call('cpuUs')
    const running = autocannon({
      ...{ url: `${url}${path}`, connections, duration: seconds, headers: sent },
      ...(body !== undefined && { method: 'POST', body }),
      ...(connectionKeyOf && {
        setupClient: (client) => client.setHeaders({ ...sent, [KEY_HEADER]: connectionKeyOf(opened++) }),
      }),
      ...(keyOf && {
        requests: [{ setupRequest: (request) => ({ ...request, headers: { ...sent, [KEY_HEADER]: keyOf(calls++) } }) }],
      }),
    })
    // Its types only declare the promise.
    const responses = running as unknown as autocannon.Instance
    if (fine)
      responses.on('response', (_client, _status, _bytes, ms) => latencyUs.record(Math.max(1, Math.round(ms * 1000))))
    const { '2xx': ok, '4xx': refused, '5xx': failed, errors, timeouts, duration, latency } = await running
    const { p50, p99 } = latency
    Object.assign(counts, { ok, refused, other: failed + errors + timeouts, p50, p99 })
    const units = ok + refused + counts.other
    return { units, elapsedMs: duration * 1000, clientUs: (await process.call('cpuUs')) - cpuUs }
  })
  const exact = { p50: latencyUs.percentile(50) / 1000, p99: latencyUs.percentile(99) / 1000 }
  return { ...cost, ...counts, ...(fine && exact) }
}

/** A server, what is called of it, and how many calls may pass or be refused. Default: any number. */
interface Trial extends Omit<ServerSpec, 'redis'> {
  readonly path?: string
  readonly most: { readonly ok?: number; readonly refused?: number }
}

/** Calls the servers in turns, each in a process of its own. @param reset is done before each measurement */
async function trials<Name extends string>(
  bench: Bench,
  all: Readonly<Record<Name, Trial>>,
  { full, reset, ...calling }: Calling & { readonly full?: number; reset(): Promise<unknown> },
): Promise<Round<Name, CallCost>[]> {
  const names = Object.keys(all) as Name[]
  const servers = new Map<Name, OpenedServer>()
  const measure = async (name: Name) => {
    const { path = '/', most } = all[name]
    await reset()
    const cost = await callServer(bench, servers.get(name) as OpenedServer, path, calling)
    const { ok, refused, other } = cost
    if (other > 0 || ok > (most.ok ?? ok) || refused > (most.refused ?? refused))
      throw new Error(`${name}: ${ok} passed, ${refused} refused, ${other} failed`)
    return cost
  }
  try {
    for (const name of names) servers.set(name, await openServer(bench, all[name]))
    return await rounds(bench.quick, names, measure, full)
  } finally {
    for (const server of servers.values()) await closeServer(server)
  }
}

/** The same for each of some servers. */
function each<Name extends Server>(servers: readonly Name[], trial: Omit<Trial, 'server'>) {
  return Object.fromEntries(servers.map((server) => [server, { server, ...trial }])) as unknown as Record<Name, Trial>
}

const ADDING = ['queue.add', 'queue.add, the id alone'] as const
const ASKED_POST = 0.9

async function postRows(bench: Bench, connections: number): Promise<Row[]> {
  const queue = await makeQueue(bench, 'sluice', 'gateway')
  const path = `/queues/${queue.name}/jobs`
  const trial = { queue: queue.name, capacity: 10_000_000, path, most: { refused: 0 } }
  const measured = await trials(bench, each(['gateway', ...ADDING], trial), {
    ...{ connections, seconds: bench.quick ? 1 : 2, body: JOB_BODY, fine: true, full: 13 },
    reset: () => queue.drain(),
  })
  await removeQueue(queue)
  return ADDING.flatMap((peer) => {
    const asked = peer === 'queue.add' ? atLeast(ASKED_POST) : undefined
    const comparison = { ours: 'gateway', over: [peer], asked, describe: describeCalls } as const
    const setup = `${connections} connections, over ${peer}`
    return [
      compared(`${setup}: requests per second`, measured, comparison),
      compared(`${setup}: p99, inverted`, measured, { ...comparison, of: ({ p99 }) => 1 / p99 }),
    ]
  })
}

const OURS = ['rateLimit on Fastify', 'rateLimit on Express'] as const
const PEERS = ['@fastify/rate-limit', 'express-rate-limit'] as const
const LIMITED = [OURS[0], PEERS[0], OURS[1], PEERS[1]] as const
/** Each key calls over its own connection. */
const KEYS = 100

/** @param isRefused whether almost no call passes, or nearly all do */
async function limitedRows(bench: Bench, isRefused: boolean): Promise<Row[]> {
  // A new window may begin during the calls.
  const trial = isRefused
    ? { perMinute: 1, most: { ok: 2 * KEYS } }
    : { perMinute: 1_000_000_000, most: { refused: 0 } }
  const measured = await trials(bench, each(LIMITED, trial), {
    ...{ connections: KEYS, seconds: 2, full: 11, connectionKeyOf: (connection) => `caller-${connection}` },
    reset: () => bench.client.flushdb(),
  })
  return OURS.map((ours) =>
    compared<(typeof LIMITED)[number], CallCost>(`${ours}, ${isRefused ? 'refused' : 'allowed'}`, measured, {
      ...{ ours, over: PEERS, describe: describeCalls },
      // Express itself is slower than a limited route of Fastify.
      asked: ours === 'rateLimit on Fastify' ? atLeast(1.2) : undefined,
    }),
  )
}

async function refusedRow(bench: Bench): Promise<Row> {
  const free = await makeQueue(bench, 'sluice', 'gateway')
  // No worker takes the job that fills it.
  const full = await makeQueue(bench, 'sluice', 'gateway', { capacity: 1, rate: '1/min' })
  await addJobs(full, 1)
  const post = ({ name: queue }: Queue, capacity: number, most: Trial['most']): Trial => {
    return { server: 'gateway', queue, capacity, path: `/queues/${queue}/jobs`, most }
  }
  const all = { admitted: post(free, 10_000_000, { refused: 0 }), refused: post(full, 1, { ok: 0 }) }
  const measured = await trials(bench, all, {
    ...{ connections: 50, seconds: bench.quick ? 1 : 4, body: JOB_BODY },
    reset: () => free.drain(),
  })
  await removeQueue(free)
  await removeQueue(full)
  return compared('a full queue', measured, {
    ...{ ours: 'refused', over: ['admitted'], of: ({ clientUs }) => clientUs },
    ...{ asked: atMost(0.5), describe: describeCalls },
  })
}

/** Each call has a different key. */
async function keysRow(bench: Bench, server: Server): Promise<Row> {
  const opened = await openServer(bench, { server, perMinute: 1_000_000 })
  try {
    const calling = { connections: 50, seconds: bench.quick ? 2 : 10 }
    const used = async () => [await usedMemory(bench.client), await opened.process.call('heapBytes')] as const
    await bench.client.flushdb()
    await callServer(bench, opened, '/', { ...calling, seconds: 1, keyOf: () => 'warm' })
    const before = await used()
    const { ok } = await callServer(bench, opened, '/', { ...calling, keyOf: (call) => `caller-${call}` })
    const after = await used()
    const [redis, process] = [(after[0] - before[0]) / ok, (after[1] - before[1]) / ok]
    const cells = [String(ok), redis.toFixed(0), process.toFixed(0)]
    return { setup: server, reached: cells.join(', '), cells, values: { keys: ok, redis, process } }
  } finally {
    await closeServer(opened)
  }
}

export const gateway: readonly Figure[] = [
  {
    name: 'gateway-post',
    title:
      'POST of one job to the gateway (Fastify) over a route of Fastify that calls queue.add of BullMQ and gives the same ' +
      'answer, and over one that returns only the id: requests per second and p99, median of interleaved rounds, the first ' +
      'discarded; CPU of the server and of Redis per request',
    run: (bench) => inTurn([1, 10, 100], (connections) => postRows(bench, connections)),
  },
  {
    name: 'gateway-limited',
    title:
      `A limited route, a fixed window of a minute in Redis for each of ${KEYS} API keys, a connection each: requests ` +
      'per second over the faster of @fastify/rate-limit and express-rate-limit, median of interleaved rounds, the first discarded',
    run: (bench) => inTurn([false, true], (isRefused) => limitedRows(bench, isRefused)),
  },
  {
    name: 'gateway-refused',
    title:
      "CPU of the gateway's process per refused POST over that per admitted one, 50 connections: median of " +
      'interleaved rounds, the first discarded',
    run: async (bench) => [await refusedRow(bench)],
  },
  {
    name: 'gateway-keys',
    title:
      'Memory per distinct key of a limited route, each seen once: in Redis, and in the process after a full collection',
    headings: ['', 'keys', 'Redis, bytes per key', 'process, bytes per key'],
    run: (bench) => inTurn(LIMITED, (server) => keysRow(bench, server)),
  },
]
