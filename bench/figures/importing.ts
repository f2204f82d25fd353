import { runCommand } from '../../workers/services/run-command.ts'
import type { Figure, Row } from '../figure.ts'
import { ascending, median } from '../measure/statistics.ts'

const ASKED_MS = 25
const PROCESSES = 15
const QUICK_PROCESSES = 5

const WAYS = [
  { what: 'import', flags: ['--input-type=module'], load: (name: string) => `await import('${name}')` },
  { what: 'require()', flags: ['--input-type=commonjs'], load: (name: string) => `require('${name}')` },
]

async function row({ what, flags, load }: (typeof WAYS)[number], processes: number): Promise<Row> {
  const program = `${load('bullmq')}; const from = performance.now(); ${load('sluice')}; console.log(performance.now() - from)`
  const took: number[] = []
  for (let i = 0; i < processes; i++) took.push(Number(await runCommand(process.execPath, [...flags, '-e', program])))
  const sorted = ascending(took)
  const reached = median(took)
  return {
    setup: what,
    asked: `<= ${ASKED_MS} ms`,
    reached: `${reached.toFixed(1)} ms (${sorted[0]?.toFixed(1)} to ${sorted.at(-1)?.toFixed(1)})`,
    ok: reached <= ASKED_MS,
    values: { took },
  }
}

/** What loading the package costs a program that has BullMQ already. */
export const importing: Figure = {
  name: 'import',
  title: `Loading sluice after bullmq: median of ${PROCESSES} fresh processes (--quick: ${QUICK_PROCESSES}), least and most`,
  run: async ({ quick }) => {
    const rows: Row[] = []
    for (const way of WAYS) rows.push(await row(way, quick ? QUICK_PROCESSES : PROCESSES))
    return rows
  },
}
