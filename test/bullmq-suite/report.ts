import type { SuiteFile } from './checkout.ts'
import type { Difference } from './difference.ts'
import { exceptionFor, type SuiteException } from './exceptions.ts'
import { countStates, type FileOutcome, type Mode, type ModeOutcome } from './outcome.ts'

function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`
}

function countsLine(files: readonly FileOutcome[]): string {
  const { passed, failed, skipped } = countStates(files)
  const problems = files.filter(({ problems }) => problems.length > 0).length
  const outside = problems > 0 ? `, files with errors outside tests: ${problems}` : ''
  return `${passed} passed, ${failed} failed, ${skipped} skipped${outside}`
}

export function printSkippedFiles(files: readonly SuiteFile[]): void {
  for (const { file, skipReason } of files) if (skipReason) console.log(`left out  ${file}: ${skipReason}`)
}

export function printFile(mode: Mode, outcome: FileOutcome): void {
  const problem = outcome.problems.length > 0 ? `, errors outside tests: ${outcome.problems.length}` : ''
  const { passed, failed, skipped } = countStates([outcome])
  const counts = `${passed} passed, ${failed} failed, ${skipped} skipped${problem}`
  console.log(`${mode.padEnd(8)}  ${outcome.file}: ${counts} (${seconds(outcome.durationMs)})`)
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? ''
}

/** Totals of a mode and what failed in it. */
export function printMode(outcome: ModeOutcome): void {
  console.log(`\n${outcome.mode}: ${countsLine(outcome.files)} in ${outcome.files.length} files`)
  console.log(`  ${seconds(outcome.durationMs)} on ${outcome.redis}`)
  for (const { file, tests, problems } of outcome.files) {
    for (const test of tests.filter(({ state }) => state === 'failed')) {
      console.log(`  failed  ${file}: ${test.titles.join(' > ')}\n          ${firstLine(test.message ?? '')}`)
    }
    for (const problem of problems) console.log(`  error   ${file}: ${firstLine(problem)}`)
  }
}

function printDifference(difference: Difference): void {
  const { mode, file, test, stock, ours } = difference
  console.log(`  ${file}: ${test} (${stock} on stock, ${ours} with ${mode})`)
}

/** Prints how ours differs from stock and returns the differences that no exception covers. */
export function printDifferences(
  modes: readonly Mode[],
  confirmed: readonly Difference[],
  unsteady: readonly Difference[],
  exceptions: readonly SuiteException[],
): Difference[] {
  const open = confirmed.filter((difference) => !exceptionFor(difference, exceptions))
  for (const mode of modes.filter((candidate) => candidate !== 'stock')) {
    const ofMode = open.filter((difference) => difference.mode === mode)
    console.log(`\n${mode} minus stock: ${ofMode.length === 0 ? 'no failure' : `failures: ${ofMode.length}`}`)
    for (const difference of ofMode) printDifference(difference)
    const excepted = confirmed.filter((difference) => difference.mode === mode && !open.includes(difference))
    for (const difference of excepted) {
      console.log(
        `  excepted  ${difference.file}: ${difference.test}\n            ${exceptionFor(difference, exceptions)?.reason}`,
      )
    }
  }
  if (unsteady.length > 0) console.log('\nUnsteady: differed, but not when run again in both modes')
  for (const difference of unsteady) printDifference(difference)
  return open
}
