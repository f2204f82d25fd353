import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { CommanderError } from 'commander'
import { Closers } from '../../src/programs/closers.ts'
import { parseStatements } from '../../src/programs/db-writes/statements.ts'
import { reasonOf } from '../../src/programs/errors.ts'
import { statementsFile } from './fleet.ts'
import { type DemoOptions, parseOptions } from './options.ts'
import { queueKinds, queueNames, type Shaper } from './queues.ts'
import { OutboxError, type OutboxLine, readOutbox } from './read-outbox.ts'
import { broken, reportOn } from './report.ts'
import { type ReportColumn, reportTable } from './report-table.ts'
import { type RunResult, runOutbox } from './run.ts'
import { openScreen, type Screen } from './screen.ts'
import { openServices } from './services.ts'
import { Interrupted, listenForSignals } from './signals.ts'

/** The exit codes of `npm start`, besides those of {@link Interrupted}. */
const exitCodes = { kept: 0, broken: 1, usage: 2 } as const

const exampleOutbox = fileURLToPath(new URL('../../examples/outbox.ndjson', import.meta.url))

function columnsOf(shaper: Shaper, { facts }: RunResult): ReportColumn[] {
  const by = shaper === 'sluice' ? 'Sluice' : 'BullMQ limiter'
  return queueKinds.map((kind) => ({ heading: [queueNames[kind], by], report: reportOn(facts[kind]) }))
}

/** Prints the report, and returns the exit code. Only what this library promises can break a promise. */
function conclude(screen: Screen, ours: RunResult, theirs: RunResult | undefined): number {
  const columns = columnsOf('sluice', ours)
  const all = theirs ? [...columns, ...columnsOf('bullmq', theirs)] : columns
  screen.say(`\n${reportTable(all)}\n`)
  if (theirs) screen.say("BullMQ's limiter grants no departure times, so its starts are measured in their place.")
  if (ours.sentAway > 0) {
    screen.say(
      `Mails that the SMTP server answered with 451 (try again later) on purpose, once each: ${ours.sentAway}.`,
    )
  }
  if (ours.failures.length > 0) screen.say(`Failed for good:\n${ours.failures.map((line) => `  ${line}`).join('\n')}`)
  const reasons = columns.flatMap(({ heading, report }) => broken(report).map((reason) => `${heading[0]}: ${reason}`))
  if (reasons.length > 0) screen.say(`Not as promised:\n${reasons.map((reason) => `  ${reason}`).join('\n')}`)
  else screen.say('No departure above the bound, nothing lost, nothing twice.')
  return reasons.length > 0 ? exitCodes.broken : exitCodes.kept
}

async function demonstrate(options: DemoOptions, lines: readonly OutboxLine[], screen: Screen): Promise<number> {
  const closers = new Closers()
  const signals = listenForSignals(() => screen.say('Stopping everything that was started …'))
  try {
    const context = await openServices(options, lines, screen, signals.aborted, closers)
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
  let options: DemoOptions
  let lines: OutboxLine[]
  try {
    options = parseOptions(args)
    lines = await readOutbox(options.input ?? exampleOutbox, parseStatements(readFileSync(statementsFile, 'utf8')))
  } catch (error) {
    // commander has printed what is wrong, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.kept : exitCodes.usage
    if (!(error instanceof OutboxError)) throw error
    process.stderr.write(`error: ${error.message}\n`)
    return exitCodes.usage
  }
  return demonstrate(options, lines, openScreen(process.stdout, process.env))
}
