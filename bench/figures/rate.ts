import type { Bench, Figure, Row } from '../figure.ts'
import { analyseStarts, type StartsAnalysis } from '../measure/starts.ts'
import { describeSetup, intervalUs, type Pacing, pacedRun, SETUPS, type Setup } from '../paced-runs.ts'

const LEAST = 0.999
const MOST = 1.001

async function analysed(bench: Bench, setup: Setup, pacing: Pacing): Promise<StartsAnalysis> {
  const { steady } = await pacedRun(bench, setup, pacing)
  return analyseStarts(
    steady.map(({ startedUs }) => startedUs),
    intervalUs(setup),
  )
}

async function row(bench: Bench, setup: Setup): Promise<Row> {
  const sluice = await analysed(bench, setup, 'sluice')
  const spaced = await analysed(bench, setup, 'spaced')
  const windowed = await analysed(bench, setup, 'windowed')
  const burst = `${windowed.mostIn10Ms} in 10 ms, ${windowed.mostInOneSecond} in 1 s`
  return {
    setup: describeSetup(setup),
    asked: '0.999 to 1.001',
    reached: `${sluice.rateKept.toFixed(4)} (n = ${sluice.n}, ${sluice.mostIn10Ms} in 10 ms, ${sluice.mostInOneSecond} in 1 s)`,
    ok: sluice.n >= 100 && sluice.rateKept >= LEAST && sluice.rateKept <= MOST,
    beside: `spaced ${spaced.rateKept.toFixed(3)}; windowed ${burst}`,
    values: { sluice, spaced, windowed },
  }
}

export const rate: Figure = {
  name: 'rate',
  title: 'Rate kept under a backlog: (n − 1)·I / (last − first start), after the first 500 ms',
  run: async (bench) => {
    const rows: Row[] = []
    for (const setup of Object.values(SETUPS)) rows.push(await row(bench, setup))
    return rows
  },
}
