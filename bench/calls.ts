import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import { ShapedQueue } from 'sluice'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { addJobs, makeQueue, removeQueue, type System, spacedLimiter } from './harness/queues.ts'
import { BLOCKING_WAIT, CallMonitor, type Calls, CONNECTION_WATCH } from './harness/scripts.ts'
import { sum } from './harness/statistics.ts'
import { type GroupSpec, workerProcess } from './harness/workers.ts'

const SYSTEMS = ['sluice', 'bullmq'] as const
const WORKERS = [1, 4, 16, 32]
const QUICK_WORKERS = [1, 4, 16]
const ASKED = 3
/** If the largest value is at most this many calls above the smallest, the row counts as flat. */
const FLAT_WITHIN = 1
/** Arrivals stay below the rate, so that the queue is empty again and again. */
const ARRIVALS_SHARE = 0.8
/** The backlog lasts this long, longer than the measurement of all groups together. */
const BACKLOG_S = 120

const hostOf = (bench: Bench, system: System) => workerProcess(bench, `calls ${system}`)

interface Opened {
  readonly queue: Queue
  readonly system: System
  readonly workers: number
}

async function openOn(bench: Bench, queue: Queue, spec: Omit<GroupSpec, 'queue' | 'redis'>): Promise<void> {
  await hostOf(bench, spec.system).call('open', { queue: queue.name, redis: bench.redis, ...spec })
}

async function closeAll(bench: Bench, opened: readonly Opened[]): Promise<void> {
  for (const { queue, system } of opened) {
    await hostOf(bench, system).call('close', queue.name)
    await removeQueue(queue)
  }
}

/** The same queue for each system and number of workers. */
async function openAll(bench: Bench, perSecond: number, backlog: number): Promise<Opened[]> {
  const opened: Opened[] = []
  for (const workers of bench.quick ? QUICK_WORKERS : WORKERS) {
    for (const system of SYSTEMS) {
      const queue = await makeQueue(bench, system, 'calls', { rate: `${perSecond}/s` })
      // Added before the workers start: idle workers would return from BullMQ's blocking wait during the measurement.
      await addJobs(queue, backlog)
      await openOn(bench, queue, { system, workers, concurrency: 10, limiter: spacedLimiter(perSecond) })
      opened.push({ queue, system, workers })
    }
  }
  return opened
}

async function callsRow(bench: Bench, monitor: CallMonitor, hasBacklog: boolean, perSecond: number): Promise<Row> {
  const opened = await openAll(bench, perSecond, hasBacklog ? perSecond * BACKLOG_S : 0)
  const add = () => {
    for (const { queue } of opened) queue.add('job', {}).catch((error: unknown) => console.error(error))
  }
  const adding = hasBacklog ? undefined : setInterval(add, 1000 / perSecond / ARRIVALS_SHARE)
  const workers = [...new Set(opened.map((one) => one.workers))]
  // When many workers start in one process, their first round trips are long. A worker wakes that long before its next
  // slot, and asks once too early; this is over after its second slot. By then, every connection has sent its scripts.
  await sleep((bench.quick ? 1500 : 3000) + (2000 * Math.max(...workers)) / perSecond)
  // Not by a script, which would be counted.
  const completed = () => Promise.all(opened.map(({ queue }) => bench.client.zcard(queue.toKey('completed'))))
  const before = await completed()
  monitor.reset()
  await sleep(bench.quick ? 4000 : 20_000)
  const after = await completed()
  const measured = opened.map(({ queue, system }, i) => {
    const jobs = (after[i] as number) - (before[i] as number)
    const { scripts, upkeep } = monitor.ofWorkers(queue.name)
    return {
      system,
      jobs,
      callsPerJob: scripts / jobs,
      upkeep: upkeep / jobs,
      all: Object.fromEntries(monitor.of(queue.name)),
    }
  })
  clearInterval(adding)
  await closeAll(bench, opened)
  const of = (system: System) => measured.filter((one) => one.system === system)
  const list = (system: System, what: 'callsPerJob' | 'upkeep') =>
    of(system)
      .map((one) => one[what].toFixed(1))
      .join(', ')
  const describe = (system: System) => `${list(system, 'callsPerJob')} (upkeep ${list(system, 'upkeep')})`
  const ours = of('sluice').map(({ callsPerJob }) => callsPerJob)
  const most = Math.max(...ours)
  return {
    setup: `${hasBacklog ? 'under a backlog' : 'steady arrivals'}, ${perSecond}/s, ${workers.join(', ')} workers`,
    ...(hasBacklog && {
      asked: `<= ${ASKED} and flat`,
      ok: most <= ASKED && most - Math.min(...ours) <= FLAT_WITHIN,
    }),
    reached: describe('sluice'),
    beside: describe('bullmq'),
    values: { measured },
  }
}

