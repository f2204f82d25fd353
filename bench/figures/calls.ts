import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import type { Bench, Figure, Row } from '../figure.ts'
import type { System } from '../fleet/protocol.ts'
import { CallMonitor, UPKEEP } from '../measure/call-monitor.ts'
import { spacedLimiter } from '../paced-runs.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'

const RATES = [1, 10]
const WORKERS = [1, 4, 16, 32]
const QUICK_WORKERS = [1, 4, 16]
const CONCURRENCY = 10
const ASKED = 3
/** If the largest value is at most this many calls above the smallest, the row counts as flat. */
const FLAT_WITHIN = 1
/** Arrivals stay below the rate, so that the queue is empty again and again. */
const ARRIVALS_SHARE = 0.8
/** By then, every connection has sent its scripts once. */
const SETTLE_MS = 3000
const QUICK_SETTLE_MS = 1500
/** The backlog lasts this long, longer than the measurement of all groups together. */
const BACKLOG_S = 120
const SYSTEMS: readonly System[] = ['sluice', 'bullmq']

type Load = 'backlog' | 'arrivals'

interface Measured {
  readonly system: System
  readonly workers: number
  readonly jobs: number
  readonly callsPerJob: number
  readonly upkeep: number
  readonly calls: Readonly<Record<string, number>>
}

interface Running {
  readonly queue: Queue
  readonly system: System
  readonly workers: number
}

async function open(bench: Bench, load: Load, system: System, perSecond: number, workers: number): Promise<Running> {
  const queue = await makeQueue(bench, system, 'calls', { rate: `${perSecond}/s` })
  // Added before the workers start: idle workers would return from BullMQ's blocking wait during the measurement.
  if (load === 'backlog') await addJobs(queue, perSecond * BACKLOG_S)
  const spec = { system, queue: queue.name, redis: bench.redis, workers, concurrency: CONCURRENCY, jobMs: 0 }
  const limited = system === 'sluice' ? spec : { ...spec, limiter: spacedLimiter(perSecond) }
  await bench.fleet.process(`calls ${system}`).call('open', limited)
  return { queue, system, workers }
}

/**
 * When many workers start in one process, their first round trips are long. A worker wakes that long before its next
 * slot, and asks once too early; this is over after its second slot.
 */
function settleMs(bench: Bench, perSecond: number): number {
  const workers = Math.max(...(bench.quick ? QUICK_WORKERS : WORKERS))
  return (bench.quick ? QUICK_SETTLE_MS : SETTLE_MS) + ((2 * workers) / perSecond) * 1000
}

/** Keeps adding a job to each queue. @returns a function that stops it */
function keepAdding(running: readonly Running[], perSecond: number): () => void {
  const add = () => {
    for (const { queue } of running) queue.add('job', {}).catch((error: unknown) => console.error(error))
  }
  const timer = setInterval(add, 1000 / perSecond / ARRIVALS_SHARE)
  return () => clearInterval(timer)
}

function measuredOf({ queue, system, workers }: Running, monitor: CallMonitor, jobs: number): Measured {
  const calls = monitor.of(queue.name)
  const ofWorkers = [...calls].filter(([name]) => monitor.isScript(name) && !name.startsWith('add'))
  const count = (upkeep: boolean) =>
    ofWorkers.filter(([name]) => UPKEEP.includes(name) === upkeep).reduce((sum, [, times]) => sum + times, 0)
  return {
    ...{ system, workers, jobs },
    callsPerJob: count(false) / jobs,
    upkeep: count(true) / jobs,
    calls: Object.fromEntries(calls),
  }
}

async function measure(bench: Bench, monitor: CallMonitor, load: Load, perSecond: number): Promise<Measured[]> {
  const forMs = (bench.quick ? 4 : 20) * 1000
  const running: Running[] = []
  for (const workers of bench.quick ? QUICK_WORKERS : WORKERS) {
    for (const system of SYSTEMS) running.push(await open(bench, load, system, perSecond, workers))
  }
  const stop = load === 'arrivals' ? keepAdding(running, perSecond) : () => {}
  await sleep(settleMs(bench, perSecond))
  const completed = () => Promise.all(running.map(({ queue }) => bench.client.zcard(queue.toKey('completed'))))
  const before = await completed()
  monitor.reset()
  await sleep(forMs)
  const after = await completed()
  const measured = running.map((one, i) => measuredOf(one, monitor, (after[i] as number) - (before[i] as number)))
  stop()
  for (const { queue, system } of running) await bench.fleet.process(`calls ${system}`).call('close', queue.name)
  for (const { queue } of running) await removeQueue(queue)
  return measured
}

function row(load: Load, perSecond: number, measured: readonly Measured[]): Row {
  const of = (system: System) => measured.filter((one) => one.system === system)
  const list = (system: System, value: (one: Measured) => number) =>
    of(system)
      .map((one) => value(one).toFixed(1))
      .join(', ')
  const ours = of('sluice').map(({ callsPerJob }) => callsPerJob)
  const most = Math.max(...ours)
  const workers = of('sluice').map((one) => one.workers)
  return {
    setup: `${load === 'backlog' ? 'under a backlog' : 'steady arrivals'}, ${perSecond}/s, ${workers.join(', ')} workers`,
    ...(load === 'backlog'
      ? { asked: `<= ${ASKED} and flat`, ok: most <= ASKED && most - Math.min(...ours) <= FLAT_WITHIN }
      : {}),
    reached: `${list('sluice', (one) => one.callsPerJob)} (upkeep ${list('sluice', (one) => one.upkeep)})`,
    beside: `${list('bullmq', (one) => one.callsPerJob)} (upkeep ${list('bullmq', (one) => one.upkeep)})`,
    values: { measured },
  }
}

export const calls: Figure = {
  name: 'calls',
  title: 'Scripts that workers send per job; upkeep: lock renewal and stalled checks',
  run: async (bench) => {
    const monitor = await CallMonitor.start(bench.client)
    try {
      const rows: Row[] = []
      for (const load of ['backlog', 'arrivals'] as const) {
        for (const perSecond of RATES) rows.push(row(load, perSecond, await measure(bench, monitor, load, perSecond)))
      }
      return rows
    } finally {
      monitor.stop()
    }
  },
}
