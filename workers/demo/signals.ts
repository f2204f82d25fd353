/** The signals that end the demonstration early, with their numbers: the exit code is 128 plus the number. */
const numbers = { SIGHUP: 1, SIGINT: 2, SIGPIPE: 13, SIGTERM: 15 } as const
type StopSignal = keyof typeof numbers
/** Node ignores SIGPIPE, and reports a closed reader as a stream error. */
const names = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const satisfies readonly StopSignal[]

/** The reason with which every wait is aborted. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  readonly exitCode: number

  constructor(signal: StopSignal) {
    super(`stopped by ${signal}`)
    this.exitCode = 128 + numbers[signal]
  }
}

/**
 * Turns the first signal into an abort with {@link Interrupted}. Later ones are ignored: npm forwards Ctrl-C to a
 * process that has already received it from the terminal, and stopping has its own timeouts.
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

/**
 * Turns the first failed write to one of `outputs` into an abort: with {@link Interrupted} when the reader has closed
 * it, as after `npm start | head`. The listeners stay until the process ends, because every later write fails too.
 */
export function listenForLostOutput(...outputs: readonly NodeJS.WritableStream[]): AbortSignal {
  const control = new AbortController()
  const onError = (error: NodeJS.ErrnoException): void => {
    control.abort(error.code === 'EPIPE' ? new Interrupted('SIGPIPE') : error)
  }
  for (const output of outputs) output.on('error', onError)
  return control.signal
}
