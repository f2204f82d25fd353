import { LATENESS_BOUNDS_US, WAIT_BOUNDS_MS } from '../start-counts.ts'
import { mapCauses } from './held.ts'
import type { StartTotals } from './queue-status.ts'

/** Reads the hash `…:meta:starts`, which workers fill. What is not there is 0. */
export function startTotals(fields: Readonly<Record<string, string>>): StartTotals {
  const number = (field: string) => Number(fields[field] ?? 0)
  const counts = (letter: string, bounds: readonly number[], unitsPerMs: number) =>
    [...bounds, Number.POSITIVE_INFINITY].map((le) => {
      return [le / unitsPerMs, number(`${letter}:${le === Number.POSITIVE_INFINITY ? 'inf' : le}`)] as const
    })
  return {
    count: number('count'),
    early: number('early'),
    latenessSumMs: number('latenessUs') / 1000,
    lateness: counts('l', LATENESS_BOUNDS_US, 1000),
    waits: number('waits'),
    waitSumMs: number('waitMs'),
    waitedMs: mapCauses((cause) => number(`waited:${cause}`)),
    wait: counts('w', WAIT_BOUNDS_MS, 1),
  }
}
