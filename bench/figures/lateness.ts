import type { Bench, Figure, Row } from '../figure.ts'
import { analyseSlots } from '../measure/starts.ts'
import { describeSetup, intervalUs, pacedRun, SETUPS, type Setup } from '../paced-runs.ts'

const ASKED_P99_MS = 5

async function row(bench: Bench, setup: Setup): Promise<Row> {
  const { steady, wentBack } = await pacedRun(bench, setup, 'sluice')
  const { latenessUs, slotsLost } = analyseSlots(steady, intervalUs(setup))
  const ms = (us: number): string => (us / 1000).toFixed(2)
  const informs = setup.perSecond > 500
  return {
    setup: describeSetup(setup),
    ...(informs ? {} : { asked: `p99 <= ${ASKED_P99_MS} ms`, ok: latenessUs.p99 <= ASKED_P99_MS * 1000 }),
    reached:
      `p50 ${ms(latenessUs.p50)}, p99 ${ms(latenessUs.p99)}, max ${ms(latenessUs.max)} ms; ` +
      `slots lost ${slotsLost.toFixed(1)}, went back ${wentBack}`,
    values: { latenessUs, slotsLost, wentBack, starts: steady.length },
  }
}

export const lateness: Figure = {
  name: 'lateness',
  title: 'Lateness of starts, and slots that were lost because no worker asked in time',
  run: async (bench) => {
    const rows: Row[] = []
    for (const setup of Object.values(SETUPS)) rows.push(await row(bench, setup))
    return rows
  },
}
