import { InvalidInputError, SluiceError } from 'sluice/internal'

/** An invalid setting: its name, and the expected and the given value. Never holds a secret. */
export interface SettingProblem {
  readonly variable: string
  readonly problem: string
}

/** The settings of a program are invalid. The message lists every problem. */
export class SettingsError extends InvalidInputError {
  constructor(readonly problems: readonly SettingProblem[]) {
    const heading = problems.length === 1 ? '1 setting is wrong:' : `${problems.length} settings are wrong:`
    super([heading, ...problems.map(({ variable, problem }) => `  ${variable}: ${problem}`)].join('\n'))
  }
}

/** A program could not start because a dependency did not answer or is not set up as required. */
export class StartError extends SluiceError {
  constructor(what: string, cause?: unknown) {
    super(cause === undefined ? what : `${what}: ${reasonOf(cause)}`, { cause })
  }
}

/** The data of a job is not what its program accepts. Names the fields, never their values. */
export class InvalidPayloadError extends InvalidInputError {
  constructor(
    what: string,
    readonly problems: readonly string[],
  ) {
    super(`${what} was not accepted: ${problems.join('; ')}`)
  }
}

/** The destination permanently refused a job: a retry would get the same answer. */
export class DestinationRefusedError extends SluiceError {
  constructor(
    destination: string,
    /** The destination's own code: an SMTP reply code such as `550` or an SQLSTATE such as `23505`. */
    readonly code: string,
    answer: string,
    cause: unknown,
  ) {
    super(`${destination} refused the job permanently (${code}): ${answer}`, { cause })
  }
}

/** The reason of an error on one line. If several addresses fail, Node throws an AggregateError without a message. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(reasonOf).join(', ')
  const text = error instanceof Error ? error.message || error.name : String(error)
  const lines = text.split('\n').map((line) => line.trim())
  return lines.filter((line) => line !== '').join(' ')
}
