import { orLate } from 'sluice/internal'
import { Closers } from './closers.ts'
import { reasonOf, SettingsError } from './errors.ts'
import { createLogger, type Logger } from './log.ts'
import { createScrubber } from './redact.ts'
import { describeSettings, readSettings, type SettingTable, secretTexts } from './settings.ts'

/** Exit codes of the programs. */
export const EXIT = { stopped: 0, failed: 1, usage: 2 } as const

/** The settings that every program has. */
export interface RunSettings {
  readonly logLevel: string
  readonly shutdownTimeoutMs: number
}

export interface Started {
  /** Logged with the line "ready". */
  readonly facts: object
  /** The address that a person opens in a browser. */
  readonly page?: string
  /** Rejects if the program fails while it runs. */
  readonly ended?: Promise<void>
}

/** A program that runs until it is stopped. */
export interface Runnable<S extends RunSettings> {
  /** Short name, such as `email`. */
  readonly name: string
  /** Every setting; reading it gives an `S`. */
  readonly settings: SettingTable
  /** What `--help` prints before the settings. */
  readonly about: readonly string[]
  /** The work that a graceful stop waits for, such as `jobs`. */
  readonly work: string
  /**
   * Checks that involve several settings, before anything is opened.
   * @throws SettingsError
   */
  check?(settings: S): Promise<void>
  /**
   * Opens everything. What it pushes to `closers` is closed in reverse order, also after a failure.
   * @throws SettingsError for invalid settings that are only found now
   */
  start(settings: S, log: Logger, closers: Closers): Promise<Started>
}

/**
 * Runs a program until it is stopped: reads the settings and starts it; on SIGTERM or SIGINT closes everything in
 * order. A second signal ends the process at once.
 * @returns the exit code: 0 stopped on request (or `--help`), 1 could not start or stop, 2 wrong settings or arguments.
 */
export async function run<S extends RunSettings>(
  program: Runnable<S>,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) return say(process.stdout, helpText(program), EXIT.stopped)
  if (args.length > 0) return say(process.stderr, `unknown argument ${args[0]}: see --help`, EXIT.usage)
  let settings: S
  try {
    settings = readSettings(program.settings, env) as unknown as S
    await program.check?.(settings)
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error
    return say(process.stderr, `sluice ${program.name}: ${error.message}`, EXIT.usage)
  }
  const scrub = createScrubber(secretTexts(program.settings, env))
  const log = createLogger({ name: `sluice-${program.name}`, level: settings.logLevel, scrub })
  const events = listenToProcess(log)
  try {
    return await runUntilStopped(program, settings, log, events)
  } catch (error) {
    if (error instanceof SettingsError) {
      return say(process.stderr, `sluice ${program.name}: ${scrub(error.message)}`, EXIT.usage)
    }
    return say(process.stderr, scrub(`sluice ${program.name}: ${reasonOf(error)}`), EXIT.failed)
  } finally {
    events.dispose()
  }
}

async function runUntilStopped<S extends RunSettings>(
  program: Runnable<S>,
  settings: S,
  log: Logger,
  events: ProcessEvents,
): Promise<number> {
  const closers = new Closers()
  const { facts, page, ended } = await start(program, settings, log, closers)
  log.info(facts, 'ready')
  // Lines of JSON are for programs: at a terminal, a person looks for the address.
  if (page !== undefined && process.stdout.isTTY) process.stdout.write(`Open ${page} in a browser; Ctrl+C stops it.\n`)
  try {
    await (ended ? Promise.race([events.stopRequested, ended]) : events.stopRequested)
  } finally {
    const { shutdownTimeoutMs: ms } = settings
    await orLate(ms, closers.closeAll(), () => new Error(`${program.work} did not finish within ${ms} ms`))
  }
  log.info('stopped')
  return EXIT.stopped
}

async function start<S extends RunSettings>(
  program: Runnable<S>,
  settings: S,
  log: Logger,
  closers: Closers,
): Promise<Started> {
  try {
    return await program.start(settings, log, closers)
  } catch (error) {
    // The first failure is the one to report.
    await closers.closeAll().catch(() => undefined)
    throw error
  }
}

function helpText<S extends RunSettings>(program: Runnable<S>): string {
  return [
    ...program.about,
    '',
    'Settings, from the environment:',
    describeSettings(program.settings),
    '',
    'Exit codes: 0 stopped on request, 1 could not start or stop, 2 wrong settings or arguments.',
  ].join('\n')
}

function say(stream: NodeJS.WritableStream, text: string, exitCode: number): number {
  stream.write(`${text}\n`)
  return exitCode
}

interface ProcessEvents {
  /** Resolves at the first SIGTERM or SIGINT. */
  readonly stopRequested: Promise<void>
  dispose(): void
}

/**
 * Listens for SIGTERM and SIGINT: the first asks for a graceful stop, the second ends the process at once with exit
 * code 1. An uncaught error ends the process too, and goes through the log: Node would print it with any secrets in it.
 */
export function listenToProcess(log: Logger): ProcessEvents {
  let stopping = false
  let request: () => void = () => undefined
  const stopRequested = new Promise<void>((resolve) => {
    request = resolve
  })
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopping) {
      log.error({ signal }, 'stopping at once')
      process.exit(1)
    }
    stopping = true
    log.info({ signal }, 'stopping: running work is finished, the rest is given back')
    request()
  }
  const onCrash = (error: unknown) => {
    log.fatal({ err: error }, 'crashed')
    process.exit(1)
  }
  process.on('uncaughtException', onCrash)
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  return {
    stopRequested,
    dispose() {
      process.off('uncaughtException', onCrash)
      process.off('SIGTERM', onSignal)
      process.off('SIGINT', onSignal)
    },
  }
}
