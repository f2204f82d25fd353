import { writeFileSync } from 'node:fs'
import type { Reporter, SerializedError, TestCase, TestModule, TestSuite } from 'vitest/node'
import type { TestOutcome } from './outcome.ts'

/** What one vitest run leaves for the runner. */
export interface Report {
  tests: TestOutcome[]
  problems: string[]
}

function titlesOf(test: TestCase): string[] {
  const titles = [test.name]
  for (let parent: TestCase['parent'] = test.parent; parent.type === 'suite'; parent = parent.parent) {
    titles.unshift(parent.name)
  }
  return titles
}

function toOutcome(test: TestCase): TestOutcome {
  const result = test.result()
  const outcome: TestOutcome = {
    titles: titlesOf(test),
    state: result.state === 'pending' ? 'skipped' : result.state,
    durationMs: Math.round(test.diagnostic()?.duration ?? 0),
  }
  const [error] = result.errors ?? []
  return error ? { ...outcome, message: error.message } : outcome
}

function describeError(where: string, error: Pick<SerializedError, 'message' | 'stack'>): string {
  return `${where}: ${error.stack ?? error.message}`
}

function suiteProblems(suite: TestSuite): string[] {
  return suite.errors().map((error) => describeError(suite.fullName, error))
}

/** Writes the outcome of every test, and every error outside tests, as JSON to a file. */
export class OutcomeReporter implements Reporter {
  readonly #reportFile: string

  constructor(reportFile: string) {
    this.#reportFile = reportFile
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const report: Report = {
      tests: modules.flatMap((module) => [...module.children.allTests()].map(toOutcome)),
      problems: [
        ...modules.flatMap((module) => module.errors().map((error) => describeError('file', error))),
        ...modules.flatMap((module) => [...module.children.allSuites()].flatMap(suiteProblems)),
        ...unhandledErrors.map((error) => describeError('unhandled', error)),
      ],
    }
    writeFileSync(this.#reportFile, JSON.stringify(report))
  }
}
