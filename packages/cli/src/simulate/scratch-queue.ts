import { randomBytes } from 'node:crypto'
import type { Redis } from 'ioredis'
import { type StoredValue, shapeKey, untilKnown } from 'sluice/internal'
import { installedScripts } from 'sluice/internal/bullmq'
import type { Arrival } from './arrival.ts'

/** The methods of an ioredis client that are used. */
export type ScratchRedis = Pick<Redis, 'defineCommand' | 'scanStream' | 'unlink'>

/** How long Redis keeps the keys of a simulation that crashed, ms. */
export const SCRATCH_TTL_MS = 3_600_000

const DEFAULT_SCRATCH_PREFIX = 'sluice-simulation'

/** One call of `lua/verbs/simulate.lua`. */
export interface Chunk {
  /** The index of the first of the arrivals. */
  readonly first: number
  readonly arrivals: readonly Arrival[]
  /** Whether these are the last arrivals. */
  readonly isLast: boolean
  /** Approximate number of arrivals, departures and similar steps that the script may process. */
  readonly steps: number
  /** After which the script processes no more, ms. Default: any. */
  readonly budgetMs?: number
}

/** The result of one call. Numbers are indices of arrivals. */
export interface ChunkReply {
  readonly taken: number
  /** Number and slot (µs) of each job that departed, in one list. */
  readonly departed: readonly number[]
  /** Number and status of each refused job, in one list. */
  readonly refused: readonly number[]
  readonly dropped: readonly number[]
  /** Slice, longest queue in it and its length at its end, in one list. */
  readonly slices: readonly number[]
  readonly longest: number
  /** Starts so far that waited for a place. */
  readonly placeBound: number
  readonly done: boolean
  /** How many steps the script processed. */
  readonly steps: number
}

/** Settings that are constant during a simulation. */
export interface ScratchSettings {
  /** In stored form. */
  readonly fields: Readonly<Record<string, StoredValue>>
  /** What is set for single groups, in stored form. */
  readonly groups: Readonly<Record<string, string>>
  /** Maximum number of running jobs; undefined: any number. */
  readonly places: number | undefined
  readonly jobUs: number
  readonly startUs: number
  readonly sliceUs: number
  /** Prefix of its keys. Default `sluice-simulation`. */
  readonly prefix?: string
}

/** A queue in virtual time, under a unique prefix. Close it after use. */
export class ScratchQueue {
  readonly base: string
  readonly #redis: ScratchRedis
  readonly #settings: ScratchSettings
  readonly #command: string
  #begun = false

  constructor(redis: ScratchRedis, settings: ScratchSettings) {
    this.#redis = redis
    this.#settings = settings
    this.#command = installedScripts().defineSimulation(redis)
    const { prefix = DEFAULT_SCRATCH_PREFIX } = settings
    this.base = `{${prefix}-${randomBytes(8).toString('hex')}}:queue:`
  }

  async run({ first, arrivals, isLast, steps, budgetMs }: Chunk): Promise<ChunkReply> {
    const { fields, groups, places, jobUs, startUs, sliceUs } = this.#settings
    const shape = this.#begun ? '' : JSON.stringify(fields)
    const options = {
      groups: this.#begun ? {} : groups,
      first,
      steps,
      budgetMs,
      last: isLast,
      places,
      jobUs,
      ttlMs: SCRATCH_TTL_MS,
      startUs,
      sliceUs,
    }
    const args = [shape, JSON.stringify(options), JSON.stringify(arrivals.map(encode))]
    const reply = (await this.#call(args)) as readonly unknown[]
    this.#begun = true
    const [taken, departed, refused, dropped, slices, longest, placeBound, done, processed] = reply
    return {
      taken: taken as number,
      departed: departed as number[],
      refused: refused as number[],
      dropped: dropped as number[],
      slices: slices as number[],
      longest: longest as number,
      placeBound: placeBound as number,
      done: done === 1,
      steps: processed as number,
    }
  }

  async close(): Promise<void> {
    for await (const keys of this.#redis.scanStream({ match: `${this.base}*`, count: 1000 })) {
      if ((keys as string[]).length > 0) await this.#redis.unlink(...(keys as string[]))
    }
  }

  #call(args: readonly string[]): Promise<unknown> {
    const commands = this.#redis as unknown as Record<string, (...args: string[]) => Promise<unknown>>
    return untilKnown(() => commands[this.#command]?.(shapeKey(this.base), ...args) as Promise<unknown>)
  }
}

function encode({ atUs, cost, costs, priority, delayMs, group, keys, tier }: Arrival): number | unknown[] {
  if (cost === 1 && !costs && priority === 0 && delayMs === 0 && !group && !keys && !tier) return atUs
  const options =
    cost === 1 && !costs && !group && !keys && !tier ? '' : JSON.stringify({ cost, costs, group, keys, tier })
  return [atUs, cost, options, priority, delayMs, ...(group ? [[group.id, group.priority ?? 0]] : [])]
}
