import { CommanderError } from 'commander'
import {
  CannotStartInTimeError,
  failureKind,
  InvalidInputError,
  NotReplicatedError,
  plainText,
  QueueFullError,
  QueueUnavailableError,
  ReadTimeoutError,
  SluiceError,
  unusableText,
  WaitTimeoutError,
} from 'sluice/internal'
import { CommandError, EXIT_CODES } from './cli.ts'

/** How a command failed: its exit code, and the line that says why. */
export interface Failure {
  readonly exitCode: number
  /** Undefined if commander has already printed it, or if the command only printed help. */
  readonly message: string | undefined
}

/** @param where the Redis that could not be reached, and the last error of its connection */
export function failureOf(error: unknown, where?: { readonly host: string; readonly lastError?: Error }): Failure {
  if (error instanceof CommanderError) {
    return { exitCode: error.exitCode === 0 ? EXIT_CODES.done : EXIT_CODES.usage, message: undefined }
  }
  if (!(error instanceof Error)) return { exitCode: EXIT_CODES.failed, message: plainText(String(error)) }
  const missing = missingPackage(error)
  if (missing) return failed(`this needs the package ${missing}, which is not installed: npm install ${missing}`)
  const exitCode = exitCodeOf(error)
  if (exitCode === EXIT_CODES.redis && !(error instanceof CommandError || error instanceof NotReplicatedError)) {
    return { exitCode, message: plainText(redisText(error, where)) }
  }
  return { exitCode, message: isForeseen(error) ? plainText(error.message) : (error.stack ?? error.message) }
}

function exitCodeOf(error: Error): number {
  if (error instanceof CommandError) return error.exitCode
  if (error instanceof QueueUnavailableError || error instanceof ReadTimeoutError) return EXIT_CODES.redis
  if (error instanceof QueueFullError || error instanceof CannotStartInTimeError || error instanceof WaitTimeoutError) {
    return EXIT_CODES.refused
  }
  if (error instanceof InvalidInputError) return EXIT_CODES.usage
  if (error instanceof SluiceError) return EXIT_CODES.failed
  return failureKind(error) ? EXIT_CODES.redis : EXIT_CODES.failed
}

/** A failed command only reports that the connection was closed; the cause was in an earlier `error` event. */
function redisText(error: Error, where: Parameters<typeof failureOf>[1]): string {
  const source = error instanceof QueueUnavailableError && error.cause instanceof Error ? error.cause : error
  const { host = 'an unknown address', lastError } = where ?? {}
  // A client of a cluster follows these, and its own error begins otherwise.
  if (source.message.startsWith('MOVED '))
    return `Redis at ${host} is a node of a cluster: give --cluster or set REDIS_CLUSTER`
  return unusableText(host, failureKind(source) === 'refused' ? source : (lastError ?? source))
}

/** Any other error is a bug in the program: its stack trace is printed. */
function isForeseen(error: Error): boolean {
  return error instanceof SluiceError || 'code' in error || 'command' in error
}

function missingPackage({ message, ...rest }: Error & { code?: string }): string | undefined {
  if (rest.code !== 'ERR_MODULE_NOT_FOUND') return undefined
  return /^Cannot find package '([^']+)'/.exec(message)?.[1]
}

function failed(message: string): Failure {
  return { exitCode: EXIT_CODES.failed, message }
}
