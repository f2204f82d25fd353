import { Collector } from '../redis/collector.ts'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { StoredShape } from '../shape/stored.ts'
import { type JobEnd, resultLength } from './job-end.ts'
import { mostEnded } from './jobs-per-script.ts'
import { type DepartureReply, type FetchedTuple, isFetchedTuple, readDeparture } from './reply.ts'

/** A worker for which jobs are started and ended. */
export interface DepartingWorker {
  readonly id: string
  readonly allowUnshaped: boolean
  /** Its ends are exactly BullMQ's: it is BullMQ's own worker and knows of no shape. */
  readonly isPlain?: boolean
  /** BullMQ's option: it stores in each job which worker runs it. */
  readonly name?: string | undefined
}

/** A worker's request for jobs in its free places. */
export interface DepartureRequest {
  /** Number of these places, at least 1. */
  readonly jobs: number
  /** How far ahead slots may lie, µs; 0: only jobs that may start now. */
  readonly horizonUs: number
  /** The longest known horizon of a worker, µs. Default: that of this request. */
  readonly longestHorizonUs?: number
  /** Run times of its jobs, as in `RunTimes`. Default '': unknown, or measured by the scripts that finish them. */
  readonly ran?: string
  /** The packed options of a call of BullMQ's moveToActive. Default '': each job gets a lock token of its own. */
  readonly options?: Argument
}

/** The parameters of an exchange in addition to its jobs. */
export interface ExchangeTerms {
  /** How far ahead the slots of the next jobs may lie, µs. */
  readonly horizonUs: number
  /** Departures for Redis to count now, as in `UnreportedDepartures`. */
  readonly reported: number
}

/** A call of a worker, which is resent as the same call until Redis answers it. */
export interface Call {
  readonly id: string
  /** The number of the memo in Redis for its grant. No other call has it before this one is answered. */
  readonly memo: number
}

/**
 * This many calls of a worker are remembered, or as many as are in flight: an earlier copy of an answered one may still
 * arrive.
 */
export const CALLS_REMEMBERED = 64

/** Sends the ends of these jobs until Redis has stored them. */
export type StoresEnds = <T>(jobIds: readonly string[], send: () => Promise<T>) => Promise<T>

const MAX_RESTORES = 3
const DEFAULT_LOCK_MS = 30_000

/** Calls of the scripts that start and end jobs of one queue, and the common parts of their replies. */
export class Departures {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #client: () => Promise<Client>
  readonly #untilStored: StoresEnds
  readonly #memoTtlMs: number
  readonly #wallMs: () => number
  #calls = 0
  #memos = CALLS_REMEMBERED
  /** The memos of answered calls, in the order of the answers. */
  readonly #freeMemos = Array.from({ length: CALLS_REMEMBERED }, (_, memo) => memo)
  /** How far the local clock was ahead of Redis's at the last reply, ms. */
  #aheadMs = 0

  /** @param wallMs the local clock, which BullMQ's code uses to wait for delayed jobs */
  constructor(
    scripts: ScriptSet,
    store: ShapeStore,
    client: () => Promise<Client>,
    untilStored: StoresEnds,
    lockDurationMs: number | undefined,
    wallMs: () => number = Date.now,
  ) {
    this.#scripts = scripts
    this.#store = store
    this.#client = client
    this.#untilStored = untilStored
    this.#memoTtlMs = lockDurationMs ?? DEFAULT_LOCK_MS
    this.#wallMs = wallMs
  }

  /**
   * When a delayed job is due on the local clock (ms), which BullMQ's code compares with. In a queue with a shape,
   * delays count on Redis's clock.
   */
  dueLocallyMs(dueMs: number): number {
    return this.#store.memory.stored && dueMs > 0 ? dueMs + this.#aheadMs : dueMs
  }

  /** Resolves once the connection is open and the shape is known: calls after that take one round trip. */
  async ready(): Promise<void> {
    await this.#client()
    await this.#store.prepared()
  }

