import { Closers } from './closers.ts'
import type { CommonSettings } from './common-settings.ts'
import { checkRedis } from './connection.ts'
import { reasonOf, SettingsError } from './errors.ts'
import { createLogger, type Logger } from './log.ts'
import { listenToProcess, type ProcessEvents } from './process-events.ts'
import { createScrubber } from './redact.ts'
import { buildWorker } from './running-worker.ts'
import { describeSettings, readSettings, secretTexts } from './settings.ts'
import type { WorkerProgram } from './worker-program.ts'

/** Exit codes of the worker programs. */
export const EXIT = { stopped: 0, failed: 1, usage: 2 } as const

interface Running {
  readonly closers: Closers
  /** Rejects if the worker stops by itself. */
  readonly ended: Promise<void>
}

/**
 * Runs a worker program until it is told to stop: reads the settings, opens the destination, starts the worker; on
 * SIGTERM or SIGINT lets running jobs finish, gives back the others and closes everything. A second signal ends the
 * process at once.
 *
 * @returns the exit code: 0 stopped as told (or `--help`), 1 could not start or stop, 2 wrong settings or arguments.
 */
export async function runProgram<S extends CommonSettings>(
  program: WorkerProgram<S>,
  args: readonly string[] = process.argv.slice(2),
  env: NodeJS.ProcessEnv = process.env,
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
    return say(process.stderr, scrub(`sluice ${program.name}: ${reasonOf(error)}`), EXIT.failed)
  } finally {
    events.dispose()
  }
}

async function runUntilStopped<S extends CommonSettings>(
  program: WorkerProgram<S>,
  settings: S,
  log: Logger,
  events: ProcessEvents,
): Promise<number> {
  const { closers, ended } = await start(program, settings, log)
  const { queueName, rate, capacity, concurrency } = settings
  log.info({ queue: queueName, rate, capacity, concurrency }, 'ready')
  try {
    await Promise.race([events.stopRequested, ended])
  } finally {
    await withinMs(settings.shutdownTimeoutMs, closers.closeAll())
  }
  log.info('stopped')
  return EXIT.stopped
}

async function start<S extends CommonSettings>(program: WorkerProgram<S>, settings: S, log: Logger): Promise<Running> {
  const closers = new Closers()
  try {
    await checkRedis(settings.redisUrl)
    const destination = await program.open(settings, log)
    closers.push(() => destination.close())
    const worker = await buildWorker(settings, destination, log, closers)
    return { closers, ended: worker.run() }
  } catch (error) {
    // The first failure is the one to report.
    await closers.closeAll().catch(() => undefined)
    throw error
  }
}

async function withinMs(timeoutMs: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`jobs did not finish within ${timeoutMs} ms`)), timeoutMs)
  })
  await Promise.race([work, timeout]).finally(() => clearTimeout(timer))
}

function helpText(program: WorkerProgram): string {
  return [
    program.purpose,
    '',
    `A job's data: ${program.jobFormat}`,
    'A job is retried when its producer gave it `attempts` (and `backoff`); what cannot succeed fails at once.',
    '',
    'Settings, from the environment:',
    describeSettings(program.settings),
    '',
    'Exit codes: 0 stopped as told, 1 could not start or stop, 2 wrong settings or arguments.',
  ].join('\n')
}

function say(stream: NodeJS.WritableStream, text: string, exitCode: number): number {
  stream.write(`${text}\n`)
  return exitCode
}
