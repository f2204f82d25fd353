import { MAX_COST } from '../admission/job-options.ts'

/** What a job takes. */
export interface JobCost {
  /** Of the rate. */
  readonly cost: number
  /** Of other limits, by their units. */
  readonly costs: Readonly<Record<string, number>>
}

/** From its stored options, as `lua/lib/job.lua` reads them: a job of a foreign producer may say anything. */
export function jobCostOf(opts: string | null | undefined): JobCost {
  const { cost, costs } = JSON.parse(opts ?? '{}') as { cost?: unknown; costs?: unknown }
  const others = typeof costs === 'object' && costs !== null ? Object.entries(costs) : []
  return { cost: valid(cost), costs: Object.fromEntries(others.map(([unit, value]) => [unit, valid(value)])) }
}

function valid(given: unknown): number {
  const cost = Number(given)
  return cost > 0 ? Math.min(cost, MAX_COST) : 1
}
