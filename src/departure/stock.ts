import type { Argument, Client } from '../redis/commands.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type Departures, type EndCall, isFetching } from './departures.ts'
import { type DepartureReply, type FetchedTuple, isFetchedTuple } from './reply.ts'

/** Fetches and ends jobs as BullMQ's own code does, which asks for one at a time and waits for no slot. */
export class StockDepartures {
  readonly #departures: Departures
  readonly #store: ShapeStore
  readonly #id: string

  /** @param id of this backend: Redis knows the worker by it */
  constructor(departures: Departures, store: ShapeStore, id: string) {
    this.#departures = departures
    this.#store = store
    this.#id = id
  }

  /** @param args the arguments of BullMQ's moveToActive; @returns what BullMQ's code expects of it */
  async depart(client: Client, args: readonly Argument[], keys: number): Promise<unknown[]> {
    await this.#store.prepared()
    const workerId = this.#store.memory.stored ? this.#id : ''
    const request = { jobs: 1, horizonUs: 0, workerId, allowUnshaped: true }
    return stockTuple(await this.#departures.depart(client, args, keys, request))
  }

  /** @returns what BullMQ's code expects of moveToFinished or moveToDelayed */
  async end(call: EndCall): Promise<unknown> {
    const raw = await this.#departures.end(call, 0)
    if (isFetchedTuple(raw)) {
      const [fields, id] = raw as unknown as FetchedTuple
      return [fields, id, 0, 0]
    }
    const reply = this.#departures.read(raw)
    if (reply.lost) await this.#store.restore()
    if (reply.result < 0 || reply.lost || !isFetching(call)) return reply.result
    // Without a job, BullMQ's moveToDelayed reports nothing more; a closed bucket must be reported.
    const silent = this.#departures.isServing || (call.script === 'moveToDelayed' && reply.stop !== 'closed')
    return reply.grants.length === 0 && silent ? 0 : stockTuple(reply)
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
