import { setTimeout as sleep } from 'node:timers/promises'
import { Crew } from '../crew.ts'
import type { Bench, Figure, Row } from '../figure.ts'
import { CallMonitor, CONNECTION_WATCH, UPKEEP } from '../measure/call-monitor.ts'

const ASKED_MS = 100
const SHAPE = { rate: '100/s' }
const CREEP = { rate: '1/min' }
const BY = { by: 'bench', reason: 'a change to be felt' }
/** By then, the jobs granted ahead have left, and all workers sleep. */
const FALL_ASLEEP_MS = 300
/** How long sleeping workers are observed: long enough to notice one that polls. */
const ASLEEP_MS = 500
const FELT_MS = 400
/** Calls other than polling: BullMQ's blocking wait and its upkeep, workers' reports, and the connection watch. */
const NO_POLL = ['bzpopmin', 'report', CONNECTION_WATCH, ...UPKEEP]

interface Change {
  readonly what: string
  sleep(crew: Crew): Promise<void>
  wake(crew: Crew): Promise<void>
}

const CHANGES: readonly Change[] = [
  {
    what: 'a raised rate, 1/min to 100/s',
    sleep: (crew) => crew.queue.setShape(CREEP, BY),
    wake: (crew) => crew.queue.setShape(SHAPE, BY),
  },
  {
    what: 'a lifted pause',
    sleep: (crew) => crew.queue.pauseUntil(Date.now() + 60_000, BY),
    wake: (crew) => crew.queue.clearPause(),
  },
  {
    what: 'a cleared override of 1/min',
    sleep: (crew) => crew.queue.setShape(CREEP, BY),
    wake: (crew) => crew.queue.clearShape(),
  },
]

interface Round {
  readonly ms: number
  /** Calls of sleeping workers, by name. */
  readonly polls: readonly string[]
}

async function felt(crew: Crew, monitor: CallMonitor, change: Change): Promise<Round> {
  await change.sleep(crew)
  await sleep(FALL_ASLEEP_MS)
  await crew.takeStarts()
  monitor.reset()
  await sleep(ASLEEP_MS)
  const polls = [...monitor.of(crew.queue.name)].filter(([name]) => !NO_POLL.includes(name))
  const { afterUs } = await crew.change(() => change.wake(crew))
  await sleep(FELT_MS)
  const first = (await crew.takeStarts()).find(({ startedUs }) => startedUs >= afterUs)
  const ms = first ? (first.startedUs - afterUs) / 1000 : Number.POSITIVE_INFINITY
  return { ms, polls: polls.map(([name, times]) => `${name} ${times}`) }
}

async function row(bench: Bench, crew: Crew, monitor: CallMonitor, change: Change): Promise<Row> {
  const rounds: Round[] = []
  for (let i = 0; i < (bench.quick ? 2 : 10); i++) rounds.push(await felt(crew, monitor, change))
  const slowest = Math.max(...rounds.map(({ ms }) => ms))
  const polls = rounds.flatMap((round) => round.polls)
  return {
    setup: change.what,
    asked: `<= ${ASKED_MS} ms, no polling`,
    reached: `max of ${rounds.length}: ${slowest.toFixed(1)} ms; calls while asleep: ${polls.join(', ') || 0}`,
    ok: slowest <= ASKED_MS && polls.length === 0,
    values: { rounds },
  }
}

export const woken: Figure = {
  name: 'woken',
  title: 'How soon sleeping workers (4 processes × 4) react to a change: from before the change to the first start',
  run: async (bench) => {
    const monitor = await CallMonitor.start(bench.client)
    const crew = await Crew.start(bench, SHAPE, { jobs: 5000, workers: 4, concurrency: 5, jobMs: 0 })
    try {
      const rows: Row[] = []
      for (const change of CHANGES) rows.push(await row(bench, crew, monitor, change))
      return rows
    } finally {
      await crew.stop()
      monitor.stop()
    }
  },
}
