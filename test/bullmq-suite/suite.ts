import { readBaseline, type SuiteResult } from './baseline.ts'
import { type Checkout, declaredPackages, readCheckout } from './checkout.ts'
import { compareModes, confirmDifferences, type Difference, type RunTests } from './difference.ts'
import { findInstalledBullmq, type InstalledBullmq } from './installed-bullmq.ts'
import { ModeRunner } from './mode-runner.ts'
import type { FileOutcome, Mode, ModeOutcome } from './outcome.ts'
import { printFile, printMode, printSkippedFiles } from './report.ts'
import { createStage } from './stage.ts'

export interface SuiteOptions {
  /** Checkout of BullMQ's repository. */
  src: string
  modes: readonly Mode[]
  /** Names of test files, with or without `.test.ts`; all of them when empty. */
  only: readonly string[]
  /** Result of an earlier run whose stock part is used instead of a new one. */
  baseline?: string
  /** Root of this project. */
  projectDir: string
  /** Where the stage, the test dependencies and the logs go. */
  cacheDir: string
  signal: AbortSignal
}

function normalizeName(name: string): string {
  return name.replace(/^(.*\/)?tests\//, '').replace(/\.test\.ts$/, '')
}

/** @throws {Error} if a name of `--only` names no test file, or one that is left out */
export function selectFiles(checkout: Checkout, only: readonly string[]): string[] {
  const runnable = checkout.files.filter(({ skipReason }) => !skipReason).map(({ file }) => file)
  if (only.length === 0) return runnable
  return only.map((name) => {
    const file = checkout.files.find((candidate) => normalizeName(candidate.file) === normalizeName(name))
    if (!file) throw new Error(`--only expects test files of the checkout, got "${name}"`)
    if (file.skipReason) throw new Error(`--only names ${file.file}, which is left out: it ${file.skipReason}`)
    return file.file
  })
}

async function runMode(runner: ModeRunner, files: readonly string[], signal: AbortSignal): Promise<ModeOutcome> {
  const startedAtMs = performance.now()
  const outcomes: FileOutcome[] = []
  for (const file of files) {
    const outcome = await runner.run(file, signal)
    printFile(runner.mode, outcome)
    outcomes.push(outcome)
  }
  const durationMs = Math.round(performance.now() - startedAtMs)
  return { mode: runner.mode, redis: runner.redisSource, durationMs, files: outcomes }
}

/** Starts a runner for a mode on its first use, and stops all of them in the end. */
class Runners {
  readonly #started = new Map<Mode, ModeRunner>()
  readonly #start: (mode: Mode) => Promise<ModeRunner>

  constructor(start: (mode: Mode) => Promise<ModeRunner>) {
    this.#start = start
  }

  async get(mode: Mode): Promise<ModeRunner> {
    const runner = this.#started.get(mode) ?? (await this.#start(mode))
    this.#started.set(mode, runner)
    return runner
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#started.values()].map((runner) => runner.stop()))
  }
}

async function compareAll(outcomes: readonly ModeOutcome[], run: RunTests) {
  const stock = outcomes.find(({ mode }) => mode === 'stock')
  const differences = outcomes.flatMap(({ mode, files }): Difference[] =>
    mode === 'stock' || !stock ? [] : compareModes(mode, stock.files, files),
  )
  if (differences.length > 0) console.log(`\nRunning ${differences.length} tests that differ again, in both modes`)
  return confirmDifferences(differences, run)
}

async function runModes(
  options: SuiteOptions,
  checkout: Checkout,
  bullmq: InstalledBullmq,
  runners: Runners,
): Promise<SuiteResult> {
  const versions = { bullmq: bullmq.version, tests: checkout.version }
  const files = selectFiles(checkout, options.only)
  const outcomes: ModeOutcome[] = options.baseline ? [readBaseline(options.baseline, versions)] : []
  for (const mode of options.modes) {
    if (outcomes.some((outcome) => outcome.mode === mode)) continue
    outcomes.push(await runMode(await runners.get(mode), files, options.signal))
  }
  for (const outcome of outcomes) printMode(outcome)
  const { confirmed, unsteady } = await compareAll(outcomes, async (mode, file, only) =>
    (await runners.get(mode)).run(file, options.signal, only),
  )
  return { ...versions, modes: outcomes, differences: confirmed, unsteady }
}

/** Runs BullMQ's tests in the given modes and compares ours with stock. */
export async function runSuite(options: SuiteOptions): Promise<SuiteResult> {
  const bullmq = findInstalledBullmq()
  const checkout = readCheckout(options.src, bullmq.esmDir, declaredPackages(options.projectDir))
  console.log(`Tests of BullMQ ${checkout.version} on the installed bullmq ${bullmq.version}`)
  printSkippedFiles(checkout.files)
  const stage = await createStage(checkout, bullmq.distDir, options.cacheDir)
  const runners = new Runners((mode) => ModeRunner.start(mode, stage, bullmq, `${options.cacheDir}/logs`))
  try {
    return await runModes(options, checkout, bullmq, runners)
  } finally {
    await runners.stop()
    stage.remove()
  }
}
