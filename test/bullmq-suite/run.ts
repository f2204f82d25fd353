import { fileURLToPath } from 'node:url'
import { Command, Option } from 'commander'
import { writeResult } from './baseline.ts'
import { readExceptions, staleExceptions } from './exceptions.ts'
import { MODES, type Mode } from './outcome.ts'
import { printDifferences } from './report.ts'
import { runSuite } from './suite.ts'

interface Flags {
  src: string
  mode?: Mode
  only: string[]
  baseline?: string
  json?: string
}

const program = new Command('test:bullmq')
  .description(
    "Runs BullMQ's own test-suite on the installed bullmq: as it is (stock), with createShapedBackend as the default " +
      'backend (backend), and with ShapedWorker in the place of Worker on top of that (worker). Fails if a test fails ' +
      'in our modes that does not fail on stock, except those named in test/bullmq-suite/exceptions.json.',
  )
  .requiredOption('--src <dir>', "a checkout of BullMQ's repository; it is not changed")
  .addOption(new Option('--mode <mode>', 'run stock alone, or compare one mode with stock').choices(MODES))
  .option('--only <file...>', 'run these test files only, as in: --only worker job.test.ts', [])
  .option('--baseline <file>', 'take the stock run from the result of an earlier --json')
  .option('--json <file>', 'write the result of every test to this file')
  .addHelpText(
    'after',
    `
The checkout should be of the installed version: tests of another one fail on stock, too, and say nothing about us.
Tests that differ are run again, in both modes, up to twice before they count. Each mode has a throwaway Redis of its
own. What the tests need and this project does not have is installed into .cache/bullmq-suite; logs are in its logs
folder. Exit code: 0 without a difference, 1 with one, 2 if the suite could not run.`,
  )

/** Stock is the reference of the other modes, so it is always among them. */
function modesFor(mode: Mode | undefined): readonly Mode[] {
  if (mode === undefined) return MODES
  return mode === 'stock' ? ['stock'] : ['stock', mode]
}

async function main(flags: Flags, signal: AbortSignal): Promise<number> {
  const exceptions = readExceptions(new URL('./exceptions.json', import.meta.url))
  const modes = modesFor(flags.mode)
  const result = await runSuite({
    src: flags.src,
    modes,
    only: flags.only,
    ...(flags.baseline === undefined ? {} : { baseline: flags.baseline }),
    projectDir: fileURLToPath(new URL('../..', import.meta.url)),
    cacheDir: fileURLToPath(new URL('../../.cache/bullmq-suite', import.meta.url)),
    signal,
  })
  if (flags.json) writeResult(flags.json, result)
  const open = printDifferences(modes, result.differences, result.unsteady, exceptions)
  const worker = result.modes.find(({ mode }) => mode === 'worker')
  for (const { file, test } of staleExceptions(worker?.files ?? [], exceptions)) {
    console.log(`needless exception  ${file}: ${test}`)
  }
  return open.length === 0 ? 0 : 1
}

const interrupt = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => interrupt.abort(new Error(`Stopped by ${signal}`)))
}
try {
  process.exitCode = await main(program.parse().opts<Flags>(), interrupt.signal)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 2
}
