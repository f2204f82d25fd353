import { Redis } from 'ioredis'
import type { Processes } from './processes.ts'

export interface RedisAddress {
  readonly host: string
  readonly port: number
}

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
  readonly values: object
}

/** What a figure needs for its measurements. */
export interface Bench {
  readonly redis: RedisAddress
  readonly client: Redis
  readonly processes: Processes
  readonly quick: boolean
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

/** Headings of figures that compare with nothing, or with what their rows name. */
export const ALONE = ['', 'asked', 'reached', 'ok', ''] as const

export function connectionTo({ host, port }: RedisAddress): { host: string; port: number; maxRetriesPerRequest: null } {
  return { host, port, maxRetriesPerRequest: null }
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

/** The rows of all of them, one after another. */
export async function inTurn<T>(all: Iterable<T>, measure: (one: T) => Promise<Row | Row[]>): Promise<Row[]> {
  const rows: Row[] = []
  for (const one of all) rows.push(...[await measure(one)].flat())
  return rows
}

/** A row for what is left over, which should be nothing. */
export function noneLeft(setup: string, left: number): Row {
  return { setup, asked: '0', reached: String(left), ok: left === 0, values: { left } }
}
