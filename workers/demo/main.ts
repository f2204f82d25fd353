import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { CommanderError } from 'commander'
import { Closers, reasonOf } from 'sluice-programs'
import { parseStatements } from 'sluice-workers/db-writes'
import { statementsFile } from './fleet.ts'
import { checkDuration, TooLongError } from './limits.ts'
import { type DemoOptions, parseOptions, type StartOptions, seeHelp } from './options.ts'
import { type QueueKind, queueKinds, queueNames, type Shaper } from './queues.ts'
import { OutboxError, type OutboxLine, readOutbox } from './read-outbox.ts'
import { broken, isSlow, reportOn } from './report.ts'
import { legend, type ReportColumn, reportTable } from './report-table.ts'
import { type RunResult, runOutbox } from './run.ts'
import { openScreen, type Screen } from './screen.ts'
import { openServices } from './services.ts'
import { Interrupted, listenForLostOutput, listenForSignals } from './signals.ts'
import type { RunContext } from './stage.ts'
import { runStory } from './story.ts'
import { runTenants } from './tenants/run.ts'
import { difference, nextSteps, verdict } from './verdict.ts'

/** The exit codes of `npm start`, besides those of {@link Interrupted}. */
const exitCodes = { kept: 0, broken: 1, usage: 2 } as const

const exampleOutbox = fileURLToPath(new URL('../../examples/outbox.ndjson', import.meta.url))

function columnsOf(shaper: Shaper, { facts }: RunResult): ReportColumn[] {
  const by = shaper === 'sluice' ? 'Sluice' : 'BullMQ limiter'
  return queueKinds.map((kind) => ({ heading: [queueNames[kind], by], report: reportOn(facts[kind]) }))
}

/** What the jobs of a queue are called in the verdict. */
const jobNames: Readonly<Record<QueueKind, string>> = { email: 'mails', write: 'database writes' }

/** Prints the verdict and the report, and returns the exit code. Only this library's own columns decide the code. */
function conclude(options: DemoOptions, { screen, rate }: RunContext, ours: RunResult, theirs?: RunResult): number {
  const columns = columnsOf('sluice', ours)
  const others = theirs ? columnsOf('bullmq', theirs) : []
  const reports = columns.map(({ report }) => report)
  screen.say(
    `\n${verdict(
      rate,
      columns.map(({ report }, i) => ({ jobs: jobNames[queueKinds[i] as QueueKind], report })),
    )}`,
  )
  if (theirs)
    screen.say(
      difference(
        reports,
        others.map(({ report }) => report),
      ),
    )
  screen.say(`\n${reportTable([...columns, ...others])}\n\n${legend}\n`)
  for (const note of notes(columns, ours, theirs)) screen.say(note)
  const reasons = columns.flatMap(({ heading, report }) => broken(report).map((reason) => `${heading[0]}: ${reason}`))
  if (reasons.length > 0) screen.say(`Sluice: not as promised:\n${reasons.map((line) => `  ${line}`).join('\n')}`)
  screen.say(`\n${nextSteps(options)}`)
  return reasons.length > 0 ? exitCodes.broken : exitCodes.kept
}

function notes(columns: readonly ReportColumn[], ours: RunResult, theirs: RunResult | undefined): string[] {
  const slow = columns.filter(({ report }) => isSlow(report)).map(({ heading }) => heading[0])
  const lines: string[] = []
  if (slow.length > 0) {
    lines.push(
      `Below 98% of the configured rate: ${slow.join(', ')}. The cause: few places\nor few lines for so high a rate, or a busy machine. It breaks no promise.`,
    )
  }
  if (theirs) lines.push("BullMQ's limiter grants no departure times: its starts are measured instead.")
  if (ours.sentAway > 0)
    lines.push(`Mails answered with 451 (try again later) on purpose, once each: ${ours.sentAway}.`)
  if (ours.failures.length > 0)
    lines.push(`Failed permanently:\n${ours.failures.map((line) => `  ${line}`).join('\n')}`)
  return lines
}

async function runAndConclude(options: DemoOptions, context: RunContext): Promise<number> {
  const ours = await runOutbox('sluice', context)
  return conclude(options, context, ours, options.compare && (await runOutbox('bullmq', context)))
}

async function demonstrate(
  options: StartOptions,
  lines: readonly OutboxLine[],
  screen: Screen,
  outputLost: AbortSignal,
): Promise<number> {
  const closers = new Closers()
  const signals = listenForSignals(() => screen.say('Stopping everything that was started …'))
  try {
    const stop = AbortSignal.any([signals.aborted, outputLost])
    const { tenants } = options
    if (options.dashboard) return await runStory(options, screen, stop, closers)
    if (tenants !== undefined) return await runTenants({ ...options, tenants }, screen, stop, closers)
    const context = await openServices(options, lines, screen, stop, closers)
    return await runAndConclude(options, context)
  } catch (error) {
    if (error instanceof Interrupted) return error.exitCode
    screen.rest()
    process.stderr.write(`npm start failed: ${error instanceof Error ? error.message : String(error)}\n`)
    return exitCodes.broken
  } finally {
    await closers.closeAll().catch((error) => screen.say(`Not everything was stopped: ${reasonOf(error)}`))
    signals.stop()
  }
}

/**
 * Runs the demonstration.
 * @param args the command line without node and script
 * @param programs the folder of the compiled programs
 * @returns the exit code
 */
export async function main(args: readonly string[], programs: string): Promise<number> {
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
  return demonstrate({ ...options, programs }, lines, openScreen(process.stdout, process.env), outputLost)
}
