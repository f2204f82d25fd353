import type { QueueStatus } from 'sluice/inspect'
import { unitsPerSecond as ofRate } from 'sluice/internal'

/** The rate in force, units of cost per second; undefined where jobs are not paced. */
export function unitsPerSecond({ rate }: QueueStatus): number | undefined {
  return rate === undefined ? undefined : ofRate(rate)
}

/** The share of the places for running jobs that is in use, by the workers' last reports; undefined without workers. */
export function usedConcurrency({ workers, concurrency: allowed }: QueueStatus): number | undefined {
  const places = sumOf(workers, ({ concurrency }) => concurrency)
  if (places === 0) return undefined
  return sumOf(workers, ({ running }) => running) / Math.min(places, allowed?.inForce ?? places)
}

/**
 * The share of the rate that was used since the workers' previous reports; undefined where jobs are not paced, while a
 * schedule lets none leave, or without workers.
 */
export function usedRate(status: QueueStatus): number | undefined {
  const rate = unitsPerSecond(status)
  if (!rate || status.workers.length === 0) return undefined
  return (sumOf(status.workers, ({ ratePerSecond }) => ratePerSecond) * status.meanCost) / rate
}

function sumOf<T>(all: readonly T[], of: (one: T) => number): number {
  return all.reduce((sum, one) => sum + of(one), 0)
}
