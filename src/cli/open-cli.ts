import { stripVTControlCharacters } from 'node:util'
import Table from 'cli-table3'
import { Redis } from 'ioredis'
import pc from 'picocolors'
import type { Colors } from 'picocolors/types.js'
import { Inspector } from '../inspect/inspector.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import type { Cli, TableFit } from './cli.ts'
import { type GlobalOptions, hostOf } from './global-options.ts'
import { jsonLine } from './json-line.ts'

const CONNECT_TIMEOUT_MS = 5000
const COMMAND_TIMEOUT_MS = 10_000
const MAX_RECONNECT_MS = 2000

/** A {@link Cli} as its runner sees it. */
export interface OpenedCli extends Cli {
  /** The Redis that was used last, and the last error of its connection. */
  readonly reached: { readonly host: string; readonly lastError?: Error } | undefined
  close(): Promise<void>
}

export function openCli(options: GlobalOptions, signal: AbortSignal): OpenedCli {
  return new ConnectedCli(options, signal)
}

/** Opens each connection on first use. */
class ConnectedCli implements OpenedCli {
  readonly options: GlobalOptions
  readonly signal: AbortSignal
  readonly colors: Colors
  readonly by: string
  readonly #clients = new Map<string, Redis>()
  readonly #queues = new Map<string, ShapedQueue>()
  #inspector: Inspector | undefined
  #reached: OpenedCli['reached']

  constructor(options: GlobalOptions, signal: AbortSignal) {
    this.options = options
    this.signal = signal
    this.by = options.by
    this.colors = pc.createColors(options.color && process.stdout.isTTY === true && pc.isColorSupported)
  }

  get reached(): OpenedCli['reached'] {
    return this.#reached
  }

  inspector(): Inspector {
    const { redisUrl, readUrl = redisUrl, prefix } = this.options
    this.#inspector ??= new Inspector({ connection: this.#client(readUrl), prefix })
    return this.#inspector
  }

  async queue(name: string): Promise<ShapedQueue> {
    // Loaded late: commands that only read do not need BullMQ, which takes time and much memory.
    const { ShapedQueue } = await import('../queue/queue.ts')
    const found = this.#queues.get(name)
    if (found) return found
    const { redisUrl, prefix } = this.options
    // A mistyped name must not create a queue.
    const queue = new ShapedQueue(name, { connection: this.#client(redisUrl), prefix, skipMetasUpdate: true })
    queue.on('error', () => undefined)
    this.#queues.set(name, queue)
    return queue
  }

  async client(): Promise<Redis> {
    const client = this.#client(this.options.redisUrl)
    // Not every user may run PING.
    await client.exists(`${this.options.prefix}:`)
    return client
  }

  print(value: unknown, human: () => string): void {
    process.stdout.write(`${this.options.json ? jsonLine(value) : human()}\n`)
  }

  note(text: string): void {
    process.stderr.write(`${text}\n`)
  }

  table(head: readonly string[], rows: readonly (readonly string[])[], fit?: TableFit): string {
    return formatTable(head, rows, fit, this.colors.bold)
  }

  async close(): Promise<void> {
    await Promise.allSettled([this.#inspector?.close(), ...[...this.#queues.values()].map((queue) => queue.close())])
    for (const client of this.#clients.values()) client.disconnect()
  }

  #client(url: string): Redis {
    const host = hostOf(url)
    this.#reached ??= { host }
    const found = this.#clients.get(url)
    if (found) return found
    const client = connect(url)
    client.on('error', (lastError: Error) => {
      this.#reached = { host, lastError }
    })
    this.#clients.set(url, client)
    return client
  }
}

/**
 * Commands fail at once while there is no connection; ones that run for long, such as `top`, use the next connection.
 */
function connect(url: string): Redis {
  return new Redis(url, {
    connectionName: 'sluice-cli',
    connectTimeout: CONNECT_TIMEOUT_MS,
    commandTimeout: COMMAND_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    // The check runs INFO, which a read-only user may not.
    enableReadyCheck: false,
    retryStrategy: (attempt) => Math.min(attempt * 200, MAX_RECONNECT_MS),
  })
}

const BESIDE = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right']
const LINES = [...BESIDE, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid']
const CHARS = { ...Object.fromEntries(LINES.map((name) => [name, ''])), middle: '  ' }

/** A table without lines: columns as wide as their cells, two spaces apart. */
export function formatTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  fit: TableFit = { maxColumns: Number.POSITIVE_INFINITY, omitted: [] },
  bold = (text: string) => text,
): string {
  const {
    maxColumns,
    omitted: [next, ...omitted],
  } = fit
  const text = wideTable(head.map(bold), rows)
  if (next === undefined || widthOf(text) <= maxColumns) return text
  const at = head.indexOf(next)
  const kept = (cells: readonly string[]) => cells.filter((_, i) => i !== at)
  return formatTable(kept(head), rows.map(kept), { maxColumns, omitted }, bold)
}

function wideTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const style = { head: [], border: [], 'padding-left': 0, 'padding-right': 0, compact: true }
  const table = new Table({ head: [...head], chars: CHARS, style })
  table.push(...rows.map((row) => [...row]))
  return table
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')
}

function widthOf(text: string): number {
  return Math.max(
    ...stripVTControlCharacters(text)
      .split('\n')
      .map(({ length }) => length),
  )
}
