import { runCommand } from '../workers/services/run-command.ts'
import { ALONE, type Figure, inTurn } from './harness/figure.ts'
import { median } from './harness/statistics.ts'

const ASKED_MS = 25
const WAYS = [
  { what: 'import', flags: ['--input-type=module'], load: (name: string) => `await import('${name}')` },
  { what: 'require()', flags: ['--input-type=commonjs'], load: (name: string) => `require('${name}')` },
]

/** What loading the package costs a program that has BullMQ already. */
export const importing: Figure = {
  name: 'import',
  title: 'Loading sluice after bullmq: median of 15 fresh processes (--quick: 5), least and most',
  headings: ALONE,
  run: ({ quick }) =>
    inTurn(WAYS, async ({ what, flags, load }) => {
      const program = `${load('bullmq')}; const from = performance.now(); ${load('sluice')}; console.log(performance.now() - from)`
      const tookMs: number[] = []
      for (let i = 0; i < (quick ? 5 : 15); i++)
        tookMs.push(Number(await runCommand(process.execPath, [...flags, '-e', program])))
      const [least, mid, most] = [Math.min(...tookMs), median(tookMs), Math.max(...tookMs)]
      const reached = `${mid.toFixed(1)} ms (${least.toFixed(1)} to ${most.toFixed(1)})`
      return { setup: what, asked: `<= ${ASKED_MS} ms`, reached, ok: mid <= ASKED_MS, values: { tookMs } }
    }),
}
