import { mkdir, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Bench, Figure } from '../figure.ts'
import { intervalUs, type PacedRun, type Pacing, pacedRun, SETUPS, type Setup, spacedLimiter } from '../paced-runs.ts'
import { type Bars, BIN_MS, type Column, drawStarts } from '../starts-svg.ts'

const BINS = 15
const TITLE = 'Jobs started in each 100 ms, with a backlog waiting'
const SHOWN = [SETUPS['one at 50/s'], SETUPS['2000/s']]
const SYSTEMS: readonly Pacing[] = ['sluice', 'windowed', 'spaced']

/** Shown from here: by then each worker has had its turn, and the second window of BullMQ's limiter begins. ms */
const SHOWN_FROM_MS = 1000

/** From half an interval earlier, so that no start lies at the edge between two bins. */
function countsOf({ starts }: PacedRun, setup: Setup): number[] {
  const fromUs = (starts[0]?.startedUs ?? 0) + SHOWN_FROM_MS * 1000 - intervalUs(setup) / 2
  const counts = Array.from({ length: BINS }, () => 0)
  for (const { startedUs } of starts) {
    const bin = Math.floor((startedUs - fromUs) / (BIN_MS * 1000))
    if (bin >= 0 && bin < BINS) counts[bin] = (counts[bin] ?? 0) + 1
  }
  return counts
}

function describe(pacing: Pacing, { perSecond }: Setup, counts: readonly number[]): Omit<Bars, 'counts'> {
  if (pacing === 'sluice') return { label: `Sluice, rate: '${perSecond}/s'`, remark: 'even', exceeds: false }
  if (pacing === 'windowed') {
    const label = `BullMQ, limiter: { max: ${perSecond}, duration: 1000 }`
    return { label, remark: `a burst of ${Math.max(...counts)}, then nothing until the next window`, exceeds: true }
  }
  const { max, duration } = spacedLimiter(perSecond)
  const share = counts.reduce((sum, count) => sum + count, 0) / ((perSecond * BINS * BIN_MS) / 1000)
  const remark = `${Math.round(share * 100)} % of the rate`
  return { label: `BullMQ, limiter: { max: ${max}, duration: ${duration} }`, remark, exceeds: false }
}

async function columnOf(bench: Bench, setup: Setup): Promise<Column> {
  const rows: Bars[] = []
  for (const pacing of SYSTEMS) {
    const counts = countsOf(await pacedRun(bench, setup, pacing), setup)
    rows.push({ ...describe(pacing, setup, counts), counts })
  }
  const { perSecond, processes, concurrency, jobMs } = setup
  const workers = processes === 1 ? '1 worker' : `${processes} workers`
  return { perSecond, setup: `${workers} × ${concurrency}, jobs of ${jobMs} ms`, rows }
}

/** The picture in the README. */
export const plot: Figure = {
  name: 'plot',
  title: 'Starts in each 100 ms at 50/s and 2000/s, as a picture',
  run: async (bench) => {
    const { plotFile } = bench
    const columns: Column[] = []
    for (const setup of SHOWN) columns.push(await columnOf(bench, setup))
    await mkdir(new URL('.', plotFile), { recursive: true })
    await writeFile(plotFile, drawStarts(TITLE, columns))
    return [{ setup: 'written', reached: fileURLToPath(plotFile), values: {} }]
  },
}
