import { expect } from 'vitest'
import type { JobCosts } from '../../../src/admission/job-options.ts'
import type { QueueLimit } from '../../../src/limits/queue-limits.ts'
import { parseRate, type RateInput } from '../../../src/rate.ts'
import { worstWindow } from '../../../src/testing/index.ts'

/** Units that left, and when: whole µs. 0 where a job was charged, but went back before it started. */
export interface Left {
  readonly slotUs: number
  readonly units: number
}

/** What a job takes of a limit, as docs say it. */
export function unitsOf({ unit }: Pick<QueueLimit, 'unit'>, { cost = 1, costs }: JobCosts): number {
  return unit === undefined ? cost : (costs?.[unit] ?? 1)
}

/** Counts everything that left against what a limit is by its name, without asking how it decides. */
export function expectBound(limit: QueueLimit, left: readonly Left[]): void {
  const { algorithm = 'gcra' } = limit
  const message = `limit ${JSON.stringify(limit)}`
  if (algorithm === 'concurrency') throw new Error('leases are counted while they run')
  if (['gcra', 'token-bucket', 'leaky-bucket'].includes(algorithm)) {
    const charged = left.filter(({ units }) => units > 0)
    const starts = charged.map(({ slotUs, units }) => ({ departureTimeUs: slotUs, cost: units }))
    // Departure times are whole µs, rounded up: a window may seem shorter by so much.
    expect(worstWindow(starts, limit)?.excessUs ?? 0, message).toBeLessThanOrEqual(1 + 1e-6)
    return
  }
  const { limit: most, periodMs } = parseRate(limit.rate as RateInput)
  const sums = windowSums(algorithm, limit, left, periodMs * 1000)
  expect(Math.max(0, ...sums), message).toBeLessThanOrEqual(most + 1e-9)
}

/** What counts for each that left. */
function windowSums(algorithm: string, limit: QueueLimit, left: readonly Left[], windowUs: number): number[] {
  if (algorithm === 'sliding-window-log') return left.map(({ slotUs }) => sum(left, slotUs - windowUs, slotUs))
  if (algorithm === 'fixed-window' && limit.align === 'first') return [mostFromTheFirst(left, windowUs)]
  const startOf = (us: number) => us - (us % windowUs)
  if (algorithm === 'fixed-window') {
    return left.map(({ slotUs }) => sum(left, startOf(slotUs) - 1, startOf(slotUs) + windowUs - 1))
  }
  // The counter takes what left in the window before as evenly spread.
  return left.map(({ slotUs }, i) => {
    const start = startOf(slotUs)
    const upTo = left.slice(0, i + 1)
    const before = sum(upTo, start - windowUs - 1, start - 1)
    return sum(upTo, start - 1, slotUs) + before * (1 - (slotUs - start) / windowUs)
  })
}

/** Units that left after one time and up to another. */
function sum(left: readonly Left[], afterUs: number, upToUs: number): number {
  return left.reduce((all, { slotUs, units }) => all + (slotUs > afterUs && slotUs <= upToUs ? units : 0), 0)
}

/**
 * The most in one window, each of which begins with the first charge after the one before it is over. Whether that counts
 * where the job went back is not known: in the better case.
 */
function mostFromTheFirst(
  left: readonly Left[],
  windowUs: number,
  { start, used } = { start: Number.NEGATIVE_INFINITY, used: 0 },
): number {
  const [first, ...later] = left
  if (!first) return used
  const { slotUs, units } = first
  if (slotUs < start + windowUs) return mostFromTheFirst(later, windowUs, { start, used: used + units })
  const begun = Math.max(used, mostFromTheFirst(later, windowUs, { start: slotUs, used: units }))
  return units > 0 ? begun : Math.min(begun, mostFromTheFirst(later, windowUs, { start, used }))
}
