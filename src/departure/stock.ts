import type { Argument } from '../redis/commands.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { DepartingWorker, Departures } from './exchange.ts'
import type { JobEnd } from './job-end.ts'
import { type DepartureReply, type FetchedTuple, isFetchedTuple } from './reply.ts'

/** The packed options among the arguments of BullMQ's moveToActive. */
const START_OPTIONS = 2

/** It waits for no slot, and each departure is counted at once. */
const TERMS = { horizonUs: 0, reported: 0 }

/** Fetches and ends jobs as BullMQ's own code does, which asks for one at a time and waits for no slot. */
export class StockDepartures {
  readonly #departures: Departures
  readonly #store: ShapeStore
  readonly #worker: DepartingWorker
  #isByHand = false

  /** @param id of this backend: Redis knows the worker by it */
  constructor(departures: Departures, store: ShapeStore, id: string) {
    this.#departures = departures
    this.#store = store
    this.#worker = { id, allowUnshaped: true }
  }

  /** The worker is a ShapedWorker, whose program fetches and ends jobs by hand. */
  byHand(): void {
    this.#isByHand = true
  }

  /**
   * @param args the arguments of BullMQ's moveToActive after its keys; @returns the result that BullMQ's code expects
   */
  async start(args: readonly Argument[]): Promise<unknown[]> {
    const request = { jobs: 1, horizonUs: 0, options: args[START_OPTIONS] }
    return stockTuple(await this.#departures.ask(this.#sender, request))
  }

  /** @returns the result that BullMQ's code expects of moveToFinished or moveToDelayed */
  async end(end: JobEnd): Promise<unknown> {
    const raw = await this.#departures.exchange(this.#sender, TERMS, [end])
    const [result] = raw[2] as [number | string | FetchedTuple]
    if (typeof result === 'string') throw new Error(result)
    if (isFetchedTuple(result)) return [result[0], result[1], 0, 0]
    const reply = this.#departures.read(raw)
    // The end is stored: if the restore fails, the next request repeats it.
    if (reply.lost) await this.#store.restore().catch(() => {})
    if (result < 0 || reply.lost || !end.fetches) return result
    // Without a job, BullMQ's moveToDelayed reports nothing more; a closed bucket must be reported.
    const silent = this.#isByHand || (end.isPostponed && reply.stop !== 'closed')
    return reply.grants.length === 0 && silent ? 0 : stockTuple(reply)
  }

  get #sender(): DepartingWorker {
    return { ...this.#worker, isPlain: !this.#isByHand && this.#store.memory.stored === undefined }
  }
}

/** The tuple that BullMQ's own loop expects. */
function stockTuple(reply: DepartureReply): unknown[] {
  const [grant] = reply.grants
  if (grant) return [grant.fields, grant.id, 0, 0]
  if (reply.stop === 'closed' && reply.nextUs !== undefined && reply.nowUs !== undefined) {
    return [0, 0, Math.max(1, Math.ceil((reply.nextUs - reply.nowUs) / 1000)), 0]
  }
  return [0, 0, reply.limitedMs, reply.delayedMs]
}
