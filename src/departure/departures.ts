// departure/: how jobs leave a queue: how they are fetched, finished and given back, and the scripts' replies. It must
// not know the worker's loop, which asks for jobs, or BullMQ's backend.

import { type Argument, type Client, runScript } from '../redis/commands.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { JobEnd } from './job-end.ts'
import { type DepartureReply, readDeparture } from './reply.ts'
import { NOT_NOW } from './unreported.ts'

/** A worker for which jobs are started and ended. */
export interface DepartingWorker {
  readonly id: string
  readonly allowUnshaped: boolean
  /** Its ends are exactly BullMQ's: it is a stock worker that knows of no shape. */
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
  /** The longest horizon of a worker that is known here, µs. Default: that of this request. */
  readonly longestHorizonUs?: number
  /** Run times of its jobs, as in `RunTimes`. Default '': unknown, or measured by the scripts that finish them. */
  readonly ran?: string
  /** The packed options of a call of BullMQ's moveToActive. Default '': each job gets a lock token of its own. */
  readonly options?: Argument
}

/** What an exchange says beside its jobs. */
export interface ExchangeTerms {
  /** How far ahead the slots of the next jobs may lie, µs. */
  readonly horizonUs: number
  /** Departures that Redis is to count now, as in `UnreportedDepartures`. */
  readonly reported: number
}

/** A call of a worker, which is sent again as the same call until Redis answers it. */
export interface Call {
  readonly id: string
  /** The number of the place in Redis for what it was granted. No other call has it before this one is answered. */
  readonly memo: number
}

/**
 * So many calls of a worker are remembered, or as many as are in flight: an earlier copy of one that was answered may
 * still arrive.
 */
export const CALLS_REMEMBERED = 64

/** Sends the ends of these jobs until Redis has stored them. */
export type StoresEnds = <T>(jobIds: readonly string[], send: () => Promise<T>) => Promise<T>

const MAX_RESTORES = 3
const DEFAULT_LOCK_MS = 30_000

/** Calls of the scripts that start and end jobs of one queue, and what their replies say to all. */
export class Departures {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #client: () => Promise<Client>
  readonly #untilStored: StoresEnds
  readonly #memoMs: number
  readonly #wallMs: () => number
  #calls = 0
  #memos = CALLS_REMEMBERED
  /** The memos of answered calls, in that order. */
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
    this.#memoMs = lockDurationMs ?? DEFAULT_LOCK_MS
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
   * @param call if Redis has run it before, the jobs are those that it was granted then. Default: another one
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

  /** Ends jobs together. What Redis did not answer is sent again as the same call, whose jobs it remembers. */
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
    const args = [this.#store.key, identity, horizonUs, call.id, this.#memoMs, allows, reported, ...places]
    const client = await this.#client()
    return await runScript<readonly unknown[]>(client, this.#scripts.command('exchange'), args)
  }

  /** @returns a call of this worker, until {@link answered} */
  nextCall({ id }: DepartingWorker): Call {
    this.#calls += 1
    const memo = this.#freeMemos.shift() ?? this.#memos++
    return { id: `${id}:${memo}:${this.#calls}`, memo }
  }

  /** It is not sent again. */
  answered({ memo }: Call): void {
    this.#freeMemos.push(memo)
  }

  /** Reads a reply, and learns what it says of the shape. */
  read(raw: readonly unknown[]): DepartureReply {
    const reply = readDeparture(raw)
    this.#store.memory.learn(reply.news)
    if (reply.loss) this.#store.emit('stateLoss', reply.loss)
    if (reply.nowUs !== undefined) this.#aheadMs = this.#wallMs() - Math.floor(reply.nowUs / 1000)
    return { ...reply, delayedMs: this.dueLocallyMs(reply.delayedMs) }
  }
}
