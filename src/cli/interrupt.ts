import { EXIT_CODES } from './exit-codes.ts'

/** SIGINT and SIGTERM, as an action sees them. */
export interface Interrupt {
  /** Aborted by the first signal. A second one ends the process at once. */
  readonly signal: AbortSignal
  dispose(): void
}

/** @param graceMs how long after the first signal the process exits, even if work is left */
export function listenForInterrupts(graceMs: number): Interrupt {
  const controller = new AbortController()
  let timer: NodeJS.Timeout | undefined
  const end = () => process.exit(EXIT_CODES.interrupted)
  const listen = () => {
    if (controller.signal.aborted) end()
    controller.abort(new Error('interrupted'))
    timer = setTimeout(end, graceMs)
  }
  process.on('SIGINT', listen)
  process.on('SIGTERM', listen)
  const dispose = () => {
    clearTimeout(timer)
    process.off('SIGINT', listen)
    process.off('SIGTERM', listen)
  }
  return { signal: controller.signal, dispose }
}
