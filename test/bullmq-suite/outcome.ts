/** What runs in the place of what: BullMQ alone, our backend under it, our worker on top of that. */
export type Mode = 'stock' | 'backend' | 'worker'

export const MODES: readonly Mode[] = ['stock', 'backend', 'worker']

export type TestState = 'passed' | 'failed' | 'skipped'

export interface TestOutcome {
  /** Titles from the outermost `describe` to the test. */
  titles: string[]
  state: TestState
  durationMs: number
  /** First error, where it failed. */
  message?: string
}

export interface FileOutcome {
  /** Path inside the `tests` folder, with forward slashes. */
  file: string
  durationMs: number
  tests: TestOutcome[]
  /** Errors that belong to no test: a file that does not load, a failed hook, an unhandled rejection, a killed run. */
  problems: string[]
}

export interface ModeOutcome {
  mode: Mode
  /** One line on the Redis it ran against. */
  redis: string
  durationMs: number
  files: FileOutcome[]
}

/** The name under which errors outside tests take part in the comparison. */
export const OUTSIDE_TESTS = '(errors outside tests)'

export function countStates(files: readonly FileOutcome[]): Record<TestState, number> {
  const counts: Record<TestState, number> = { passed: 0, failed: 0, skipped: 0 }
  for (const file of files) for (const test of file.tests) counts[test.state]++
  return counts
}

/** A test, or what stands for the errors outside tests of its file. */
export interface NamedState {
  state: TestState
  /** Missing for errors outside tests. */
  titles?: string[]
}

/**
 * State of every test of a file by name. Tests that share a name get a running number; errors outside tests count as
 * one failed test, so that a file that does not load is never taken for an empty one.
 */
export function statesByName(outcome: FileOutcome): Map<string, NamedState> {
  const states = new Map<string, NamedState>()
  for (const { titles, state } of outcome.tests) {
    const name = titles.join(' > ')
    let unique = name
    for (let number = 2; states.has(unique); number++) unique = `${name} #${number}`
    states.set(unique, { state, titles })
  }
  states.set(OUTSIDE_TESTS, { state: outcome.problems.length > 0 ? 'failed' : 'passed' })
  return states
}
