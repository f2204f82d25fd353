import { setTimeout as sleep } from 'node:timers/promises'
import type { Shape, ShapedQueue } from 'sluice'
import { redisTimeUs } from './harness/clock.ts'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { CallMonitor, NO_POLL } from './harness/scripts.ts'
import { Team, type TeamSpec } from './harness/workers.ts'

const BY = { by: 'bench', reason: 'a change to be obeyed or felt' }
const FAST = { rate: '100/s' }
const CREEP = { rate: '1/min' }
/** By then, every worker has noticed that there are others. */
const SETTLE_MS = 1000

/** Workers in several processes on a queue with a backlog. */
interface Crew {
  readonly bench: Bench
  readonly queue: ShapedQueue
  readonly team: Team
}

async function withCrew(
  bench: Bench,
  { shape, jobs, ...work }: Omit<TeamSpec, 'processes'> & { shape: Shape; jobs: number },
  use: (crew: Crew) => Promise<Row[]>,
): Promise<Row[]> {
  const queue = await makeQueue(bench, 'sluice', 'changes', shape)
  await addJobs(queue, jobs)
  const team = await Team.open(bench, queue, { processes: 4, ...work })
  try {
    await sleep(SETTLE_MS)
    return await use({ bench, queue, team })
  } finally {
    await team.close()
    await removeQueue(queue)
  }
}

interface Change {
  readonly what: string
  make(queue: ShapedQueue): Promise<void>
  undo(queue: ShapedQueue): Promise<void>
}

const pause = (queue: ShapedQueue) => queue.pauseUntil(Date.now() + 60_000, BY)
const creep = (queue: ShapedQueue) => queue.setShape(CREEP, BY)

const HALTS: readonly Change[] = [
  { what: 'a pause', make: pause, undo: (queue) => queue.clearPause() },
  { what: 'a rate lowered from 500/s to 1/min', make: creep, undo: (queue) => queue.clearShape() },
]
const WAKES: readonly Change[] = [
  { what: 'a raised rate, 1/min to 100/s', make: creep, undo: (queue) => queue.setShape(FAST, BY) },
  { what: 'a lifted pause', make: pause, undo: (queue) => queue.clearPause() },
  { what: 'a cleared override of 1/min', make: creep, undo: (queue) => queue.clearShape() },
]

/** The default of `horizonMs`. */
const HORIZON_MS = 50
const RUN_MS = 300

/** Times after the change was requested, ms. */
async function haltOnce({ bench, queue, team }: Crew, change: Change) {
  await sleep(RUN_MS)
  const fromUs = await redisTimeUs(bench.client)
  await change.make(queue)
  const roundTripMs = ((await redisTimeUs(bench.client)) - fromUs) / 1000
  await sleep(RUN_MS)
  const last = (await team.takeStarts()).starts.at(-1)
  await change.undo(queue)
  const afterwardsMs = (us = Number.NaN) => (us - fromUs) / 1000 - roundTripMs
  return { lastStartMs: afterwardsMs(last?.startedUs), lastSlotMs: afterwardsMs(last?.slotUs), roundTripMs }
}

async function haltRow(crew: Crew, change: Change): Promise<Row> {
  const halts: Awaited<ReturnType<typeof haltOnce>>[] = []
  for (let i = 0; i < (crew.bench.quick ? 3 : 10); i++) halts.push(await haltOnce(crew, change))
  const longest = (field: keyof (typeof halts)[number]) => Math.max(...halts.map((halt) => halt[field]))
  return {
    setup: change.what,
    asked: `<= ${HORIZON_MS} ms + round trip`,
    reached:
      `max of ${halts.length}: last start ${longest('lastStartMs').toFixed(1)} ms + round trip ` +
      `(longest ${longest('roundTripMs').toFixed(1)} ms); last slot ${longest('lastSlotMs').toFixed(1)} ms`,
    ok: longest('lastStartMs') <= HORIZON_MS,
    values: { halts },
  }
}

const ASKED_MS = 100
/** By then, the jobs granted ahead have left, and all workers sleep. */
const FALL_ASLEEP_MS = 300
/** How long sleeping workers are observed: long enough to notice one that polls. */
const ASLEEP_MS = 500
const FELT_MS = 400

async function wakeOnce({ bench, queue, team }: Crew, monitor: CallMonitor, change: Change) {
  await change.make(queue)
  await sleep(FALL_ASLEEP_MS)
  await team.takeStarts()
  monitor.reset()
  await sleep(ASLEEP_MS)
  const polls = [...monitor.of(queue.name)].filter(([name]) => !NO_POLL.includes(name))
  const fromUs = await redisTimeUs(bench.client)
  await change.undo(queue)
  await sleep(FELT_MS)
  const first = (await team.takeStarts()).starts.find(({ startedUs }) => startedUs >= fromUs)
  const ms = first ? (first.startedUs - fromUs) / 1000 : Number.POSITIVE_INFINITY
  return { ms, polls: polls.map(([name, times]) => `${name} ${times}`) }
}

async function wakeRow(crew: Crew, monitor: CallMonitor, change: Change): Promise<Row> {
  const wakes: Awaited<ReturnType<typeof wakeOnce>>[] = []
  const times = crew.bench.quick ? 2 : 10
  for (let i = 0; i < times; i++) wakes.push(await wakeOnce(crew, monitor, change))
  const slowest = Math.max(...wakes.map(({ ms }) => ms))
  const polls = wakes.flatMap((one) => one.polls)
  return {
    setup: change.what,
    asked: `<= ${ASKED_MS} ms, no polling`,
    reached: `max of ${wakes.length}: ${slowest.toFixed(1)} ms; calls while asleep: ${polls.join(', ') || 0}`,
    ok: slowest <= ASKED_MS && polls.length === 0,
    values: { wakes },
  }
}

export const changes: readonly Figure[] = [
  {
    name: 'woken',
    title: 'How soon sleeping workers (4 processes × 4) react to a change: from before the change to the first start',
    run: (bench) =>
      CallMonitor.during(bench.client, (monitor) =>
        withCrew(bench, { shape: FAST, jobs: 5000, workers: 4, concurrency: 5 }, (crew) =>
          inTurn(WAKES, (change) => wakeRow(crew, monitor, change)),
        ),
      ),
  },
  {
    name: 'halted',
    title: 'The last start after a pause or a lowered rate, at 500/s with 4 × 20: one horizon and one round trip',
    run: (bench) =>
      withCrew(bench, { shape: { rate: '500/s' }, jobs: 20_000, concurrency: 20, jobMs: 5 }, (crew) =>
        inTurn(HALTS, (change) => haltRow(crew, change)),
      ),
  },
]
