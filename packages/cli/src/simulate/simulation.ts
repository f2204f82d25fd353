import type { QueueLimit, Shape } from 'sluice'
import { costUnder, encodeShape, isSubject, mostUnder, onFirstDay } from 'sluice/internal'
import { type Arrival, InvalidArrivalsError, SimulationStoppedError } from './arrival.ts'
import { encodeGroupSettings, type GroupSettings } from './group-settings.ts'
import { type ChunkReply, SCRATCH_TTL_MS, ScratchQueue, type ScratchRedis } from './scratch-queue.ts'

/** The fate of an arrival. */
export const FATE = { waits: 0, started: 1, full: 2, tooDear: 3, late: 4, dropped: 5 } as const

export interface SimulationOptions {
  /** Maximum number of running jobs over all workers. Default: any number. */
  readonly places?: number
  /** How long a job runs, ms. Default 0. */
  readonly jobMs?: number
  /** What is set for single groups. */
  readonly setGroup?: GroupSettings
  /** Prefix of the scratch queue's keys. Default `sluice-simulation`. */
  readonly prefix?: string
  /** Aborts the simulation. */
  readonly signal?: AbortSignal
  /** Called from time to time with the number of arrivals so far. */
  readonly onProgress?: (arrivals: number) => void
}

/** A slice of time, and the length of the queue in it. */
export interface DepthSlice {
  readonly slice: number
  readonly longest: number
  readonly atEnd: number
}

/** The result of a simulation, by arrival. */
export interface Outcome {
  /** One of {@link FATE} for each arrival. */
  readonly fates: Uint8Array
  /** Slots, µs since 1970; 0 where a job did not start. */
  readonly slotsUs: Float64Array
  /** Maximum number of jobs that held a place in the queue at once. */
  readonly longestQueue: number
  /** Starts that waited because the maximum number of jobs was running. */
  readonly placeBound: number
  readonly sliceUs: number
  readonly slices: readonly DepthSlice[]
}

const STATUS_FATES: Readonly<Record<number, number>> = {
  '-2': FATE.full,
  '-3': FATE.tooDear,
  '-4': FATE.full,
  '-5': FATE.late,
  '-8': FATE.full,
}
const SLICES = 240
const FIRST_STEPS = 200
const MIN_STEPS = 20
const MAX_STEPS = 20_000
/** How long a script call may process steps, ms, so that Redis is blocked for less than 5. */
const BUDGET_MS = 3
/** How much more than the last call processed within its time the next one is sent. */
const MORE = 1.25
/** Shorter than the TTL of the first keys, ms. */
const LONGEST_MS = SCRATCH_TTL_MS * 0.9

/**
 * Simulates arrivals at a queue of that shape in virtual time, and records when each job starts. The scripts are those
 * of a real queue, on separate keys, which are removed at the end; a shared limit is simulated as the queue's own.
 * @param arrivals in the order of their times
 * @throws InvalidShapeError, InvalidRateError, InvalidGroupError, InvalidArrivalsError; SimulationStoppedError
 */
export async function simulate(
  redis: ScratchRedis,
  shape: Shape,
  arrivals: readonly Arrival[],
  options: SimulationOptions = {},
): Promise<Outcome> {
  const [first, last] = [arrivals[0], arrivals.at(-1)]
  if (!first || !last) throw new InvalidArrivalsError('a simulation needs at least one arrival; got none')
  const sliceUs = Math.max(1000, Math.ceil((last.atUs - first.atUs + 1) / SLICES))
  const obeyed = simulated(shape)
  const { fields } = encodeShape(obeyed)
  const { places, jobMs = 0, prefix, setGroup = {} } = options
  const groups = encodeGroupSettings(setGroup, shape, first.atUs)
  const settings = { fields, groups, places, jobUs: Math.round(jobMs * 1000), startUs: first.atUs, sliceUs }
  const scratch = new ScratchQueue(redis, prefix === undefined ? settings : { ...settings, prefix })
  const collected = new Collected(arrivals.length)
  try {
    await runAll(scratch, collected, passable(obeyed, arrivals, collected), options)
  } finally {
    await scratch.close()
  }
  return { ...collected.outcome(), sliceUs }
}

/** The arrivals that the script is given, and their indices among all. */
interface Passable {
  readonly arrivals: readonly Arrival[]
  /** Undefined where all are passed on. */
  readonly numbers: readonly number[] | undefined
}

