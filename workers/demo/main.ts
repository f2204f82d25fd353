import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { CommanderError } from 'commander'
import { Closers } from '../../src/programs/closers.ts'
import { parseStatements } from '../../src/programs/db-writes/statements.ts'
import { reasonOf } from '../../src/programs/errors.ts'
import { statementsFile } from './fleet.ts'
import { checkDuration, TooLongError } from './limits.ts'
import { type DemoOptions, parseOptions, seeHelp } from './options.ts'
import { queueKinds, queueNames, type Shaper } from './queues.ts'
import { OutboxError, type OutboxLine, readOutbox } from './read-outbox.ts'
import { broken, isSlow, reportOn } from './report.ts'
import { legend, type ReportColumn, reportTable } from './report-table.ts'
import { type RunResult, runOutbox } from './run.ts'
import { openScreen, type Screen } from './screen.ts'
import { openServices } from './services.ts'
import { Interrupted, listenForLostOutput, listenForSignals } from './signals.ts'
import { runTenants } from './tenants/run.ts'

/** The exit codes of `npm start`, besides those of {@link Interrupted}. */
const exitCodes = { kept: 0, broken: 1, usage: 2 } as const

const exampleOutbox = fileURLToPath(new URL('../../examples/outbox.ndjson', import.meta.url))

function columnsOf(shaper: Shaper, { facts }: RunResult): ReportColumn[] {
  const by = shaper === 'sluice' ? 'Sluice' : 'BullMQ limiter'
  return queueKinds.map((kind) => ({ heading: [queueNames[kind], by], report: reportOn(facts[kind]) }))
}

/** Prints the report, and returns the exit code. Only this library's own columns decide the code. */
function conclude(screen: Screen, ours: RunResult, theirs: RunResult | undefined): number {
  const columns = columnsOf('sluice', ours)
  const all = theirs ? [...columns, ...columnsOf('bullmq', theirs)] : columns
  screen.say(`\n${reportTable(all)}\n\n${legend}\n`)
  const slow = columns.filter(({ report }) => isSlow(report)).map(({ heading }) => heading[0])
  if (slow.length > 0) {
    screen.say(
      `Below 98 % of the configured rate: ${slow.join(', ')}. The cause: few places\nor few lines for so high a rate, or a busy machine. It breaks no promise.`,
    )
  }
  if (theirs) screen.say("BullMQ's limiter grants no departure times: its starts are measured instead.")
  if (ours.sentAway > 0) {
    screen.say(`Mails answered with 451 (try again later) on purpose, once each: ${ours.sentAway}.`)
  }
  if (ours.failures.length > 0) screen.say(`Failed for good:\n${ours.failures.map((line) => `  ${line}`).join('\n')}`)
  const reasons = columns.flatMap(({ heading, report }) => broken(report).map((reason) => `${heading[0]}: ${reason}`))
  const judged = theirs ? 'Sluice only' : 'Sluice'
  if (reasons.length > 0) screen.say(`${judged}: not as promised:\n${reasons.map((line) => `  ${line}`).join('\n')}`)
  else screen.say(`${judged}: no departure above the bound, nothing lost, nothing twice.`)
  return reasons.length > 0 ? exitCodes.broken : exitCodes.kept
}

async function demonstrate(
  options: DemoOptions,
  lines: readonly OutboxLine[],
  screen: Screen,
  outputLost: AbortSignal,
): Promise<number> {
  const closers = new Closers()
  const signals = listenForSignals(() => screen.say('Stopping everything that was started …'))
  try {
    const stop = AbortSignal.any([signals.aborted, outputLost])
    const { tenants } = options
    if (tenants !== undefined) return await runTenants({ ...options, tenants }, screen, stop, closers)
    const context = await openServices(options, lines, screen, stop, closers)
    const ours = await runOutbox('sluice', context)
    const theirs = options.compare ? await runOutbox('bullmq', context) : undefined
    return conclude(screen, ours, theirs)
  } catch (error) {
    if (error instanceof Interrupted) return error.exitCode
    screen.say(`npm start failed: ${error instanceof Error ? error.message : String(error)}`)
    return exitCodes.broken
  } finally {
    await closers.closeAll().catch((error) => screen.say(`Not everything was stopped: ${reasonOf(error)}`))
    signals.stop()
  }
}

/**
 * Runs the demonstration.
 * @param args the command line without node and script
 * @returns the exit code
 */
export async function main(args: readonly string[]): Promise<number> {
  const outputLost = listenForLostOutput(process.stdout, process.stderr)
  let options: DemoOptions
  let lines: OutboxLine[]
  try {
    options = parseOptions(args)
    lines = await readOutbox(options.input ?? exampleOutbox, parseStatements(readFileSync(statementsFile, 'utf8')))
    checkDuration(lines, options.rate)
  } catch (error) {
    // commander has printed the error, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.kept : exitCodes.usage
    if (!(error instanceof OutboxError || error instanceof TooLongError)) throw error
    process.stderr.write(`error: ${error.message}\n${seeHelp}\n`)
    return exitCodes.usage
  }
  return demonstrate(options, lines, openScreen(process.stdout, process.env), outputLost)
}
