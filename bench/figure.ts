import { Redis } from 'ioredis'
import type { Fleet } from './fleet/fleet.ts'
import type { RedisAddress } from './fleet/protocol.ts'
import type { PacedRun } from './paced-runs.ts'

/** One line of the table. */
export interface Row {
  readonly setup: string
  /** What the figure has to be; undefined where it only informs. */
  readonly asked?: string
  readonly reached: string
  readonly ok?: boolean
  /** The same with what it is measured beside: BullMQ's own Worker or Queue, or another library. */
  readonly beside?: string
  /** What stands under the headings of a figure that has its own, in place of all but `setup`. */
  readonly cells?: readonly string[]
  /** Everything that was measured, for the JSON file. */
  readonly values: Readonly<Record<string, unknown>>
}

/** What a figure is measured with. */
export interface Bench {
  readonly redis: RedisAddress
  /** A connection of the benchmark itself. */
  readonly client: Redis
  readonly fleet: Fleet
  /** Runs that were made already, by what they are. */
  readonly pacedRuns: Map<string, Promise<PacedRun>>
  readonly quick: boolean
  /** Where the plot goes. */
  readonly plotFile: URL
}

export interface Figure {
  readonly name: string
  readonly title: string
  /** Default: those of rows that are asked for something and stand beside BullMQ's own. */
  readonly headings?: readonly string[]
  run(bench: Bench): Promise<Row[]>
}

/** The connection options of BullMQ's classes. */
export function connectionTo(redis: RedisAddress): { host: string; port: number; maxRetriesPerRequest: null } {
  return { host: redis.host, port: redis.port, maxRetriesPerRequest: null }
}

/** Opens a connection for a while, as a program that uses the library would. */
export async function withClient<T>(redis: RedisAddress, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(connectionTo(redis))
  try {
    return await use(client)
  } finally {
    client.disconnect()
  }
}
