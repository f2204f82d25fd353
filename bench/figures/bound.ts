import type { Bench, Figure, Row } from '../figure.ts'
import { analyseSlots, analyseStarts } from '../measure/starts.ts'
import { describeSetup, intervalUs, pacedRun, SETUPS, type Setup } from '../paced-runs.ts'

async function excess(bench: Bench, setup: Setup): Promise<Row> {
  const run = await pacedRun(bench, setup, 'sluice')
  const windowed = await pacedRun(bench, setup, 'windowed')
  const startsOf = (starts: readonly { startedUs: number }[]) => starts.map(({ startedUs }) => startedUs)
  const slots = analyseSlots(run.starts, intervalUs(setup))
  const atStart = analyseStarts(startsOf(run.starts), intervalUs(setup)).excessOfStarts
  const stock = analyseStarts(startsOf(windowed.starts), intervalUs(setup)).excessOfStarts
  return {
    setup: `excess over the bucket, ${describeSetup(setup)}`,
    asked: '0 at the grant',
    reached: `${slots.excessOfSlots} (at the starts ${atStart})`,
    ok: slots.excessOfSlots <= 0,
    beside: `windowed ${stock}`,
    values: { atTheGrant: slots.excessOfSlots, atTheStarts: atStart, windowedAtTheStarts: stock },
  }
}

async function early(bench: Bench, setup: Setup): Promise<Row> {
  const run = await pacedRun(bench, setup, 'sluice')
  const { startedEarly, latenessUs } = analyseSlots(run.starts, intervalUs(setup))
  const least = `least lateness ${latenessUs.least.toFixed(0)} µs, clock known to ${run.clockErrorUs.toFixed(0)} µs`
  return {
    setup: `started before their slot, ${describeSetup(setup)}`,
    asked: '0',
    reached: `${startedEarly} of ${run.starts.length} (${least})`,
    ok: startedEarly === 0,
    values: { startedEarly, starts: run.starts.length, latenessUs, clockErrorUs: run.clockErrorUs },
  }
}

export const bound: Figure = {
  name: 'bound',
  title:
    "The bound, on Redis's clock: worst (j − i + 1) − (⌊(tj − ti)/I⌋ + b) over all windows; starts before their slot",
  run: async (bench) => {
    const rows: Row[] = []
    for (const setup of Object.values(SETUPS)) rows.push(await excess(bench, setup))
    for (const setup of Object.values(SETUPS)) rows.push(await early(bench, setup))
    return rows
  },
}
