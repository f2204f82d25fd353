import { MAX_COST } from '../admission/job-options.ts'

/** What a job costs. */
export interface JobCost {
  /** Units of the rate. */
  readonly cost: number
  /** Units of other limits, by the limits' units. */
  readonly costs: Readonly<Record<string, number>>
}

/** From its stored options, as `lua/shape/job-options.lua` reads them: a foreign producer may have stored any value. */
export function jobCostOf(opts: string | null | undefined): JobCost {
  const { cost, costs } = JSON.parse(opts ?? '{}') as { cost?: unknown; costs?: unknown }
  const others = typeof costs === 'object' && costs !== null ? Object.entries(costs) : []
  return { cost: valid(cost), costs: Object.fromEntries(others.map(([unit, value]) => [unit, validOfUnit(value)])) }
}

function valid(given: unknown): number {
  const cost = Number(given)
  return cost > 0 ? Math.min(cost, MAX_COST) : 1
}

/** A job may cost nothing under a limit. */
function validOfUnit(given: unknown): number {
  return given === 0 || given === '0' ? 0 : valid(given)
}
