import { setTimeout as sleep } from 'node:timers/promises'
import { Crew } from '../crew.ts'
import type { Bench, Figure, Row } from '../figure.ts'

const SHAPE = { rate: '500/s' }
/** The default of `horizonMs`. */
const HORIZON_MS = 50
const BY = { by: 'bench', reason: 'a change to be obeyed' }
const RUN_MS = 300
const HALT_MS = 300

interface Change {
  readonly what: string
  halt(crew: Crew): Promise<void>
  lift(crew: Crew): Promise<void>
}

const CHANGES: readonly Change[] = [
  {
    what: 'a pause',
    halt: (crew) => crew.queue.pauseUntil(Date.now() + 60_000, BY),
    lift: (crew) => crew.queue.clearPause(),
  },
  {
    what: 'a rate lowered from 500/s to 1/min',
    halt: (crew) => crew.queue.setShape({ rate: '1/min' }, BY),
    lift: (crew) => crew.queue.clearShape(),
  },
]

/** Times after the change was requested, ms. */
interface Halt {
  readonly lastStartMs: number
  readonly lastSlotMs: number
  readonly roundTripMs: number
}

async function haltOnce(crew: Crew, change: Change): Promise<Halt> {
  await sleep(RUN_MS)
  const { afterUs, beforeUs } = await crew.change(() => change.halt(crew))
  await sleep(HALT_MS)
  const last = (await crew.takeStarts()).at(-1)
  await change.lift(crew)
  const ms = (us: number | undefined): number => ((us ?? Number.NaN) - afterUs) / 1000
  return { lastStartMs: ms(last?.startedUs), lastSlotMs: ms(last?.slotUs), roundTripMs: (beforeUs - afterUs) / 1000 }
}

async function row(bench: Bench, crew: Crew, change: Change): Promise<Row> {
  const halts: Halt[] = []
  for (let i = 0; i < (bench.quick ? 3 : 10); i++) halts.push(await haltOnce(crew, change))
  const longest = (of: (halt: Halt) => number) => Math.max(...halts.map(of))
  const lastStartMs = longest((halt) => halt.lastStartMs - halt.roundTripMs)
  const lastSlotMs = longest((halt) => halt.lastSlotMs - halt.roundTripMs)
  const roundTripMs = longest((halt) => halt.roundTripMs)
  return {
    setup: change.what,
    asked: `<= ${HORIZON_MS} ms + round trip`,
    reached:
      `max of ${halts.length}: last start ${lastStartMs.toFixed(1)} ms + round trip ` +
      `(longest ${roundTripMs.toFixed(1)} ms); last slot ${lastSlotMs.toFixed(1)} ms`,
    ok: lastStartMs <= HORIZON_MS,
    values: { halts },
  }
}

export const halted: Figure = {
  name: 'halted',
  title: 'The last start after a pause or a lowered rate, at 500/s with 4 × 20: one horizon and one round trip',
  run: async (bench) => {
    const crew = await Crew.start(bench, SHAPE, { jobs: 20_000, workers: 1, concurrency: 20, jobMs: 5 })
    try {
      const rows: Row[] = []
      for (const change of CHANGES) rows.push(await row(bench, crew, change))
      return rows
    } finally {
      await crew.stop()
    }
  },
}