const IDLE_WORKERS = 16
const HELD_MS = 60_000

/** @param held whether a backlog waits for a paused meter, or for BullMQ's limiter */
async function openIdle(bench: Bench, system: System, held: boolean): Promise<Opened> {
  const queue = await makeQueue(bench, system, 'idle', { rate: '50/s' })
  if (held && queue instanceof ShapedQueue) await queue.pauseUntil(Date.now() + HELD_MS, { reason: 'bench' })
  if (held) await addJobs(queue, 100)
  const limiter = held ? { limiter: { max: 1, duration: HELD_MS } } : {}
  await openOn(bench, queue, { system, workers: IDLE_WORKERS, concurrency: 5, ...limiter })
  return { queue, system, workers: IDLE_WORKERS }
}

function idleRow(setup: string, ours: Calls, theirs: Calls): Row {
  const waits = [...ours].filter(([name]) => name !== CONNECTION_WATCH)
  const total = (calls: Iterable<readonly [string, number]>) => sum([...calls].map(([, times]) => times))
  const list = (calls: Calls) => [...calls].map(([name, times]) => `${name} ${times}`).join(', ') || 'none'
  return {
    setup,
    asked: "BullMQ's blocking wait only, beside the watch of the process's connection",
    reached: list(ours),
    ok: waits.every(([name]) => BLOCKING_WAIT.includes(name)) && total(waits) <= total(theirs),
    beside: list(theirs),
    values: { sluice: Object.fromEntries(ours), bullmq: Object.fromEntries(theirs) },
  }
}

async function idleRows(bench: Bench, monitor: CallMonitor): Promise<Row[]> {
  const opened: Opened[] = []
  for (const held of [false, true]) for (const system of SYSTEMS) opened.push(await openIdle(bench, system, held))
  await sleep(2000)
  monitor.reset()
  await sleep(bench.quick ? 6000 : 20_000)
  const counted = opened.map(({ queue }): Calls => new Map(monitor.of(queue.name)))
  await closeAll(bench, opened)
  const [empty, stockEmpty, paused, limited] = counted as [Calls, Calls, Calls, Calls]
  return [
    idleRow('the queue is empty', empty, stockEmpty),
    idleRow('the meter is paused, a backlog waits (BullMQ: limiter closed)', paused, limited),
  ]
}

export const calls: readonly Figure[] = [
  {
    name: 'calls',
    title: 'Scripts that workers send per job; upkeep: lock renewal and stalled checks',
    run: (bench) =>
      CallMonitor.during(bench.client, (monitor) =>
        inTurn([true, false], (hasBacklog) =>
          inTurn([1, 10], (perSecond) => callsRow(bench, monitor, hasBacklog, perSecond)),
        ),
      ),
  },
  {
    name: 'idle',
    title: `Redis calls of ${IDLE_WORKERS} idle workers over 20 s`,
    run: (bench) => CallMonitor.during(bench.client, (monitor) => idleRows(bench, monitor)),
  },
]