  /**
   * Asks for jobs in free places.
   * @param call if Redis has run it before, it returns the same jobs again. Default: a new one
   * @returns a grant's jobs have the lock tokens, if these are not in the options of the request
   */
  async ask(worker: DepartingWorker, request: DepartureRequest, call?: Call): Promise<DepartureReply> {
    if (!call) {
      const own = this.nextCall(worker)
      return this.ask(worker, request, own).finally(() => this.answered(own))
    }
    const { jobs, horizonUs, longestHorizonUs = horizonUs, ran = '', options = '' } = request
    await this.#store.prepared()
    const places = [jobs, Math.floor(this.#wallMs()), options, worker.name ?? '', ran, 'free', longestHorizonUs]
    for (let attempt = 0; ; attempt++) {
      const reply = this.read(await this.#exchange(worker, call, { horizonUs, reported: NOT_NOW }, places))
      if (!reply.lost || attempt === MAX_RESTORES) return reply
      await this.#store.restore()
    }
  }

  /** Ends jobs together. An unanswered call is resent as the same call, whose jobs Redis remembers. */
  async exchange(worker: DepartingWorker, terms: ExchangeTerms, ends: readonly JobEnd[]): Promise<readonly unknown[]> {
    const places: Argument[] = []
    const ids: string[] = []
    for (const { id, fields } of ends) {
      places.push(...fields)
      ids.push(id)
    }
    const call = this.nextCall(worker)
    try {
      return await this.#untilStored(ids, () => this.#exchange(worker, call, terms, places))
    } finally {
      this.answered(call)
    }
  }

  async #exchange(
    { allowUnshaped, isPlain }: DepartingWorker,
    call: Call,
    { horizonUs, reported }: ExchangeTerms,
    places: readonly Argument[],
  ): Promise<readonly unknown[]> {
    const { identity } = this.#store.memory
    const allows = isPlain ? 'plain' : Number(allowUnshaped)
    const args = [this.#store.key, identity, horizonUs, call.id, this.#memoTtlMs, allows, reported, ...places]
    const client = await this.#client()
    return await runScript<readonly unknown[]>(client, this.#scripts.command('exchange'), args)
  }

  /** @returns a call of this worker, until {@link answered} */
  nextCall({ id }: DepartingWorker): Call {
    this.#calls += 1
    const memo = this.#freeMemos.shift() ?? this.#memos++
    return { id: `${id}:${memo}:${this.#calls}`, memo }
  }

  /** It is not resent. */
  answered({ memo }: Call): void {
    this.#freeMemos.push(memo)
  }

  /** Reads a reply, and the shape in it. */
  read(raw: readonly unknown[]): DepartureReply {
    const reply = readDeparture(raw)
    this.#store.memory.learn(reply.news)
    if (reply.loss) this.#store.emit('stateLoss', reply.loss)
    if (reply.nowUs !== undefined) this.#aheadMs = this.#wallMs() - Math.floor(reply.nowUs / 1000)
    return { ...reply, delayedMs: this.dueLocallyMs(reply.delayedMs) }
  }
}

/** Below this many jobs, each is finished by itself: collecting them would cost more than it saves. */
const BATCHING_FROM = 8
/** Jobs that end together are finished in this many parts, so that Redis works on one and the worker on another. */
const IN_FLIGHT = 2
/** Smaller parts cost more than they gain: each script takes up to 0.4 ms by itself. */
const MIN_BATCH = 5
/** Results that one script should store, characters: it stores each in the job and in an event, 2.7 ms for 1 MiB. */
const MOST_RESULTS = 256 * 1024

/** For each end: BullMQ's code, the text of an error, or its tuple with the job that replaces the ended one. */
export type EndResult = number | string | FetchedTuple

/** The outcome of an exchange. */
export interface Exchanged {
  readonly ends: readonly JobEnd[]
  /** In the order of the ends. A job that replaces another is locked with its token. */
  readonly results: readonly EndResult[]
  /** Redis's time, µs, at which limits are charged; undefined if the reply does not have it. */
  readonly nowUs: number | undefined
  /** The rest of the script's report; undefined if each requested job came. */
  readonly reply: DepartureReply | undefined
  /** When the call was sent, by the clock of the loop, ms. */
  readonly sentMs: number
}

/** The loop of a worker, for ends of its jobs. */
export interface EndingLoop {
  /** How far ahead the slots of the next jobs may lie, µs. */
  readonly horizonUs: number
  /** Its monotonic clock, ms. */
  readonly nowMs: number
  /** Jobs that it runs now. */
  readonly running: number
  /** Whether an ended job should be replaced by the next one. */
  readonly fetchesOnFinish: boolean
  /** Jobs have ended, which BullMQ's code does not know yet. */
  exchanged(exchanged: Exchanged): void
}

/** Exchanges the ending jobs of a worker's loop for the next ones. Jobs that end together go in one script. */
export class Exchange {
  readonly #departures: Departures
  readonly #store: ShapeStore
  readonly #worker: DepartingWorker
  readonly #unreported = new UnreportedDepartures()
  readonly #together: Collector<JobEnd, number>
  /** Gets the new jobs. Set before the first job ends. */
  loop!: EndingLoop
  /** A request for jobs that Redis has not answered. */
  #unanswered: Call | undefined
  /** Total characters of the collected results. */
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
        return Math.min(mostEnded(store.memory.stored), Math.max(MIN_BATCH, Math.ceil(this.loop.running / IN_FLIGHT)))
      },
      defer: setImmediate,
    })
  }

