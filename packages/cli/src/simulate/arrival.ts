import { InvalidInputError, SluiceError } from 'sluice/internal'

/** A job that arrives at a queue. */
export interface Arrival {
  /** Whole µs since 1970. */
  readonly atUs: number
  readonly cost: number
  /** In units of other limits. */
  readonly costs?: Readonly<Record<string, number>>
  /** BullMQ's; 0 is none. */
  readonly priority: number
  readonly delayMs: number
  /** Its group, where the shape has groups. */
  readonly group?: ArrivalGroup
  readonly keys?: Readonly<Record<string, string>>
  readonly tier?: string
}

export interface ArrivalGroup {
  readonly id: string
  /** Default 0. */
  readonly priority?: number
}

/** A line of a recording: a field that is left out is 1 (cost), none (priority, delay) or unknown (id). */
export interface RecordedArrival {
  /** ms since 1970, on Redis's clock. */
  readonly at: number
  readonly id?: string
  readonly name: string
  readonly cost: number
  readonly costs?: Readonly<Record<string, number>>
  readonly priority?: number
  /** ms */
  readonly delay?: number
  /** Its group, or the id of one. */
  readonly group?: string | ArrivalGroup
  readonly keys?: Readonly<Record<string, string | number>>
  readonly tier?: string
  /** The queue refused it: its cost is unknown, and its time is accurate to a second. */
  readonly refused?: true
}

/** When it may start at the earliest: when it arrives, or when its delay ends. BullMQ stores whole ms. */
export function readyUs({ atUs, delayMs }: Arrival): number {
  return delayMs > 0 ? (Math.floor(atUs / 1000) + delayMs) * 1000 : atUs
}

/**
 * Thrown for arrivals that cannot be read, and for an invalid load; names the position, the expected and the given
 * value.
 */
export class InvalidArrivalsError extends InvalidInputError {}

/** Thrown when a simulation was aborted, or takes longer than Redis keeps its state. */
export class SimulationStoppedError extends SluiceError {}
