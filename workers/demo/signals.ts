/** What ends the demonstration early, with the number of the signal: the exit code is 128 plus the number. */
const numbers = { SIGHUP: 1, SIGINT: 2, SIGPIPE: 13, SIGTERM: 15 } as const
type StopSignal = keyof typeof numbers
/** Node ignores SIGPIPE, and tells of a reader that is gone by an error of the stream. */
const names = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const satisfies readonly StopSignal[]

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

/**
 * Turns the first failure to write to one of `outputs` into an abort: with {@link Interrupted} when nobody reads it any
 * more, as after `npm start | head`. The listeners stay until the process ends, because every later write fails too.
 */
export function listenForLostOutput(...outputs: readonly NodeJS.WritableStream[]): AbortSignal {
  const control = new AbortController()
  const onError = (error: NodeJS.ErrnoException): void => {
    control.abort(error.code === 'EPIPE' ? new Interrupted('SIGPIPE') : error)
  }
  for (const output of outputs) output.on('error', onError)
  return control.signal
}
