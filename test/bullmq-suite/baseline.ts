import { readFileSync, writeFileSync } from 'node:fs'
import type { Difference } from './difference.ts'
import type { ModeOutcome } from './outcome.ts'

/** What `--json` writes and `--baseline` reads. */
export interface SuiteResult {
  bullmq: string
  tests: string
  modes: ModeOutcome[]
  differences: Difference[]
  unsteady: Difference[]
}

export function writeResult(file: string, result: SuiteResult): void {
  writeFileSync(file, `${JSON.stringify(result, null, 2)}\n`)
}

/**
 * The stock run of an earlier result.
 * @throws {Error} if it has none, or is of another version of BullMQ or of its tests
 */
export function readBaseline(file: string, versions: Pick<SuiteResult, 'bullmq' | 'tests'>): ModeOutcome {
  const result = JSON.parse(readFileSync(file, 'utf8')) as Partial<SuiteResult>
  if (result.bullmq !== versions.bullmq || result.tests !== versions.tests) {
    const expected = `bullmq ${versions.bullmq} with the tests of ${versions.tests}`
    throw new Error(
      `--baseline expects a run of ${expected}, got bullmq ${result.bullmq} with those of ${result.tests}`,
    )
  }
  const stock = result.modes?.find(({ mode }) => mode === 'stock')
  if (!stock) throw new Error(`--baseline expects a result with a stock run, got none in "${file}"`)
  return stock
}
