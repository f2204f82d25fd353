import { SluiceError } from 'sluice/internal'

/** A command cannot do what was asked. The message is one line. */
export class CommandError extends SluiceError {
  constructor(
    /** One of {@link EXIT_CODES}. */
    readonly exitCode: number,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** Exit codes of the command line; docs/cli.md. */
export const EXIT_CODES = {
  done: 0,
  /** A check found something, or the operation failed. */
  failed: 1,
  usage: 2,
  /** Redis cannot be reached, or refuses a command. */
  redis: 3,
  /** No such queue or job. */
  notFound: 4,
  /** The queue has no place, and not all jobs were added. */
  refused: 5,
  interrupted: 130,
} as const
