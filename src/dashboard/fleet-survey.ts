import type { Inspector } from '../inspect/index.ts'
import { type FleetRow, rowOf } from './fleet-page.ts'

/** Reading very many queues takes a while: it is done no more often, and takes at most a tenth of the time. */
const MIN_PAUSE_MS = 5000
const SHARE = 10

/** A few numbers of each of very many queues, read again as long as somebody asks. */
export class FleetSurvey {
  readonly #inspector: Inspector
  #rows: ReadonlyMap<string, FleetRow> | undefined
  #reading: Promise<ReadonlyMap<string, FleetRow>> | undefined
  #nextMs = 0

  constructor(inspector: Inspector) {
    this.#inspector = inspector
  }

  /** The last that was read; undefined before that. Reads again where that is long ago. */
  latest(names: readonly string[]): ReadonlyMap<string, FleetRow> | undefined {
    if (!this.#reading && performance.now() >= this.#nextMs) void this.#read(names).catch(() => {})
    return this.#rows
  }

  /** The same; waits for the first. */
  async rows(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    return this.latest(names) ?? this.#reading ?? this.#read(names)
  }

  #read(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    const startedMs = performance.now()
    this.#reading = this.#readAll(names).finally(() => {
      const nowMs = performance.now()
      this.#nextMs = nowMs + Math.max(MIN_PAUSE_MS, (nowMs - startedMs) * (SHARE - 1))
      this.#reading = undefined
    })
    return this.#reading
  }

  async #readAll(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    const rows = new Map<string, FleetRow>()
    for await (const status of this.#inspector.statuses(names)) {
      rows.set(status.name, rowOf(status, this.#rows?.get(status.name)))
    }
    this.#rows = rows
    return rows
  }
}