  /** The shape as known here. */
  get shape(): StoredShape | undefined {
    return this.#store.memory.stored
  }

  /** Resolves once the connection is open and the shape is known: calls after that take one round trip. */
  ready(): Promise<void> {
    return this.#departures.ready()
  }

  /**
   * Asks for jobs in free places, one request at a time. If that fails, the next request is sent as the same call:
   * Redis may have granted jobs.
   */
  async ask(request: DepartureRequest): Promise<DepartureReply> {
    this.#unanswered ??= this.#departures.nextCall(this.#worker)
    const call = this.#unanswered
    const reply = await this.#departures.ask(this.#worker, request, call)
    this.#departures.answered(call)
    this.#unanswered = undefined
    return reply
  }

  /** @returns the grant of a failed request; undefined if none failed */
  async recall(): Promise<DepartureReply | undefined> {
    return this.#unanswered && this.ask({ jobs: 0, horizonUs: 0 })
  }

  /** Whether a job that ends now will be replaced. It is decided once, even if the end is resent. */
  get fetches(): boolean {
    return this.loop.fetchesOnFinish
  }

  /** @returns BullMQ's code */
  end(end: JobEnd): Promise<number> {
    if (this.loop.running < BATCHING_FROM || end.isPostponed) return this.#alone(end)
    this.#collected += resultLength(end)
    return this.#together.add(end)
  }

  #alone(end: JobEnd): Promise<number> {
    return this.#exchange([end]).then(onlyCode)
  }

  async #exchange(ends: readonly JobEnd[]): Promise<readonly (number | Error)[]> {
    this.#collected = 0
    const { loop } = this
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
    // The ends are stored: if the restore fails, the next request repeats it.
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
}

function onlyCode([code]: readonly (number | Error)[]): number {
  if (code instanceof Error) throw code
  return code as number
}

function codeOf(result: EndResult): number | Error {
  if (typeof result === 'string') return new Error(result)
  return typeof result === 'object' ? 0 : result
}

/** A process reports departures to Redis at most this often: a report for each would cost as much as a job. */
const REPORT_EVERY_MS = 250
/** At first more often, then less and less: a report includes how long a job took, which retry hints need early. */
const FIRST_EVERY_MS = 8

/** Instead of a count: this call reports none. */
const NOT_NOW = -1

/**
 * Departures that nothing held and that Redis has not counted yet. A slow queue reports each with the call that fetches
 * it; a fast one reports many with one call.
 */
export class UnreportedDepartures {
  #count = 0
  #everyMs = FIRST_EVERY_MS
  #reportedAtMs = Number.NEGATIVE_INFINITY

  /**
   * @param nowMs on a monotonic clock
   * @returns how many to report with the next call, which also counts its own departures; -1: it reports none
   */
  take(nowMs = performance.now()): number {
    if (nowMs - this.#reportedAtMs < this.#everyMs) return NOT_NOW
    if (this.#reportedAtMs > Number.NEGATIVE_INFINITY) this.#everyMs = Math.min(1.5 * this.#everyMs, REPORT_EVERY_MS)
    this.#reportedAtMs = nowMs
    const count = this.#count
    this.#count = 0
    return count
  }

  /** @param reported the result of {@link take} for the call that fetched them */
  add(count: number, reported: number): void {
    if (reported === NOT_NOW) this.#count += count
  }
}
