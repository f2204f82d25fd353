import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino'
import type { Scrubber } from './redact.ts'

export type { Logger } from 'pino'

const ERROR_INTERVAL_MS = 1000

export interface LogOptions {
  /** The program's name, on every line. */
  readonly name: string
  readonly level: string
  /** Applied to every finished line, so that nothing reaches the output unscrubbed. */
  readonly scrub: Scrubber
  /** Where lines go. Default: standard output. */
  readonly destination?: DestinationStream
}

/** A JSON logger for a program. Secrets are removed by path, and anywhere else by their text. */
export function createLogger({ name, level, scrub, destination }: LogOptions): Logger {
  const options: LoggerOptions = {
    name,
    level,
    redact: {
      paths: [
        ...['job.data', 'url', 'password', 'token', 'secret', 'dsn', 'err.input', '*.password', '*.token', '*.url'],
        // Redis clients put the arguments of a command into its error: they hold job data.
        ...['err.command', 'err.*.command', 'err.aggregateErrors[*].command'],
      ],
      censor: '[redacted]',
    },
    hooks: { streamWrite: scrub },
  }
  return destination ? pino(options, destination) : pino(options)
}

/**
 * Logs connection errors at most once a second, with the number of suppressed ones: a client that reconnects to a
 * server that is down can report hundreds a second.
 * @param nowMs the clock, for tests.
 */
export function createErrorLog(log: Logger, nowMs: () => number = () => performance.now()): (error: Error) => void {
  let nextAtMs = Number.NEGATIVE_INFINITY
  let suppressed = 0
  return (error) => {
    if (nowMs() < nextAtMs) {
      suppressed += 1
      return
    }
    log.error({ err: error, ...(suppressed > 0 && { suppressed }) }, 'error')
    nextAtMs = nowMs() + ERROR_INTERVAL_MS
    suppressed = 0
  }
}
