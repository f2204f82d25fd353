import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import type { Shape } from 'sluice'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import {
  addJobs,
  amongGroups,
  makeQueue,
  type OptionsOf,
  removeQueue,
  type System,
  spacedLimiter,
} from './harness/queues.ts'
import { CallMonitor } from './harness/scripts.ts'
import { Team } from './harness/workers.ts'

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

interface Opened {
  readonly queue: Queue
  readonly system: System
  readonly workers: number
  readonly team: Team
}

interface Scenario {
  readonly what: string
  readonly perSecond: number
  readonly hasBacklog: boolean
  /** Of Sluice's queue and jobs, besides the rate. */
  readonly shape?: Shape
  readonly opts?: OptionsOf
}

const BACKLOG = { what: 'under a backlog', hasBacklog: true }
const STEADY = { what: 'steady arrivals', hasBacklog: false }
const SCENARIOS: readonly Scenario[] = [
  ...[BACKLOG, STEADY].flatMap((scenario) => [1, 10].map((perSecond) => ({ ...scenario, perSecond }))),
  { ...BACKLOG, what: '10 groups of 1/s', perSecond: 10, shape: { groups: { rate: '1/s' } }, opts: amongGroups(10) },
]

/** The same queue for each system and number of workers. */
async function openAll(bench: Bench, { perSecond, hasBacklog, shape, opts }: Scenario): Promise<Opened[]> {
  const opened: Opened[] = []
  for (const workers of bench.quick ? QUICK_WORKERS : WORKERS) {
    for (const system of SYSTEMS) {
      const queue = await makeQueue(bench, system, 'calls', { rate: `${perSecond}/s`, ...shape })
      // Added before the workers start: idle workers would return from BullMQ's blocking wait during the measurement.
      await addJobs(queue, hasBacklog ? perSecond * BACKLOG_S : 0, system === 'sluice' ? opts : {})
      const spec = { system, processes: 1, workers, concurrency: 10, limiter: spacedLimiter(perSecond) }
      opened.push({ queue, system, workers, team: await Team.open(bench, queue, spec, `calls ${system}`) })
    }
  }
  return opened
}

/** Scripts per job of each queue, for the jobs and for upkeep. */
async function counted(bench: Bench, monitor: CallMonitor, opened: readonly Opened[]) {
  // Not by a script, which would be counted.
  const completed = () => Promise.all(opened.map(({ queue }) => bench.client.zcard(queue.toKey('completed'))))
  const before = await completed()
  monitor.reset()
  await sleep(bench.quick ? 4000 : 20_000)
  const after = await completed()
  return opened.map(({ queue, system }, i) => {
    const jobs = (after[i] as number) - (before[i] as number)
    const { scripts, upkeep } = monitor.ofWorkers(queue.name)
    const all = Object.fromEntries(monitor.of(queue.name))
    return { system, jobs, scripts: scripts / jobs, upkeep: upkeep / jobs, all }
  })
}

async function callsRow(bench: Bench, monitor: CallMonitor, scenario: Scenario): Promise<Row> {
  const { what, perSecond, hasBacklog } = scenario
  const opened = await openAll(bench, scenario)
  const add = () => {
    for (const { queue } of opened) queue.add('job', {}).catch((error: unknown) => console.error(error))
  }
  const adding = hasBacklog ? undefined : setInterval(add, 1000 / perSecond / ARRIVALS_SHARE)
  const workers = [...new Set(opened.map((one) => one.workers))]
  // When many workers start in one process, their first round trips are long. A worker wakes that long before its next
  // slot, and asks once too early; this is over after its second slot. By then, every connection has sent its scripts.
  await sleep((bench.quick ? 1500 : 3000) + (2000 * Math.max(...workers)) / perSecond)
  const measured = await counted(bench, monitor, opened)
  clearInterval(adding)
  for (const { queue, team } of opened) {
    await team.close()
    await removeQueue(queue)
  }
  const list = (system: System, field: 'scripts' | 'upkeep') =>
    measured.filter((one) => one.system === system).map((one) => one[field])
  const inWords = (values: readonly number[]) => values.map((value) => value.toFixed(1)).join(', ')
  const describe = (system: System) => `${inWords(list(system, 'scripts'))} (upkeep ${inWords(list(system, 'upkeep'))})`
  const [least, most] = [Math.min(...list('sluice', 'scripts')), Math.max(...list('sluice', 'scripts'))]
  return {
    setup: `${what}, ${perSecond}/s, ${workers.join(', ')} workers`,
    ...(hasBacklog && { asked: `<= ${ASKED} and flat`, ok: most <= ASKED && most - least <= FLAT_WITHIN }),
    reached: describe('sluice'),
    beside: describe('bullmq'),
    values: { measured },
  }
}

export const calls: Figure = {
  name: 'calls',
  title: 'Scripts that workers send per job; upkeep: lock renewal and stalled checks',
  run: (bench) =>
    CallMonitor.during(bench.client, (monitor) => inTurn(SCENARIOS, (scenario) => callsRow(bench, monitor, scenario))),
}
