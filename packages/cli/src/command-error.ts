import { SluiceError } from 'sluice/internal'

/** A command cannot do what was asked. The message is one line. */
export class CommandError extends SluiceError {
  /** One of {@link EXIT_CODES}. */
  readonly exitCode: number

  constructor(exitCode: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.exitCode = exitCode
  }
}
