import type { Logger } from './log.ts'

export interface ProcessEvents {
  /** Resolves at the first SIGTERM or SIGINT. */
  readonly stopRequested: Promise<void>
  dispose(): void
}

/**
 * Listens for SIGTERM and SIGINT: the first asks for an orderly stop, the second ends the process at once with exit
 * code 1. An uncaught error ends the process too, and goes through the log: Node would print it with the secrets it may
 * hold.
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
    log.info({ signal }, 'stopping: what runs is finished, the rest is given back')
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
