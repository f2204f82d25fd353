import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { type Shape, ShapedFlowProducer, ShapedQueue, ShapedQueueEvents, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { startProxy } from '../test/support/proxy.ts'
import type { Start } from './harness/clock.ts'
import { type Bench, connectionTo, type Figure, inTurn, noneLeft, type Row } from './harness/figure.ts'
import { describePace, type Pace, paceOf } from './harness/pace.ts'
import { addJobs, inGroup, makeQueue, type OptionsOf, removeQueue, type System } from './harness/queues.ts'
import { connectedClients, infoOf, usedMemory } from './harness/redis.ts'
import { describeSlow, type SlowCommand, SlowCommands, slowRow } from './harness/scripts.ts'
import { type Paced, paced, type Work } from './harness/workers.ts'

const BY = { by: 'bench', reason: 'scale' }
const MIB = 1024 * 1024
const GROUPS = 10_000
const FILLINGS = 10
/** For what is added in figures, however few jobs wait before. */
const ROOM = 50_000

/** Where a million jobs can wait. */
export interface Depth {
  /** The name of its figure. */
  readonly figure: string
  readonly what: string
  readonly shape: Shape
  readonly opts: OptionsOf
}

export const DEPTHS: readonly Depth[] = [
  { figure: 'scale-waiting', what: 'the wait list', shape: {}, opts: {} },
  { figure: 'scale-priorities', what: 'priorities', shape: {}, opts: (i) => ({ priority: 1 + (i % 5) }) },
  {
    figure: 'scale-groups',
    what: `${GROUPS} groups`,
    shape: { groups: { concurrency: 2 } },
    opts: (i) => inGroup(`g${i % GROUPS}`),
  },
  { figure: 'scale-delays', what: 'delays', shape: {}, opts: (i) => ({ delay: 3_600_000 + i }) },
]

/** Of a queue in which so many jobs wait. */
export const capacityFor = (jobs: number): number => 2 * jobs + ROOM

/** A shaped queue in which so many jobs wait, filled in some rounds. */
export async function deepQueue({ client, ...bench }: Bench, depth: Depth, jobs: number, slow: SlowCommands) {
  const { what, shape, opts } = depth
  const queue = await makeQueue(bench, 'sluice', 'deep', { rate: '500/s', capacity: capacityFor(jobs), ...shape })
  const [bytes, keys] = [await usedMemory(client), await client.dbsize()]
  const filling = await slow.during(FILLINGS, () => addJobs(queue, jobs / FILLINGS, opts))
  const waiting = await queue.getJobCountByTypes('wait', 'prioritized', 'delayed')
  if (waiting !== jobs) throw new Error(`expected ${jobs} jobs in ${what}; there are ${waiting}`)
  const bytesPerJob = ((await usedMemory(client)) - bytes) / jobs
  return { queue, filling, bytesPerJob, keysPerJob: ((await client.dbsize()) - keys) / jobs }
}

/** A job that as many leave before as after. */
export async function middleOf(queue: Queue, jobs: number): Promise<string> {
  const [found] = await queue.getJobs(['wait', 'prioritized', 'delayed'], jobs / 2, jobs / 2)
  return found?.id as string
}

/** Hundreds of workers take seconds to open. With 500 on two processors, jobs are up to 170 ms late for two more. */
const WARM_UP_MS = 6000
type During = () => Promise<unknown>

const pacedOn = (bench: Bench, queue: Queue, work: Omit<Work, 'warmUpMs'>, during?: During): Promise<Paced> =>
  paced(bench, queue, { ...work, warmUpMs: WARM_UP_MS }, during ?? (() => sleep(bench.quick ? 3000 : 15_000)))

function paceRow(setup: string, found: Paced, asked: Pick<Row, 'asked' | 'ok'> = {}): Row {
  return { setup, ...asked, reached: describePace(found), values: { ...found, starts: found.starts.length } }
}

const sameRate = (found: Pace, than: Pace) => Math.abs(found.rateKept - than.rateKept) <= 0.001

const DEEP: Omit<Work, 'warmUpMs'> = { perSecond: 500, processes: 2, concurrency: 20, jobMs: 5 }
/** How often the same is done, to tell what takes Redis long from what else the machine does. */
const ROUNDS = 5
const STOCK_JOBS = 50_000

/** What producers and people do while so many jobs wait. */
type Deeds = Readonly<Record<string, (round: number) => Promise<unknown>>>

function deedsOf(queue: ShapedQueue, inspector: Inspector, { what, opts }: Depth, jobs: number, middle: string): Deeds {
  const { name } = queue
  const state = what === 'delays' ? 'delayed' : what === 'the wait list' ? 'waiting' : 'prioritized'
  const after = async (round: number) => {
    const [job] = await inspector.jobs(name, state, { start: Math.floor(jobs / 3) + round, count: 1 })
    return queue.getJob(job?.id as string)
  }
  return {
    add: () => queue.add('job', {}),
    'addBulk of 1,000': () => addJobs(queue, 1000, opts),
    offer: () => queue.offer('job', {}),
    'add with a deadline': () => queue.offer('job', {}, { mustStartBefore: Date.now() + 3_600_000 }),
    counts: () => queue.getJobCounts(),
    status: () => inspector.status([name]),
    'a page of jobs in the middle': () => inspector.jobs(name, state, { start: jobs / 2, count: 50 }),
    groups: () => inspector.groups(name),
    'explain a job in the middle': () => inspector.explain(name, middle),
    'remove a job in the middle': async (round) => (await after(round))?.remove(),
    setShape: (round) => queue.setShape({ rate: `${500 + round}/s` }, BY).then(() => queue.clearShape()),
    pause: () => queue.pauseUntil(Date.now() + 1000, BY).then(() => queue.clearPause()),
  }
}

/** The slowest command of each deed, the slowest deed first. */
async function deedsRow(label: string, slow: SlowCommands, deeds: Deeds): Promise<Row> {
  const found: { what: string; slowest: readonly SlowCommand[] }[] = []
  for (const [what, deed] of Object.entries(deeds)) found.push({ what, slowest: await slow.during(ROUNDS, deed) })
  found.sort((a, b) => (b.slowest[0]?.ms ?? 0) - (a.slowest[0]?.ms ?? 0))
  const worst = found.slice(0, 4).map(({ what, slowest }) => `${what}: ${describeSlow(slowest, 1)}`)
  const all = found.flatMap(({ slowest }) => slowest)
  return slowRow(`${label}: what is done meanwhile`, all, worst.join('; '))
}

async function bytesPerJobOf(bench: Bench, system: System, jobs: number, opts: OptionsOf): Promise<number> {
  const queue = await makeQueue(bench, system, 'bytes')
  const before = await usedMemory(bench.client)
  await addJobs(queue, jobs, opts)
  const bytes = (await usedMemory(bench.client)) - before
  await removeQueue(queue)
  return bytes / jobs
}

async function withBacklog<T>(bench: Bench, shape: Shape, jobs: number, use: (queue: ShapedQueue) => Promise<T>) {
  const queue = await makeQueue(bench, 'sluice', 'scale', shape)
  try {
    await addJobs(queue, jobs)
    return await use(queue)
  } finally {
    await removeQueue(queue)
  }
}

async function waitingRows(bench: Bench, depth: Depth): Promise<Row[]> {
  await bench.client.flushall()
  const slow = await SlowCommands.start(bench.client)
  const rate = `${DEEP.perSecond}/s`
  const few = await withBacklog(bench, { rate }, 20 * DEEP.perSecond, (queue) => pacedOn(bench, queue, DEEP))
  const jobs = bench.quick ? 50_000 : 1_000_000
  const label = `${jobs} in ${depth.what}`
  const beside = await bytesPerJobOf(bench, 'bullmq', Math.min(jobs, STOCK_JOBS), depth.opts)
  const { queue, filling, bytesPerJob, keysPerJob } = await deepQueue(bench, depth, jobs, slow)
  const inspector = new Inspector({ connection: connectionTo(bench.redis) })
  const rows: Row[] = [
    {
      setup: `${label}: memory per job`,
      reached: `${bytesPerJob.toFixed(0)} bytes, ${keysPerJob.toFixed(2)} keys`,
      beside: `${beside.toFixed(0)} bytes`,
      values: { bytesPerJob, keysPerJob, beside },
    },
    slowRow(`${label}: filling`, filling),
    await deedsRow(label, slow, deedsOf(queue, inspector, depth, jobs, await middleOf(queue, jobs))),
  ]
  if (depth.what !== 'delays') {
    let slowest: readonly SlowCommand[] = []
    const held = await pacedOn(bench, queue, DEEP, async () => {
      slowest = await slow.during(ROUNDS, () => sleep(bench.quick ? 600 : 3000))
    })
    const row = paceRow(`${label}: rate, lateness`, held, { asked: 'as with few jobs', ok: sameRate(held, few) })
    rows.push({ ...row, reached: `${row.reached}; with few ${describePace(few)}` })
    rows.push(slowRow(`${label}: workers at ${rate}`, slowest))
  }
  await inspector.close()
  rows.push(slowRow(`${label}: drain`, await slow.during(1, () => queue.drain(true))))
  await removeQueue(queue)
  return [...rows, noneLeft(`${label}: keys left`, await bench.client.dbsize())]
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

/** How many connections each object of a kind opens, beside those of the client that they were given. */
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

async function connectionRow(bench: Bench, kind: string, make: (connection: Connection, n: number) => Closable) {
  const shared = new Redis(connectionTo(bench.redis))
  await shared.ping()
  const own = await connectionsPer(bench, (n) => make(connectionTo(bench.redis), n))
  const beside = await connectionsPer(bench, (n) => make(shared, n))
  await shared.quit()
  const reached = `${own.toFixed(1)} with options, ${beside.toFixed(1)} with a client of the program`
  return { setup: `connections per ${kind}`, reached, values: { own, beside } }
}

async function queueRows({ client, redis, quick }: Bench): Promise<Row[]> {
  const count = quick ? 1000 : 10_000
  const connection = new Redis(connectionTo(redis))
  const slow = await SlowCommands.start(client)
  await connection.ping()
  const read = async () => [await connectedClients(client), await usedMemory(client), process.memoryUsage().heapUsed]
  const before = await read()
  const options = { connection, shape: { rate: '100/s', capacity: 1000 }, admitTimeoutMs: 60_000 }
  const queues = Array.from({ length: count }, (_, i) => new ShapedQueue(`many-${i}`, options))
  const inSlices = async (deed: (queue: ShapedQueue) => Promise<unknown>) => {
    for (let from = 0; from < count; from += AT_ONCE) await Promise.all(queues.slice(from, from + AT_ONCE).map(deed))
  }
  const startedMs = performance.now()
  const slowest = await slow.during(1, () => inSlices((queue) => queue.add('job', {})))
  const ms = performance.now() - startedMs
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
    { setup: `${count} queues: first add`, reached: `${((ms * 1000) / count).toFixed(0)} µs each`, values: { ms } },
    slowRow(`${count} queues: the slowest script`, slowest),
    noneLeft(`${count} queues: keys left`, await client.dbsize()),
  ]
}

function crossingsRow(setup: string, bytes: number, jobs: number): Row {
  const each = bytes / jobs / MIB
  return { setup, asked: 'once', reached: `${each.toFixed(2)} times`, ok: each < 1.2, values: { bytes, jobs } }
}

async function dataRows(bench: Bench): Promise<Row[]> {
  const { client } = bench
  const jobs = bench.quick ? 100 : 1000
  const work = { perSecond: 20, processes: 1, concurrency: 10, jobMs: 5 }
  const slow = await SlowCommands.start(client)
  const queue = await makeQueue(bench, 'sluice', 'data', { rate: `${work.perSecond}/s`, capacity: jobs })
  const data = { text: 'x'.repeat(MIB) }
  const bytesThrough = async (what: string) => (await infoOf(client, 'stats'))(`total_net_${what}_bytes`)
  /** What a deed sends over the network, and the scripts that are slow meanwhile. */
  const during = async (what: 'input' | 'output', deed: () => Promise<unknown>) => {
    const before = await bytesThrough(what)
    const slowest = await slow.during(1, deed)
    return { bytes: (await bytesThrough(what)) - before, slowest }
  }
  const memory = await usedMemory(client)
  const adding = await during('input', async () => {
    for (let i = 0; i < jobs; i++) await queue.add('job', data)
  })
  const bytesPerJob = ((await usedMemory(client)) - memory) / jobs
  const refusing = await during('input', async () => {
    for (let i = 0; i < 20; i++) await queue.add('job', data).catch(() => {})
  })
  let started = 0
  const working = await during('output', async () => {
    started = (await pacedOn(bench, queue, work, () => sleep(3000))).starts.length
  })
  await removeQueue(queue)
  return [
    { setup: 'memory per job', reached: `${(bytesPerJob / MIB).toFixed(2)} MiB`, values: { bytesPerJob } },
    crossingsRow('sent to Redis by an add', adding.bytes, jobs),
    crossingsRow('sent to Redis by an add that is refused', refusing.bytes, 20),
    crossingsRow('sent to the worker', working.bytes, started),
    slowRow('add: the slowest script', adding.slowest),
    slowRow('an add that is refused: the slowest script', refusing.slowest),
    slowRow('workers: the slowest script', working.slowest),
  ]
}

const CALLS_ASKED = 3
const WAKES_ASKED = 0.1
const FEW: Omit<Work, 'warmUpMs'> = { perSecond: 500, processes: 4, concurrency: 40, jobMs: 20 }
const WORKERS = 125
const MANY: Omit<Work, 'warmUpMs'> = { ...FEW, workers: WORKERS, concurrency: 2 }
const ALL_WORKERS = WORKERS * MANY.processes
/** The backlog lasts longer than hundreds of workers take to open, and the measurement after that. */
const BACKLOG_S = 60

async function workerRows(bench: Bench): Promise<Row[]> {
  const slow = await SlowCommands.start(bench.client)
  const rate = `${FEW.perSecond}/s`
  const measure = (work: typeof FEW) =>
    withBacklog(bench, { rate }, FEW.perSecond * BACKLOG_S, (queue) => pacedOn(bench, queue, work))
  const few = await measure(FEW)
  let many = few
  const slowest = await slow.during(1, async () => {
    many = await measure(MANY)
  })
  const describe = ({ cost }: Paced) => `${cost.calls.toFixed(2)} scripts, ${cost.wakes.toFixed(3)} wake-ups`
  const { cost, connections } = many
  const each = (connections - MANY.processes) / ALL_WORKERS
  return [
    paceRow(`${FEW.processes} workers × ${FEW.concurrency}`, few),
    paceRow(`${ALL_WORKERS} workers × ${MANY.concurrency}`, many, {
      ...{ asked: 'as with few', ok: many.excessOfSlots <= 0 && sameRate(many, few) },
    }),
    {
      // If workers polled, or many were woken for one place, calls and wake-ups would grow with the number of workers.
      setup: 'for each start',
      asked: `<= ${CALLS_ASKED} scripts, <= ${WAKES_ASKED} wake-ups`,
      reached: `${describe(many)}; with few ${describe(few)}`,
      ok: cost.calls <= CALLS_ASKED && cost.wakes <= WAKES_ASKED,
      values: cost,
    },
    { setup: 'connections per worker', reached: each.toFixed(2), values: { connections } },
    slowRow('the slowest script', slowest),
  ]
}

const FAR: Omit<Work, 'warmUpMs'> = { perSecond: 100, processes: 2, workers: 2, concurrency: 50, jobMs: 20 }

async function distanceRow(bench: Bench, roundTripMs: number): Promise<Row> {
  const far = await startProxy(`redis://${bench.redis.host}:${bench.redis.port}`)
  far.latency(roundTripMs)
  // Workers so far away cannot be sure of starting within 50 ms of a slot.
  const shape = { rate: `${FAR.perSecond}/s`, horizonMs: Math.max(50, 4 * roundTripMs) }
  const redis = { host: far.host, port: far.port }
  try {
    const found = await withBacklog(bench, shape, FAR.perSecond * BACKLOG_S, (queue) =>
      pacedOn(bench, queue, { ...FAR, redis }),
    )
    const ok = found.excessOfSlots <= 0 && Math.abs(found.rateKept - 1) <= 0.001
    return paceRow(`${roundTripMs} ms`, found, { asked: 'rate 0.999 to 1.001, above by 0', ok })
  } finally {
    await far.stop()
  }
}

const DAY: Omit<Work, 'warmUpMs'> = { perSecond: 200, processes: 2, workers: 2, concurrency: 20, jobMs: 5 }
const HOURS = 24
/** Arrivals come in so many steps an hour. */
const STEPS = 20
/** As soon as nothing waits, what is kept for a while runs out. */
const KEPT_MS = 35_000

/** The share of the rate that arrives in an hour of the day: quiet at night, above the rate before noon and in the evening. */
function arrivalsAt(hour: number): number {
  const peak = (at: number) => Math.exp(-((hour - at) ** 2) / 6)
  return 0.1 + 1.4 * peak(10) + 1.4 * peak(20)
}

/** One job in some has a priority, a delay, or an idempotency key. */
async function arrive(queue: ShapedQueue, n: number): Promise<unknown> {
  const opts = { removeOnComplete: true, removeOnFail: true }
  if (n % 10 === 0) return queue.offer('job', {}, { ...opts, priority: 1 + (n % 3) })
  if (n % 11 === 0) return queue.offer('job', {}, { ...opts, delay: 200 })
  if (n % 13 !== 0) return queue.offer('job', {}, opts)
  const once = { key: `k${n}`, fingerprint: 'f', ttlMs: 5000 }
  return queue.addOnce([{ name: 'job', data: {}, opts }], once).catch(() => {})
}

async function wholeDay(queue: ShapedQueue, hourMs: number): Promise<void> {
  const stepMs = hourMs / STEPS
  let [due, n] = [0, 0]
  const startedMs = performance.now()
  for (let step = 0; step < HOURS * STEPS; step++) {
    due += (arrivalsAt(step / STEPS) * DAY.perSecond * stepMs) / 1000
    const arrivals: Promise<unknown>[] = []
    for (; n < due; n++) arrivals.push(arrive(queue, n))
    await Promise.all(arrivals)
    await sleep(Math.max(0, startedMs + (step + 1) * stepMs - performance.now()))
  }
  while ((await queue.getJobCountByTypes('wait', 'prioritized', 'delayed', 'active')) > 0) await sleep(100)
}

async function dayRows(bench: Bench): Promise<Row[]> {
  const { client } = bench
  await client.flushall()
  const hourMs = bench.quick ? 1000 : 4500
  const slow = await SlowCommands.start(client)
  const queue = await makeQueue(bench, 'sluice', 'day', { rate: `${DAY.perSecond}/s`, capacity: 100_000 })
  const [keys, memory] = [await client.dbsize(), await usedMemory(client)]
  let starts: readonly Start[] = []
  const slowest = await slow.during(1, async () => {
    starts = (await pacedOn(bench, queue, DAY, () => wholeDay(queue, hourMs))).starts
  })
  await sleep(KEPT_MS)
  const [keysAfter, memoryAfter] = [await client.dbsize(), await usedMemory(client)]
  await removeQueue(queue)
  const firstUs = starts[0]?.startedUs ?? 0
  const between = (from: number, to: number) => {
    const hourOf = ({ startedUs }: Start) => (startedUs - firstUs) / 1000 / hourMs
    return paceOf(
      starts.filter((start) => hourOf(start) >= from && hourOf(start) < to),
      DAY.perSecond,
    )
  }
  const [morning, evening] = [between(9, 13), between(19, 23)]
  const asked = { asked: 'as in the morning', ok: sameRate(evening, morning) }
  return [
    { setup: 'morning, while jobs wait', reached: describePace(morning), values: morning },
    { setup: 'evening, while jobs wait', ...asked, reached: describePace(evening), values: evening },
    slowRow('the slowest script', slowest),
    {
      setup: `after ${starts.length} jobs, the queue is empty`,
      reached: `${keysAfter} keys (before: ${keys}), ${((memoryAfter - memory) / 1024).toFixed(0)} KB more memory`,
      values: { keys, keysAfter, memory, memoryAfter },
    },
    noneLeft('keys left', await client.dbsize()),
  ]
}

/** The first are one for each place where jobs can wait. */
export const scale: readonly Figure[] = [
  ...DEPTHS.map((depth) => ({
    name: depth.figure,
    title: `Very many jobs wait in ${depth.what}: memory, the slowest command of Redis (median of rounds), rate, lateness`,
    run: (bench: Bench) => waitingRows(bench, depth),
  })),
  {
    name: 'scale-queues',
    title: 'Very many queues on the connections of one client, and the connections that each object opens',
    run: async (bench) => {
      await bench.client.flushall()
      const rows = await inTurn(Object.entries(KINDS), ([kind, make]) => connectionRow(bench, kind, make))
      await bench.client.flushall()
      return [...rows, ...(await queueRows(bench))]
    },
  },
  {
    name: 'scale-data',
    title: 'Jobs of 1 MB: memory, how often their data cross the network, the slowest script',
    run: dataRows,
  },
  {
    name: 'scale-workers',
    title: `${ALL_WORKERS} workers on one queue, in ${MANY.processes} processes: rate, lateness, calls, connections, the slowest script`,
    run: workerRows,
  },
  {
    name: 'scale-distance',
    title: `Workers whose round trip to Redis is long: rate and lateness at ${FAR.perSecond}/s`,
    run: (bench) => inTurn([0, 20, 150], (roundTripMs) => distanceRow(bench, roundTripMs)),
  },
  {
    name: 'scale-day',
    title:
      'A day of traffic in quick motion, with two peaks above the rate: what is left of it, and the evening beside the morning',
    run: dayRows,
  },
]
