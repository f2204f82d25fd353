import { Redis } from 'ioredis'
import type { Fleet } from './fleet/fleet.ts'
import type { RedisAddress } from './fleet/protocol.ts'
import type { PacedRun } from './paced-runs.ts'

export interface Row {
  readonly setup: string
  /** The required value; undefined where the figure only informs. */
  readonly asked?: string
  readonly reached: string
  /** Undefined without a required value. */
  readonly ok?: boolean | 'within its spread'
  /** The same for the comparison: BullMQ's own Worker or Queue, or another library. */
  readonly beside?: string
  /** The cells of a figure with its own headings; they replace all columns but `setup`. */
  readonly cells?: readonly string[]
  /** All measured values, for the JSON file. */
  readonly values: Readonly<Record<string, unknown>>
}

/** What a figure needs for its measurements. */
export interface Bench {
  readonly redis: RedisAddress
  readonly client: Redis
  readonly fleet: Fleet
  /** Completed runs that several figures share, by their parameters. */
  readonly pacedRuns: Map<string, Promise<PacedRun>>
  readonly quick: boolean
  /** Where the plot is written. */
  readonly plotFile: URL
}

export interface Figure {
  readonly name: string
  readonly title: string
  /** Default: the headings of rows with a required value and a comparison with BullMQ. */
  readonly headings?: readonly string[]
  /** After which it is given up. Default: 20, most take a few. */
  readonly mostMinutes?: number
  run(bench: Bench): Promise<Row[]>
}

export function connectionTo(redis: RedisAddress): { host: string; port: number; maxRetriesPerRequest: null } {
  return { host: redis.host, port: redis.port, maxRetriesPerRequest: null }
}

/** Opens a connection for the duration of `use`, as a program with the library would. */
export async function withClient<T>(redis: RedisAddress, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(connectionTo(redis))
  try {
    return await use(client)
  } finally {
    client.disconnect()
  }
}
