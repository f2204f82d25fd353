import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { type Shape, ShapedFlowProducer, ShapedQueue, ShapedQueueEvents, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { startProxy } from '../test/support/proxy.ts'
import { ALONE, type Bench, connectionTo, type Figure, inTurn, noneLeft, type Row } from './harness/figure.ts'
import { describePace } from './harness/pace.ts'
import { addJobs, inGroup, makeQueue, type OptionsOf, removeQueue } from './harness/queues.ts'
import { connectedClients, infoOf, usedMemory } from './harness/redis.ts'
import { paced, type Work } from './harness/workers.ts'

const MIB = 1024 * 1024
const GROUPS = 10_000
/** For what is added in figures, however few jobs wait before. */
const ROOM = 50_000

/** Where a million jobs can wait. */
export interface Depth {
  readonly what: string
  readonly shape: Shape
  readonly opts: OptionsOf
}

export const DEPTHS: readonly Depth[] = [
  { what: 'the wait list', shape: {}, opts: {} },
  { what: 'priorities', shape: {}, opts: (i) => ({ priority: 1 + (i % 5) }) },
  { what: `${GROUPS} groups`, shape: { groups: { concurrency: 2 } }, opts: (i) => inGroup(`g${i % GROUPS}`) },
]

/** Of a queue in which so many jobs wait. */
export const capacityFor = (jobs: number): number => 2 * jobs + ROOM

/** A shaped queue in which so many jobs wait, on an empty Redis. */
export async function deepQueue(bench: Bench, { what, shape, opts }: Depth, jobs: number): Promise<ShapedQueue> {
  await bench.client.flushall()
  const queue = await makeQueue(bench, 'sluice', 'deep', { rate: '500/s', capacity: capacityFor(jobs), ...shape })
  await addJobs(queue, jobs, opts)
  const waiting = await queue.getJobCountByTypes('wait', 'prioritized')
  if (waiting !== jobs) throw new Error(`expected ${jobs} jobs in ${what}; there are ${waiting}`)
  return queue
}

/** Workers on a queue under a backlog. */
interface PacedCase {
  readonly what: string
  readonly work: Omit<Work, 'warmUpMs'>
  /** Default: as many jobs wait as are needed. */
  readonly depth?: Depth
  /** To Redis. Default: 0. */
  readonly roundTripMs?: number
}

const DEEP = { perSecond: 500, processes: 2, concurrency: 20, jobMs: 5 }
const FEW = { perSecond: 500, processes: 4, concurrency: 40, jobMs: 20 }
const WORKERS = 125
const MANY = { ...FEW, workers: WORKERS, concurrency: 2 }
const ALL_WORKERS = WORKERS * MANY.processes
const FAR = { perSecond: 100, processes: 2, workers: 2, concurrency: 50, jobMs: 20 }

const WAITING: readonly PacedCase[] = [
  { what: 'few jobs', work: DEEP },
  ...DEPTHS.map((depth) => ({ what: `a million in ${depth.what}`, work: DEEP, depth })),
]
const CREWS: readonly PacedCase[] = [
  { what: `${FEW.processes} workers × ${FEW.concurrency}`, work: FEW },
  { what: `${ALL_WORKERS} workers × ${MANY.concurrency}`, work: MANY },
]
const DISTANCES = [0, 20, 150].map((roundTripMs): PacedCase => ({ what: `${roundTripMs} ms`, work: FAR, roundTripMs }))

/** Hundreds of workers take seconds to open. With 500 on two processors, jobs are up to 170 ms late for two more. */
const WARM_UP_MS = 6000
/** The backlog lasts longer than the warm-up and the measurement. */
const BACKLOG_S = 60
const CALLS_ASKED = 3
const WAKES_ASKED = 0.1

async function pacedRow(bench: Bench, { what, depth, work, roundTripMs = 0 }: PacedCase): Promise<Row> {
  const far = await startProxy(`redis://${bench.redis.host}:${bench.redis.port}`)
  far.latency(roundTripMs)
  // Workers so far away cannot be sure of starting within 50 ms of a slot.
  const shape = { rate: `${work.perSecond}/s`, horizonMs: Math.max(50, 4 * roundTripMs) }
  const jobs = bench.quick ? 50_000 : 1_000_000
  const queue = depth ? await deepQueue(bench, depth, jobs) : await makeQueue(bench, 'sluice', 'scale', shape)
  try {
    if (!depth) await addJobs(queue, BACKLOG_S * work.perSecond)
    const redis = roundTripMs > 0 ? { host: far.host, port: far.port } : bench.redis
    const found = await paced(bench, queue, { ...work, redis, warmUpMs: WARM_UP_MS }, () =>
      sleep(bench.quick ? 3000 : 15_000),
    )
    const { rateKept, excessOfSlots, cost, connections, processes, starts } = { ...found, ...work }
    const isKept = Math.abs(rateKept - 1) <= 0.001 && excessOfSlots <= 0
    // If workers polled, or many were woken for one place, calls and wake-ups would grow with the number of workers.
    const ok = isKept && cost.calls <= CALLS_ASKED && cost.wakes <= WAKES_ASKED
    const perWorker = (connections - processes) / (processes * (work.workers ?? 1))
    const cells = [
      ...[describePace(found), ok ? 'yes' : 'NO', `${cost.calls.toFixed(2)}, ${cost.wakes.toFixed(3)}`],
      perWorker.toFixed(2),
    ]
    return { setup: what, reached: cells.join('; '), ok, cells, values: { ...found, starts: starts.length } }
  } finally {
    await removeQueue(queue)
    await far.stop()
  }
}

function pacedFigure(part: string, title: string, cases: readonly PacedCase[]): Figure {
  return {
    name: `scale-${part}`,
    title: `${title}: asked for 0.999 to 1.001 of the rate, <= ${CALLS_ASKED} scripts and ${WAKES_ASKED} wake-ups per start`,
    headings: ['', 'reached', 'ok', 'scripts, wake-ups per start', 'connections per worker'],
    run: (bench) => inTurn(cases, (one) => pacedRow(bench, one)),
  }
}

const OBJECTS = 10
const AT_ONCE = 50

interface Closable {
  waitUntilReady?(): Promise<unknown>
  close(): Promise<unknown>
}

type Connection = Redis | ReturnType<typeof connectionTo>
const KINDS: Readonly<Record<string, (connection: Connection, n: number) => Closable>> = {
  ShapedQueue: (connection, n) => new ShapedQueue(`objects-${n}`, { connection }),
  ShapedWorker: (connection, n) =>
    new ShapedWorker(`objects-${n}`, async () => {}, { connection }).on('error', () => {}),
  ShapedFlowProducer: (connection) => new ShapedFlowProducer({ connection }),
  ShapedQueueEvents: (connection, n) => new ShapedQueueEvents(`objects-${n}`, { connection }),
  Inspector: (connection) => new Inspector({ connection }),
}

/** How many connections each object of a kind opens, besides those of the client that it was given. */
async function connectionsPer({ client }: Bench, make: (n: number) => Closable): Promise<number> {
  // What was closed before is gone by then.
  await sleep(500)
  const before = await connectedClients(client)
  const objects = Array.from({ length: OBJECTS }, (_, n) => make(n))
  await Promise.all(objects.map((object) => object.waitUntilReady?.() ?? (object as Inspector).queues()))
  const opened = (await connectedClients(client)) - before
  await Promise.all(objects.map((object) => object.close()))
  return opened / OBJECTS
}

async function connectionRow(bench: Bench, kind: string): Promise<Row> {
  const make = KINDS[kind] as (typeof KINDS)[string]
  const shared = new Redis(connectionTo(bench.redis))
  await shared.ping()
  const own = await connectionsPer(bench, (n) => make(connectionTo(bench.redis), n))
  const given = await connectionsPer(bench, (n) => make(shared, n))
  await shared.quit()
  const reached = `${own.toFixed(1)} with options, ${given.toFixed(1)} with a client of the program`
  return { setup: `connections per ${kind}`, reached, values: { own, given } }
}

async function queueRows({ client, redis, quick }: Bench): Promise<Row[]> {
  const count = quick ? 1000 : 10_000
  const connection = new Redis(connectionTo(redis))
  await connection.ping()
  const read = async () => [await connectedClients(client), await usedMemory(client), process.memoryUsage().heapUsed]
  const before = await read()
  const options = { connection, shape: { rate: '100/s', capacity: 1000 }, admitTimeoutMs: 60_000 }
  const queues = Array.from({ length: count }, (_, i) => new ShapedQueue(`many-${i}`, options))
  const inSlices = async (deed: (queue: ShapedQueue) => Promise<unknown>) => {
    for (let from = 0; from < count; from += AT_ONCE) await Promise.all(queues.slice(from, from + AT_ONCE).map(deed))
  }
  await inSlices((queue) => queue.add('job', {}))
  const after = await read()
  const [opened = 0, bytes = 0, grown = 0] = after.map((value, i) => value - (before[i] as number))
  await inSlices((queue) => queue.obliterate({ force: true }))
  await inSlices((queue) => queue.close())
  connection.disconnect()
  const per = `${(bytes / count).toFixed(0)} bytes of Redis with one job, ${(grown / count / 1024).toFixed(1)} KB of heap`
  const one = { asked: '<= 1', reached: String(opened), ok: opened <= 1, values: { opened } }
  return [
    { setup: `${count} queues: each`, reached: per, values: { bytes, grown, count } },
    { setup: `${count} queues: connections`, ...one },
    noneLeft(`${count} queues: keys left`, await client.dbsize()),
  ]
}

async function dataRows(bench: Bench): Promise<Row[]> {
  const jobs = bench.quick ? 100 : 1000
  const work = { perSecond: 20, processes: 1, concurrency: 10, jobMs: 5, warmUpMs: 0 }
  const queue = await makeQueue(bench, 'sluice', 'data', { rate: `${work.perSecond}/s`, capacity: jobs })
  const data = { text: 'x'.repeat(MIB) }
  /** How often the data of a job cross the network, for each job of a deed. */
  const crossings = async (setup: string, direction: 'input' | 'output', deed: () => Promise<number>): Promise<Row> => {
    const bytes = async () => (await infoOf(bench.client, 'stats'))(`total_net_${direction}_bytes`)
    const before = await bytes()
    const each = (await deed().then(async (done) => ((await bytes()) - before) / done)) / MIB
    return { setup, asked: 'once', reached: `${each.toFixed(2)} times`, ok: each < 1.2, values: { each } }
  }
  const adding = (count: number) => async () => {
    for (let i = 0; i < count; i++) await queue.offer('job', data)
    return count
  }
  const rows = [
    await crossings('sent to Redis by an add', 'input', adding(jobs)),
    await crossings('sent to Redis by an add that is refused', 'input', adding(20)),
    await crossings(
      'sent to the worker',
      'output',
      async () => (await paced(bench, queue, work, () => sleep(5000))).starts.length,
    ),
  ]
  await removeQueue(queue)
  return rows
}

function figure(part: string, title: string, run: Figure['run']): Figure {
  return { name: `scale-${part}`, title, headings: ALONE, run }
}

export const scale: readonly Figure[] = [
  pacedFigure('waiting', 'Very many jobs wait', WAITING),
  pacedFigure('workers', 'Very many workers', CREWS),
  pacedFigure('distance', 'Workers whose round trip to Redis is long', DISTANCES),
  figure('queues', 'Connections of each object; very many queues on those of one client', async (bench) => {
    await bench.client.flushall()
    const rows = await inTurn(Object.keys(KINDS), (kind) => connectionRow(bench, kind))
    await bench.client.flushall()
    return [...rows, ...(await queueRows(bench))]
  }),
  figure('data', 'Jobs of 1 MB: how often their data cross the network', dataRows),
]
