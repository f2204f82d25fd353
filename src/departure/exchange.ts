import { Collector } from '../redis/collector.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { StoredShape } from '../shape/stored.ts'
import type { Call, DepartingWorker, DepartureRequest, Departures } from './departures.ts'
import { type JobEnd, resultLength } from './job-end.ts'
import { mostEnded } from './jobs-per-script.ts'
import { type DepartureReply, type FetchedTuple, isFetchedTuple } from './reply.ts'
import { NOT_NOW, UnreportedDepartures } from './unreported.ts'

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

/** Of each end: BullMQ's code, the text of an error, or its tuple with the job that came in the place of the one that ended. */
export type EndResult = number | string | FetchedTuple

/** What the ends of jobs brought. */
export interface Exchanged {
  readonly ends: readonly JobEnd[]
  /** In the order of the ends. A job that came in the place of another is locked with its token. */
  readonly results: readonly EndResult[]
  /** Redis's time, µs, at which limits are charged; undefined if the reply does not have it. */
  readonly nowUs: number | undefined
  /** What else the script reported; undefined if a job came for each that was to be fetched. */
  readonly reply: DepartureReply | undefined
  /** When the call was sent, by the clock of the loop, ms. */
  readonly sentMs: number
}

/** The loop of a worker, as far as its jobs end. */
export interface EndingLoop {
  /** How far ahead the slots of the next jobs may lie, µs. */
  readonly horizonUs: number
  /** Its monotonic clock, ms. */
  readonly nowMs: number
  /** Jobs that it runs now. */
  readonly running: number
  /** Whether a job is to come in the place of one that ends. */
  readonly fetchesOnFinish: boolean
  /** Jobs have ended, which BullMQ's code does not know yet. */
  exchanged(exchanged: Exchanged): void
}

/** Exchanges the jobs of a worker's loop that end for the next ones: those that end together go in one script. */
export class Exchange {
  readonly #departures: Departures
  readonly #store: ShapeStore
  readonly #worker: DepartingWorker
  readonly #unreported = new UnreportedDepartures()
  readonly #together: Collector<JobEnd, number>
  #loop: EndingLoop | undefined
  #running = 0
  /** A request for jobs that Redis has not answered. */
  #unanswered: Call | undefined
  /** Characters of the results that were collected. */
  #collected = 0

  constructor(departures: Departures, store: ShapeStore, worker: DepartingWorker) {
    this.#departures = departures
    this.#store = store
    this.#worker = worker
    this.#together = new Collector({
      one: (end) => this.#alone(end),
      many: (ends) => this.#exchange(ends),
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

  /** As it is known here. */
  get shape(): StoredShape | undefined {
    return this.#store.memory.stored
  }

  /** Resolves once the connection is open and the shape is known: calls after that take one round trip. */
  ready(): Promise<void> {
    return this.#departures.ready()
  }

  /** Asks for jobs in free places, one request at a time. If that fails, the next request is sent as the same call: Redis may have granted jobs. */
  async ask(request: DepartureRequest): Promise<DepartureReply> {
    this.#unanswered ??= this.#departures.nextCall(this.#worker)
    const call = this.#unanswered
    const reply = await this.#departures.ask(this.#worker, request, call)
    this.#departures.answered(call)
    this.#unanswered = undefined
    return reply
  }

  /** @returns what was granted to a request that failed; undefined if none did */
  async recall(): Promise<DepartureReply | undefined> {
    return this.#unanswered && this.ask({ jobs: 0, horizonUs: 0 })
  }

  /** Whether a job that ends now is to be replaced. It is decided once, however often the end is sent. */
  get fetches(): boolean {
    return this.#served.fetchesOnFinish
  }

  /** @returns BullMQ's code */
  end(end: JobEnd): Promise<number> {
    const { running } = this.#served
    if (running < BATCHING_FROM || end.isPostponed) return this.#alone(end)
    this.#running = running
    this.#collected += resultLength(end)
    return this.#together.add(end)
  }

  #alone(end: JobEnd): Promise<number> {
    return this.#exchange([end]).then(onlyCode)
  }

  async #exchange(ends: readonly JobEnd[]): Promise<readonly (number | Error)[]> {
    this.#collected = 0
    const loop = this.#served
    let wanted = 0
    for (const { fetches } of ends) if (fetches) wanted += 1
    const { stored } = this.#store.memory
    const counts = wanted > 0 && stored !== undefined && !stored.isPaced
    const sentMs = loop.nowMs
    const reported = counts ? this.#unreported.take(sentMs) : NOT_NOW
    const raw = await this.#departures.exchange(this.#worker, { horizonUs: loop.horizonUs, reported }, ends)
    const results = raw[2] as readonly EndResult[]
    let fetched = 0
    for (const result of results) if (isFetchedTuple(result)) fetched += 1
    if (counts) this.#unreported.add(fetched, reported)
    const reply = wanted > 0 ? this.#whatElse(raw, fetched, wanted) : undefined
    // The ends are stored: if that fails, the next request restores the shape.
    if (reply?.lost) await this.#store.restore().catch(() => {})
    loop.exchanged({ ends, results, nowUs: raw[1] === '' ? undefined : Number(raw[1]), reply, sentMs })
    return results.map(codeOf)
  }

  #whatElse(raw: readonly unknown[], fetched: number, wanted: number): DepartureReply | undefined {
    if (raw[1] === '' && fetched === wanted) return undefined
    const reply = this.#departures.read(raw)
    const isComplete = fetched > 0 && reply.stop === 'full' && reply.grants.length === 0 && reply.wakeUs === undefined
    return isComplete ? undefined : reply
  }

  get #served(): EndingLoop {
    return this.#loop as EndingLoop
  }
}

function onlyCode([code]: readonly (number | Error)[]): number {
  if (code instanceof Error) throw code
  return code as number
}

function codeOf(result: EndResult): number | Error {
  if (typeof result === 'string') return new Error(result)
  return typeof result === 'object' ? 0 : result
}
