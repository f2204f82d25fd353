import { Collector } from '../redis/collector.ts'
import type { Argument } from '../redis/commands.ts'
import type { ShapeStore } from '../shape/store.ts'
import {
  type DepartingWorker,
  type Departures,
  type EndCall,
  type Ender,
  type EndResult,
  type EndsReply,
  type FinishedJob,
  isFetching,
} from './departures.ts'
import { mostEnded } from './jobs-per-script.ts'

/** The arguments of BullMQ's moveToFinished, after its keys. */
const ID = 0
const TIMESTAMP = 1
const FIELD = 2
const RESULT = 3
const TARGET = 4
const OPTIONS = 7
const UPDATES = 8

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

/** A job of a loop that ended, and how BullMQ's code ends it. */
export interface JobEnd extends EndCall {
  readonly id: string
  readonly token: string
}

/** What the ends of jobs brought. */
export interface Exchanged extends EndsReply {
  /** The ends, in the order of their results. A job that came in the place of another is locked with its token. */
  readonly ends: readonly JobEnd[]
  /** Locks the first job of the replies. */
  readonly token: string
}

/** The loop of a worker, as far as its jobs end. */
export interface EndingLoop extends Ender {
  /** Jobs that it runs now. */
  readonly running: number
  /** Whether a job is to come in the place of one that ends. */
  readonly fetchesOnFinish: boolean
  /** Jobs have ended, which BullMQ's code does not know yet. */
  exchanged(exchanged: Exchanged): void
}

/** What the exchange of a worker's loop needs of its backend and its worker. */
export interface ExchangingWorker extends DepartingWorker {
  nextToken(): string
  /** The arguments of BullMQ's moveToActive. */
  activeArguments(token: string): Promise<Argument[]>
}

/** Exchanges the jobs of a worker's loop that end for the next ones: those that end together go in one script. */
export class Exchange {
  readonly #departures: Departures
  readonly #worker: ExchangingWorker
  readonly #together: Collector<JobEnd, number>
  #loop: EndingLoop | undefined
  #running = 0
  /** Characters of the results that were collected. */
  #collected = 0

  constructor(departures: Departures, store: ShapeStore, worker: ExchangingWorker) {
    this.#departures = departures
    this.#worker = worker
    departures.serve(worker)
    this.#together = new Collector({
      one: (end) => {
        this.#collected = 0
        return this.#one(end)
      },
      many: (ends) => {
        this.#collected = 0
        return this.#many(ends)
      },
      enough: () => {
        if (this.#collected >= MOST_RESULTS) return 1
        return Math.min(mostEnded(store.memory.stored), Math.max(MIN_BATCH, Math.ceil(this.#running / IN_FLIGHT)))
      },
      defer: setImmediate,
    })
  }

  /** This loop gets the jobs that come. */
  serve(loop: EndingLoop): void {
    this.#loop = loop
  }

  /** Whether a job that ends now is to be replaced. It is decided once, however often the end is sent. */
  get fetches(): boolean {
    return this.#served.fetchesOnFinish
  }

  /** @returns BullMQ's code */
  end(end: JobEnd): Promise<number> {
    const { running } = this.#served
    if (running < BATCHING_FROM || end.script !== 'moveToFinished') return this.#one(end)
    this.#running = running
    this.#collected += String(end.args[end.keys + RESULT]).length
    return this.#together.add(end)
  }

  async #one(end: JobEnd): Promise<number> {
    const { results, replies, sentMs } = await this.#departures.end(end, this.#served)
    this.#served.exchanged({ ends: [end], results, replies, sentMs, token: end.token })
    return codeOf(results[0] as EndResult) as number
  }

  async #many(ends: readonly JobEnd[]): Promise<readonly (number | Error)[]> {
    const token = this.#worker.nextToken()
    const active = await this.#worker.activeArguments(token)
    const { client } = ends[0] as JobEnd
    const jobs = ends.map(finishedJob)
    const { results, replies, sentMs } = await this.#departures.endTogether(client, active, jobs, this.#served)
    this.#served.exchanged({ ends, results, replies, sentMs, token })
    return results.map(codeOf)
  }

  get #served(): EndingLoop {
    return this.#loop as EndingLoop
  }
}

function codeOf(result: EndResult): number | Error {
  if (typeof result === 'string') return new Error(result)
  return typeof result === 'object' ? 0 : result
}

function finishedJob(end: JobEnd): FinishedJob {
  const { args, keys: at, discarded } = end
  const fetches = isFetching(end)
  const kind = `${args[at + TARGET]} ${args[at + FIELD]} ${discarded ? 1 : 0} ${fetches ? 1 : 0}`
  const stored = [args[at + ID], args[at + TIMESTAMP], args[at + RESULT], args[at + OPTIONS], args[at + UPDATES]]
  return { fields: [...stored, kind], fetches }
}
