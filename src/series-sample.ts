import type { HeldClocks } from './held-clocks.ts'

/** Where a sample of `lua/report.lua` has the clocks of the causes. */
const HELD_FROM = 13
const CAUSES = 5

/** The clocks in a sample of the series. */
export function heldClocksOf(sample: string): HeldClocks {
  const values = (JSON.parse(sample) as (number | string)[]).map(Number)
  return { atUs: (values[0] as number) * 1000, heldUs: values.slice(HELD_FROM, HELD_FROM + CAUSES) }
}
