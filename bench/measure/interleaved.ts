import type { System } from '../fleet/protocol.ts'

const FULL_ROUNDS = 7
const QUICK_ROUNDS = 3

/** One measurement of each system, right after another. */
export type Round<Name extends string, T> = Readonly<Record<Name, T>>
export type Pair<T> = Round<System, T>

/**
 * Runs all systems round after round, every other round from the last to the first. The first round only warms up.
 * @param full how many rounds, where it is not quick; many short ones where the machine itself is now fast and now slow
 */
export async function rounds<Name extends string, T>(
  quick: boolean,
  systems: readonly Name[],
  run: (system: Name) => Promise<T>,
  full: number = FULL_ROUNDS,
): Promise<Round<Name, T>[]> {
  const done: Round<Name, T>[] = []
  for (let i = 0; i < (quick ? QUICK_ROUNDS : full); i++) {
    const measured: Partial<Record<Name, T>> = {}
    for (const system of i % 2 === 0 ? systems : systems.toReversed()) measured[system] = await run(system)
    done.push(measured as Round<Name, T>)
  }
  return done.slice(1)
}

/** The same for BullMQ's own and ours. */
export function interleaved<T>(quick: boolean, run: (system: System) => Promise<T>): Promise<Pair<T>[]> {
  return rounds(quick, ['bullmq', 'sluice'], run)
}
