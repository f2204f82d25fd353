import type { Command } from 'commander'
import type { Cluster, Redis } from 'ioredis'
import type { Colors } from 'picocolors/types.js'
import type { ShapedQueue } from 'sluice'
import type { Inspector } from 'sluice/inspect'
import type { ShardedQueue } from 'sluice/sharding'
import type { GlobalOptions } from './global-options.ts'

export { CommandError, EXIT_CODES } from './command-error.ts'

/** What each command receives. */
export interface Cli {
  readonly options: GlobalOptions
  /** For reads: uses `--read-url` if given. Closed by the runner. */
  inspector(): Inspector
  /**
   * For writes; creating it writes nothing. Closed by the runner.
   * @param prefix default: that of the command line
   */
  queue(name: string, prefix?: string): Promise<ShapedQueue>
  /** The same for a sharded queue. */
  shardedQueue(name: string, shards: number): Promise<ShardedQueue>
  /** How many shards a queue has; 0: it is not a sharded one. */
  shardsOf(name: string): Promise<number>
  /**
   * A connected plain client for writes. Closed by the runner.
   * @throws CommandError if Redis cannot be reached, and with `--cluster`
   */
  client(): Promise<Redis>
  /** The same; with `--cluster` a client of the cluster. */
  connection(): Promise<Redis | Cluster>
  /**
   * With `--json` prints one line of JSON on stdout: dates are ISO 8601, Infinity is null. Otherwise prints what
   * `human` returns.
   */
  print(value: unknown, human: () => string): void
  /** Why something failed, in the words with which a command ends. */
  reasonOf(error: unknown): string
  /** Prints progress and notes on stderr. */
  note(text: string): void
  /**
   * A table without lines. Cells may hold colours; pass untrusted text through {@link plainText}, which makes control
   * characters visible.
   */
  table(head: readonly string[], rows: readonly (readonly string[])[], fit?: TableFit): string
  /** No-ops if stdout is not a terminal, with NO_COLOR and with `--no-color`. */
  readonly colors: Colors
  /** Aborted by SIGINT and SIGTERM. An action that is still running five seconds later is cut off. */
  readonly signal: AbortSignal
  /** The author of changes: `--by`, else user@host. */
  readonly by: string
}

/** How a table gets narrower. */
export interface TableFit {
  readonly maxColumns: number
  /** Names of columns that are left out while the table is too wide, the least important first. */
  readonly omitted: readonly string[]
}

/** Exported by each file of `commands/`: adds its command to the program. */
export type AddCommand = (program: Command, run: Runner) => void

/**
 * Turns an action that takes a {@link Cli} into a commander action: connects, maps errors to exit codes, closes. A
 * number that the action returns is the exit code.
 */
export type Runner = <A extends unknown[]>(
  action: (cli: Cli, ...args: A) => Promise<number | undefined> | Promise<void>,
) => (...args: A) => Promise<void>
