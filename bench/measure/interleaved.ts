import type { System } from '../fleet/protocol.ts'

const FULL_PAIRS = 7
const QUICK_PAIRS = 3

/** One measurement of each system, right after another. */
export interface Pair<T> {
  readonly sluice: T
  readonly bullmq: T
}

/** Runs both systems in pairs, in turns first and second. The first pair only warms up. */
export async function interleaved<T>(quick: boolean, run: (system: System) => Promise<T>): Promise<Pair<T>[]> {
  const pairs: Pair<T>[] = []
  for (let i = 0; i < (quick ? QUICK_PAIRS : FULL_PAIRS); i++) {
    if (i % 2 === 0) {
      const bullmq = await run('bullmq')
      pairs.push({ bullmq, sluice: await run('sluice') })
    } else {
      const sluice = await run('sluice')
      pairs.push({ sluice, bullmq: await run('bullmq') })
    }
  }
  return pairs.slice(1)
}
