import type { Cli, Runner } from './cli.ts'
import { EXIT_CODES } from './command-error.ts'
import { failureOf } from './failure.ts'
import { type GlobalOptions, readGlobalOptions } from './global-options.ts'

/** An action that does not end by itself after an interrupt is cut off after this time. */
const GRACE_MS = 5000

/**
 * @param found the global options, as commander parsed them
 * @param onEnd called with the exit code of an action
 */
export function createRunner(
  found: () => Readonly<Record<string, unknown>>,
  onEnd: (exitCode: number) => void,
): Runner {
  return (action) =>
    async (...args) => {
      const options = readGlobalOptions(found())
      onEnd(await runAction(options, (cli) => action(cli, ...args)))
    }
}

async function runAction(
  options: GlobalOptions,
  action: (cli: Cli) => Promise<number | undefined> | Promise<void>,
): Promise<number> {
  // Loaded late: help and usage errors need no Redis.
  const { openCli } = await import('./open-cli.ts')
  const interrupt = listenForInterrupts(GRACE_MS)
  const cli = openCli(options, interrupt.signal)
  try {
    return (await action(cli)) ?? EXIT_CODES.done
  } catch (error) {
    return interrupt.signal.aborted ? EXIT_CODES.interrupted : report(error, cli.reached)
  } finally {
    await cli.close()
    interrupt.dispose()
  }
}

/** Reports on stderr why a command failed. @returns the exit code */
export function report(error: unknown, where?: Parameters<typeof failureOf>[1]): number {
  const { exitCode, message } = failureOf(error, where)
  if (message !== undefined) process.stderr.write(`sluice: ${message}\n`)
  return exitCode
}

/** SIGINT and SIGTERM, as an action sees them. */
interface Interrupt {
  /** Aborted by the first signal. A second one ends the process at once. */
  readonly signal: AbortSignal
  dispose(): void
}

/** @param graceMs how long after the first signal the process exits, even if work is left */
function listenForInterrupts(graceMs: number): Interrupt {
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
