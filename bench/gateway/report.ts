import { median } from '../measure/statistics.ts'
import type { ServerCost } from './server-process.ts'

export function medianOf(costs: readonly ServerCost[]): ServerCost {
  const fields = Object.keys(costs[0] as ServerCost) as (keyof ServerCost)[]
  return Object.fromEntries(
    fields.map((field) => [field, median(costs.map((cost) => cost[field]))]),
  ) as unknown as ServerCost
}

const round = (ms: number) => Math.round(ms * 100) / 100

/** Formats the cost as a cell of the table. */
export function describeCost({ perSecond, p50, p99, processUs, redisUs, scripts }: ServerCost): string {
  const each = `${processUs.toFixed(0)} µs, Redis ${redisUs.toFixed(0)} µs, ${scripts.toFixed(2)} scripts`
  return `${perSecond.toFixed(0)}/s, p50 ${round(p50)} ms, p99 ${round(p99)} ms, ${each}`
}
