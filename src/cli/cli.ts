import type { Command } from 'commander'
import type { Redis } from 'ioredis'
import type { Colors } from 'picocolors/types.js'
import type { Inspector } from '../inspect/inspector.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import type { GlobalOptions } from './global-options.ts'

export { CommandError } from './command-error.ts'

/** What commands get. */
export interface Cli {
  readonly options: GlobalOptions
  /** For reading: by `--read-url` where that is given. Closed by the frame. */
  inspector(): Inspector
  /** For writing; writes nothing by itself. Closed by the frame. */
  queue(name: string): Promise<ShapedQueue>
  /**
   * A plain client, of the write side, that is connected. Closed by the frame.
   * @throws CommandError if Redis can not be reached
   */
  client(): Promise<Redis>
  /** With `--json` one line of JSON on stdout: dates are ISO 8601, Infinity is null. Else what `human` returns. */
  print(value: unknown, human: () => string): void
  /** Progress and notes: stderr. */
  note(text: string): void
  /** A table without lines. Cells may hold colours; control characters of others are made visible with {@link plainText}. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): string
  /** They colour nothing where stdout is no terminal, with NO_COLOR and with `--no-color`. */
  readonly colors: Colors
  /** Aborted by SIGINT and SIGTERM. An action that goes on is cut off five seconds later. */
  readonly signal: AbortSignal
  /** Who changes things: `--by`, else user@host. */
  readonly by: string
}

/** Each file of `commands/` exports one: it adds its command to the program. */
export type AddCommand = (program: Command, run: Runner) => void

/**
 * Makes an action of commander's out of one that takes a {@link Cli}: connects, maps errors to exit codes, closes.
 * A number that the action returns is the exit code.
 */
export type Runner = <A extends unknown[]>(
  action: (cli: Cli, ...args: A) => Promise<number | undefined> | Promise<void>,
) => (...args: A) => Promise<void>
