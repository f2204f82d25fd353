import { stripVTControlCharacters } from 'node:util'
import Table from 'cli-table3'
import type { Cluster, Redis } from 'ioredis'
import pc from 'picocolors'
import type { Colors } from 'picocolors/types.js'
import type { ShapedQueue } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { shardedQueuesKey } from 'sluice/internal'
import type { ShardedQueue } from 'sluice/sharding'
import { type Cli, CommandError, EXIT_CODES, type TableFit } from './cli.ts'
import { failureOf } from './failure.ts'
import { type GlobalOptions, hostOf } from './global-options.ts'
import { jsonLine } from './json-line.ts'
import { connectCluster, connectRedis } from './redis-client.ts'

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
  readonly #clients = new Map<string, Redis | Cluster>()
  readonly #queues = new Map<string, ShapedQueue>()
  readonly #sharded = new Map<string, ShardedQueue>()
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
    this.#inspector ??= new Inspector({ connection: this.#client(readUrl) as never, prefix })
    return this.#inspector
  }

  async queue(name: string, prefix = this.options.prefix): Promise<ShapedQueue> {
    // Loaded late: commands that only read do not need BullMQ, which takes time and much memory.
    const { ShapedQueue } = await import('sluice')
    const key = `${prefix}:${name}`
    const found = this.#queues.get(key)
    if (found) return found
    const connection = this.#client(this.options.redisUrl) as never
    // A mistyped name must not create a queue.
    const queue = new ShapedQueue(name, { connection, prefix, skipMetasUpdate: true })
    queue.on('error', () => undefined)
    this.#queues.set(key, queue)
    return queue
  }

  async shardedQueue(name: string, shards: number): Promise<ShardedQueue> {
    const { ShardedQueue } = await import('sluice/sharding')
    const found = this.#sharded.get(name)
    if (found) return found
    const connection = this.#client(this.options.redisUrl) as never
    const { prefix } = this.options
    const queue = new ShardedQueue(name, { connection, prefix, skipMetasUpdate: true, shards })
    queue.on('error', () => undefined)
    this.#sharded.set(name, queue)
    return queue
  }

  async shardsOf(name: string): Promise<number> {
    const { redisUrl, prefix } = this.options
    return Number((await this.#client(redisUrl).hget(shardedQueuesKey(prefix), name)) ?? 0)
  }

  async client(): Promise<Redis> {
    if (this.options.cluster) {
      throw new CommandError(EXIT_CODES.usage, 'this command reads one Redis: give the URL of a node without --cluster')
    }
    return (await this.connection()) as Redis
  }

  async connection(): Promise<Redis | Cluster> {
    const client = this.#client(this.options.redisUrl)
    // Not every user may run PING.
    await client.exists(`${this.options.prefix}:`)
    return client
  }

  print(value: unknown, human: () => string): void {
    process.stdout.write(`${this.options.json ? jsonLine(value) : human()}\n`)
  }

  reasonOf(error: unknown): string {
    return failureOf(error, this.#reached).message ?? String(error)
  }

  note(text: string): void {
    process.stderr.write(`${text}\n`)
  }

  table(head: readonly string[], rows: readonly (readonly string[])[], fit?: TableFit): string {
    return formatTable(head, rows, fit, this.colors.bold)
  }

  async close(): Promise<void> {
    const queues = [...this.#queues.values(), ...this.#sharded.values()].map((queue) => queue.close())
    await Promise.allSettled([this.#inspector?.close(), ...queues])
    for (const client of this.#clients.values()) client.disconnect()
  }

  #client(url: string): Redis | Cluster {
    const host = hostOf(url)
    this.#reached ??= { host }
    const found = this.#clients.get(url)
    if (found) return found
    const client = this.options.cluster ? connectCluster(url) : connectRedis(url)
    client.on('error', (lastError: Error) => {
      this.#reached = { host, lastError }
    })
    this.#clients.set(url, client)
    return client
  }
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
