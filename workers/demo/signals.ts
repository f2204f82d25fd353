/** The signals that ask the demonstration to stop, with their numbers: the exit code is 128 plus the number. */
const numbers = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const
type StopSignal = keyof typeof numbers
const names = Object.keys(numbers) as StopSignal[]

/** The reason with which whatever waits is interrupted. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  readonly exitCode: number

  constructor(signal: StopSignal) {
    super(`stopped by ${signal}`)
    this.exitCode = 128 + numbers[signal]
  }
}

/**
 * Turns the first signal into an abort with {@link Interrupted}. Later ones mean nothing: npm passes Ctrl-C on to a
 * process that the terminal has already told, and stopping has time limits of its own.
 */
export function listenForSignals(onFirst: () => void): { aborted: AbortSignal; stop(): void } {
  const control = new AbortController()
  const onSignal = (name: NodeJS.Signals): void => {
    if (control.signal.aborted) return
    onFirst()
    control.abort(new Interrupted(name as StopSignal))
  }
  for (const name of names) process.on(name, onSignal)
  return {
    aborted: control.signal,
    stop: () => {
      for (const name of names) process.off(name, onSignal)
    },
  }
}
