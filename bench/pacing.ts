import { mkdir, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { paceOf } from './harness/pace.ts'
import { addJobs, makeQueue, removeQueue, spacedLimiter } from './harness/queues.ts'
import { sum } from './harness/statistics.ts'
import { paced } from './harness/workers.ts'
import { type Bars, BIN_MS, type Column, drawStarts } from './starts-svg.ts'

/** Cut from the start of every run: workers wake one by one until each has had its turn. */
const WARM_UP_MS = 500

/** A rate, and the workers that have to reach it. */
interface Setup {
  readonly perSecond: number
  readonly processes: number
  readonly concurrency: number
  readonly jobMs: number
}

const SETUPS = {
  'four at 50/s': { perSecond: 50, processes: 4, concurrency: 10, jobMs: 500 },
  'one at 50/s': { perSecond: 50, processes: 1, concurrency: 50, jobMs: 500 },
  '500/s': { perSecond: 500, processes: 4, concurrency: 20, jobMs: 5 },
  '2000/s': { perSecond: 2000, processes: 2, concurrency: 50, jobMs: 2 },
} as const satisfies Record<string, Setup>
const ALL: readonly Setup[] = Object.values(SETUPS)

function describeSetup({ perSecond, processes, concurrency, jobMs }: Setup): string {
  return `${perSecond}/s, ${processes} × ${concurrency}, ${jobMs} ms jobs`
}

/** What paces the starts: Sluice, or BullMQ's limiter with one job per interval or with one window per second. */
type Pacing = 'sluice' | 'spaced' | 'windowed'

const runs = new Map<string, ReturnType<typeof makeRun>>()

/** A run under a backlog; the table and the picture use the same. */
function pacedRun(bench: Bench, setup: Setup, pacing: Pacing): ReturnType<typeof makeRun> {
  const key = `${pacing}: ${describeSetup(setup)}`
  const run = runs.get(key) ?? makeRun(bench, setup, pacing)
  runs.set(key, run)
  return run
}

async function makeRun(bench: Bench, setup: Setup, pacing: Pacing) {
  const { perSecond } = setup
  const seconds = perSecond <= 50 ? (bench.quick ? 2.1 : 12) : bench.quick ? 1 : 5
  const system = pacing === 'sluice' ? 'sluice' : 'bullmq'
  const limiter = pacing === 'windowed' ? { max: perSecond, duration: 1000 } : spacedLimiter(perSecond)
  const measuredMs = seconds * 1000 + WARM_UP_MS
  const queue = await makeQueue(bench, system, 'rate', { rate: `${perSecond}/s` })
  await queue.pause()
  // Twice the expected number: a windowed limiter may start one window more.
  await addJobs(queue, Math.ceil((perSecond * measuredMs) / 1000) * 2)
  const run = await paced(bench, queue, { ...setup, system, limiter, warmUpMs: 0 }, async () => {
    await queue.resume()
    await sleep(measuredMs + 100)
  })
  await removeQueue(queue)
  const firstUs = run.starts[0]?.startedUs ?? 0
  const starts = run.starts.filter(({ startedUs }) => startedUs - firstUs <= measuredMs * 1000)
  const steady = starts.filter(({ startedUs }) => startedUs - firstUs >= WARM_UP_MS * 1000)
  return { ...run, starts, all: paceOf(starts, perSecond), pace: paceOf(steady, perSecond) }
}

type PacedRun = Awaited<ReturnType<typeof makeRun>>

const ASKED_P99_MS = 5
const HEADINGS = [
  ...['', 'rate kept', 'late, ms: p50, p99, most', 'above the bound, early', 'ok', 'Redis µs a job'],
  ...["BullMQ's limiter, { max: 1 }", "BullMQ's limiter, { max: rate }"],
]

/** Asked: 0.999 to 1.001 of the rate, none above the bound or early, and up to 500/s a p99 of 5 ms. */
async function rateRow(bench: Bench, setup: Setup): Promise<Row> {
  const sluice = await pacedRun(bench, setup, 'sluice')
  const [spaced, windowed] = [await pacedRun(bench, setup, 'spaced'), await pacedRun(bench, setup, 'windowed')]
  const { pace, all, wentBack, cost } = sluice
  const { n, rateKept, lateMs, slotsLost } = pace
  const most = ({ pace: { mostIn10Ms, mostInOneSecond } }: PacedRun) =>
    `${mostIn10Ms} in 10 ms, ${mostInOneSecond} in 1 s`
  const isKept = n >= 100 && Math.abs(rateKept - 1) <= 0.001
  const isOnTime = setup.perSecond > 500 || lateMs.p99 <= ASKED_P99_MS
  const ok = isKept && isOnTime && all.excessOfSlots <= 0 && all.startedEarly === 0
  const late = [lateMs.p50, lateMs.p99, lateMs.max].map((ms) => ms.toFixed(2)).join(', ')
  const cells = [
    `${rateKept.toFixed(4)} (n = ${n}, ${most(sluice)})`,
    `${late} (slots lost ${slotsLost.toFixed(1)}, went back ${wentBack})`,
    `${all.excessOfSlots} (at the starts ${all.excessOfStarts}), ${all.startedEarly}`,
    ok ? 'yes' : 'NO',
    cost.redisUs.toFixed(0),
    `${spaced.pace.rateKept.toFixed(3)}, Redis ${spaced.cost.redisUs.toFixed(0)} µs`,
    `${most(windowed)}, above by ${windowed.all.excessOfStarts}`,
  ]
  const values = { sluice: pace, all, cost, spaced: spaced.pace, windowed: windowed.pace }
  return { setup: describeSetup(setup), reached: cells.join('; '), ok, cells, values }
}

const BINS = 15
/** Shown from here: by then each worker has had its turn, and the second window of BullMQ's limiter begins. ms */
const SHOWN_FROM_MS = 1000

/** From half an interval earlier, so that no start lies at the edge between two bins. */
function countsOf({ starts }: PacedRun, { perSecond }: Setup): number[] {
  const fromUs = (starts[0]?.startedUs ?? 0) + SHOWN_FROM_MS * 1000 - 1e6 / perSecond / 2
  const bins = starts.map(({ startedUs }) => Math.floor((startedUs - fromUs) / (BIN_MS * 1000)))
  return Array.from({ length: BINS }, (_, bin) => bins.filter((one) => one === bin).length)
}

function describeBars(pacing: Pacing, { perSecond }: Setup, counts: readonly number[]): Omit<Bars, 'counts'> {
  if (pacing === 'sluice') return { label: `Sluice, rate: '${perSecond}/s'`, remark: 'even', exceeds: false }
  if (pacing === 'windowed') {
    const label = `BullMQ, limiter: { max: ${perSecond}, duration: 1000 }`
    return { label, remark: `a burst of ${Math.max(...counts)}, then nothing until the next window`, exceeds: true }
  }
  const { max, duration } = spacedLimiter(perSecond)
  const share = sum(counts) / ((perSecond * BINS * BIN_MS) / 1000)
  const label = `BullMQ, limiter: { max: ${max}, duration: ${duration} }`
  return { label, remark: `${Math.round(share * 100)} % of the rate`, exceeds: false }
}

async function columnOf(bench: Bench, setup: Setup): Promise<Column> {
  const rows: Bars[] = []
  for (const pacing of ['sluice', 'windowed', 'spaced'] as const) {
    const counts = countsOf(await pacedRun(bench, setup, pacing), setup)
    rows.push({ ...describeBars(pacing, setup, counts), counts })
  }
  const { perSecond, processes, concurrency, jobMs } = setup
  const workers = processes === 1 ? '1 worker' : `${processes} workers`
  return { perSecond, setup: `${workers} × ${concurrency}, jobs of ${jobMs} ms`, rows }
}

/** The picture in the README; a quick one is not kept. */
async function plot(bench: Bench): Promise<Row[]> {
  const file = new URL(bench.quick ? 'results/starts.svg' : '../docs/starts.svg', import.meta.url)
  const columns = [await columnOf(bench, SETUPS['one at 50/s']), await columnOf(bench, SETUPS['2000/s'])]
  await mkdir(new URL('.', file), { recursive: true })
  await writeFile(file, drawStarts('Jobs started in each 100 ms, with a backlog waiting', columns))
  return [{ setup: 'written', reached: fileURLToPath(file), values: {} }]
}

export const pacing: readonly Figure[] = [
  {
    name: 'rate',
    title:
      "Under a backlog, after the first 500 ms: (n − 1)·I / (last − first start); starts after their slot on Redis's " +
      'clock; worst (j − i + 1) − (⌊(tj − ti)/I⌋ + b) over all windows, and starts before their slot',
    headings: HEADINGS,
    run: (bench) => inTurn(ALL, (setup) => rateRow(bench, setup)),
  },
  { name: 'plot', title: 'Starts in each 100 ms at 50/s and 2000/s, as a picture', run: plot },
]
