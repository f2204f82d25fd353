import type { Inspector } from 'sluice/inspect'
import { type FleetRow, rowOf } from './fleet-page.ts'

/** Reading very many queues takes a while: the survey runs at most this often, and for at most a tenth of the time. */
const MIN_PAUSE_MS = 5000
const SHARE = 10

/** A few numbers per queue of a large fleet, refreshed only while they are requested. */
export class FleetSurvey {
  readonly #inspector: Inspector
  #rows: ReadonlyMap<string, FleetRow> | undefined
  #reading: Promise<ReadonlyMap<string, FleetRow>> | undefined
  #nextMs = 0

  constructor(inspector: Inspector) {
    this.#inspector = inspector
  }

  /** The last survey; undefined before the first. Starts another one in the background if it is due. */
  latest(names: readonly string[]): ReadonlyMap<string, FleetRow> | undefined {
    if (!this.#reading && performance.now() >= this.#nextMs) void this.#read(names).catch(() => {})
    return this.#rows
  }

  /** The same, but waits for the first survey. */
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
