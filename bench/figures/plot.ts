import { mkdir, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Figure } from '../figure.ts'
import { type PacedRun, type Pacing, pacedRun, SETUPS } from '../paced-runs.ts'
import { drawStarts, type Series } from '../starts-svg.ts'

const SETUP = SETUPS['one at 50/s']
const FOR_MS = 3000
const LINES: readonly { pacing: Pacing; label: string; color: string }[] = [
  { pacing: 'sluice', label: "Sluice, rate '50/s'", color: '#0f766e' },
  { pacing: 'spaced', label: "BullMQ's limiter { max: 1, duration: 20 }", color: '#b45309' },
  { pacing: 'windowed', label: "BullMQ's limiter { max: 50, duration: 1000 }", color: '#be123c' },
]

function sinceFirst({ starts }: PacedRun): number[] {
  const firstUs = starts[0]?.startedUs ?? 0
  return starts.map(({ startedUs }) => (startedUs - firstUs) / 1000)
}

/** The plot in the README and in docs/guarantees.md. */
export const plot: Figure = {
  name: 'plot',
  title: 'Starts over time at 50/s, as a picture',
  run: async (bench) => {
    const { plotFile } = bench
    const series: Series[] = []
    for (const { pacing, label, color } of LINES) {
      series.push({ label, color, startsMs: sinceFirst(await pacedRun(bench, SETUP, pacing)) })
    }
    const title = `Starts of jobs at ${SETUP.perSecond}/s: one worker, ${SETUP.jobMs} ms each, a backlog waiting`
    await mkdir(new URL('.', plotFile), { recursive: true })
    await writeFile(plotFile, drawStarts({ title, perSecond: SETUP.perSecond, forMs: FOR_MS, series }))
    return [{ setup: 'written', reached: fileURLToPath(plotFile), values: {} }]
  },
}
