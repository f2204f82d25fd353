import { Collector } from '../redis/collector.ts'
import type { Argument, Client } from '../redis/commands.ts'
import type { BatchResult, FinishedJob } from './departures.ts'

/** The arguments of BullMQ's moveToFinished, after its keys. */
const FIRST = 14
const ID = FIRST
const TIMESTAMP = FIRST + 1
const FIELD = FIRST + 2
const RESULT = FIRST + 3
const TARGET = FIRST + 4
const FETCH = FIRST + 5
const OPTIONS = FIRST + 7
const UPDATES = FIRST + 8

/** Below this many jobs, each is finished by itself: collecting them would cost more than it saves. */
const BATCHING_FROM = 8
/**
 * Jobs that end together are finished in this many parts, so that Redis works on one and the worker on another.
 */
const IN_FLIGHT = 2
/** Smaller parts cost more than they gain: each script takes up to 0.4 ms by itself. */
const MIN_BATCH = 5
/** Results that one script should store, characters: it stores each in the job and in an event, 2.7 ms for 1 MiB. */
const MOST_RESULTS = 256 * 1024

/** A call of BullMQ's moveToFinished. */
export interface FinishCall {
  readonly client: Client
  readonly args: Argument[]
  /** Whether the job is not kept. */
  readonly discarded: boolean
}

/** The two ways to finish jobs. They return BullMQ's code, or the tuple with the next job. */
export interface Finishing {
  one(call: FinishCall): Promise<unknown>
  /** Fetches as many as are asked for. */
  many(client: Client, jobs: readonly FinishedJob[]): Promise<readonly BatchResult[]>
  /** How many jobs one script should end at most. */
  most(): number
}

/** Collects the jobs that end in one turn of the event loop, so that one script finishes them all. */
export class FinishBatch {
  readonly #finishing: Finishing
  readonly #collector: Collector<FinishCall, unknown>
  #running = 0
  /** Characters of the results that were collected. */
  #collected = 0

  constructor(finishing: Finishing) {
    this.#finishing = finishing
    this.#collector = new Collector({
      one: (call) => {
        this.#collected = 0
        return finishing.one(call)
      },
      many: async (calls) => {
        this.#collected = 0
        const results = await finishing.many((calls[0] as FinishCall).client, calls.map(finishedJob))
        return results.map((result) => (typeof result === 'string' ? new Error(result) : result))
      },
      enough: () => {
        if (this.#collected >= MOST_RESULTS) return 1
        return Math.min(finishing.most(), Math.max(MIN_BATCH, Math.ceil(this.#running / IN_FLIGHT)))
      },
      defer: setImmediate,
    })
  }

  /** @param running number of jobs that the worker runs */
  finish(call: FinishCall, running: number): Promise<unknown> {
    if (running < BATCHING_FROM) return this.#finishing.one(call)
    this.#running = running
    this.#collected += String(call.args[RESULT]).length
    return this.#collector.add(call)
  }
}

function finishedJob({ args, discarded }: FinishCall): FinishedJob {
  const fetches = String(args[FETCH]) === '1'
  const kind = `${args[TARGET]} ${args[FIELD]} ${discarded ? 1 : 0} ${fetches ? 1 : 0}`
  return { fields: [args[ID], args[TIMESTAMP], args[RESULT], args[OPTIONS], args[UPDATES], kind], fetches }
}