async function runAll(
  scratch: ScratchQueue,
  collected: Collected,
  { arrivals, numbers }: Passable,
  { signal, onProgress }: SimulationOptions,
): Promise<void> {
  const startedMs = performance.now()
  let next = 0
  let steps = FIRST_STEPS
  for (let done = false; !done; ) {
    const nowMs = performance.now()
    if (signal?.aborted) throw new SimulationStoppedError('the simulation was aborted')
    if (nowMs - startedMs > LONGEST_MS) {
      throw new SimulationStoppedError(
        'the simulation took nearly an hour, after which its keys expire: use fewer arrivals',
      )
    }
    const part = arrivals.slice(next, next + steps)
    const isLast = next + part.length === arrivals.length
    const reply = await scratch.run({ first: next, arrivals: part, isLast, steps, budgetMs: BUDGET_MS })
    collected.add(reply, numbers)
    next += reply.taken
    done = reply.done
    onProgress?.(next)
    steps = adapted(steps, reply.steps)
  }
}

/** How many steps the next call may take: what it cannot process within its time is sent again. */
function adapted(asked: number, processed: number): number {
  const wanted = processed < asked ? processed * MORE : asked * 2
  return Math.round(Math.min(MAX_STEPS, Math.max(MIN_STEPS, wanted)))
}

/** The fields that a simulation obeys. A shared limit would be charged for other queues too. */
function simulated(shape: Shape): Shape {
  const { audit: _, version: __, overflowTo: ___, limits, ...rest } = shape
  return limits ? { ...rest, limits: limits.map((limit) => onFirstDay(unshared(limit))) } : rest
}

function unshared({ shared: _, key: __, prefix: ___, version: ____, ...limit }: QueueLimit): QueueLimit {
  return limit
}

/** A job whose cost can never conform to a limit does not reach the queue: its producer refuses it. */
function passable({ limits = [], mode }: Shape, arrivals: readonly Arrival[], collected: Collected): Passable {
  if (limits.length === 0 || (mode ?? 'enforce') !== 'enforce') return { arrivals, numbers: undefined }
  const most = limits.map(() => new Map<string | undefined, number>())
  const mostOf = (i: number, tier: string | undefined) => {
    const known = most[i]?.get(tier) ?? mostUnder(limits[i] as QueueLimit, tier)
    most[i]?.set(tier, known)
    return known
  }
  const tooDear = ({ cost, costs, keys, tier }: Arrival) =>
    limits.some((one, i) => !one.clampCost && isSubject(one, keys) && costUnder(one, cost, costs) > mostOf(i, tier))
  const numbers: number[] = []
  for (const [number, arrival] of arrivals.entries()) {
    if (tooDear(arrival)) collected.fates[number] = FATE.tooDear
    else numbers.push(number)
  }
  if (numbers.length === arrivals.length) return { arrivals, numbers: undefined }
  return { arrivals: numbers.map((number) => arrivals[number] as Arrival), numbers }
}

class Collected {
  readonly fates: Uint8Array
  readonly #slotsUs: Float64Array
  readonly #slices: DepthSlice[] = []
  #longestQueue = 0
  #placeBound = 0

  constructor(count: number) {
    this.fates = new Uint8Array(count)
    this.#slotsUs = new Float64Array(count)
  }

  add({ departed, refused, dropped, slices, longest, placeBound }: ChunkReply, numbers?: readonly number[]): void {
    const numberOf = (sent: number) => numbers?.[sent] ?? sent
    for (let i = 0; i < departed.length; i += 2) {
      const number = numberOf(departed[i] as number)
      this.fates[number] = FATE.started
      this.#slotsUs[number] = departed[i + 1] as number
    }
    for (let i = 0; i < refused.length; i += 2) {
      this.fates[numberOf(refused[i] as number)] = STATUS_FATES[refused[i + 1] as number] as number
    }
    for (const sent of dropped) this.fates[numberOf(sent)] = FATE.dropped
    for (let i = 0; i < slices.length; i += 3) {
      const [slice, most, atEnd] = slices.slice(i, i + 3) as [number, number, number]
      this.#slices.push({ slice, longest: most, atEnd })
    }
    this.#longestQueue = longest
    this.#placeBound = placeBound
  }

  outcome(): Omit<Outcome, 'sliceUs'> {
    return {
      fates: this.fates,
      slotsUs: this.#slotsUs,
      longestQueue: this.#longestQueue,
      placeBound: this.#placeBound,
      slices: this.#slices,
    }
  }
}
