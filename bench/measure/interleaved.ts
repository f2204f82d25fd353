import type { System } from '../fleet/protocol.ts'

const FULL_ROUNDS = 8
const QUICK_ROUNDS = 3

/** One measurement of each system, in direct succession. */
export type Round<Name extends string, T> = Readonly<Record<Name, T>>
export type Pair<T> = Round<System, T>

/**
 * Runs all systems round by round, in reverse order in every other round. The first round is a warm-up.
 * @param full number of rounds, where not quick; many short ones where the speed of the machine varies
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

/** The same for BullMQ and Sluice. */
export function interleaved<T>(quick: boolean, run: (system: System) => Promise<T>): Promise<Pair<T>[]> {
  return rounds(quick, ['bullmq', 'sluice'], run)
}
