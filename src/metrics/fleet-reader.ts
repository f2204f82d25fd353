import type { Inspector } from '../inspect/inspector.ts'
import type { HistoryEntry, QueueStatus } from '../inspect/queue-status.ts'
import type { FleetReading, QueueReading } from './fleet-reading.ts'
import { HISTORY_ENTRIES, RunningTotals } from './running-totals.ts'

/** Reads all queues for scrapes: those that come together share one look, and none fails. */
export class FleetReader {
  readonly #inspector: Inspector
  readonly #queues: readonly string[] | undefined
  readonly #timeoutMs: number
  #totals: ReadonlyMap<string, RunningTotals> = new Map()
  #last: FleetReading = { up: false, atMs: undefined, replicationLagMs: undefined, queues: [] }
  #looking: Promise<void> | undefined

  /** @param queues their names; undefined: all that have a shape */
  constructor(inspector: Inspector, queues: readonly string[] | undefined, timeoutMs: number) {
    this.#inspector = inspector
    this.#queues = queues && [...new Set(queues)]
    this.#timeoutMs = timeoutMs
  }

  /** What Redis says now, or the last that it said. Never rejects. */
  async read(): Promise<FleetReading> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    const up = await inTime(this.#looking, this.#timeoutMs)
    return { ...this.#last, up }
  }

  async #look(): Promise<void> {
    const names = this.#queues ?? (await this.#inspector.queues())
    const [statuses, histories, replication] = await Promise.all([
      this.#inspector.status(names),
      Promise.all(names.map((name) => this.#news(name))),
      // A user who may only read its keys may not ask for it.
      this.#inspector.replication().catch(() => undefined),
    ])
    const found = statuses.filter((status) => status !== undefined)
    // Those of queues that are gone are forgotten.
    this.#totals = new Map(found.map(({ name }) => [name, this.#totals.get(name) ?? new RunningTotals()]))
    const queues = await Promise.all(
      found.map((status) => this.#reading(status, histories[names.indexOf(status.name)] ?? [])),
    )
    this.#last = {
      up: true,
      atMs: found.length === 0 ? this.#last.atMs : Math.max(...found.map(({ at }) => at.getTime())),
      replicationLagMs: replication?.lagMs,
      queues,
    }
  }

  #news(name: string): Promise<HistoryEntry[]> {
    const after = this.#totals.get(name)?.after
    return this.#inspector.history(name, { count: HISTORY_ENTRIES, ...(after === undefined ? {} : { after }) })
  }

  async #reading(status: QueueStatus, news: readonly HistoryEntry[]): Promise<QueueReading> {
    const totals = this.#totals.get(status.name) as RunningTotals
    const departures = totals.isAuditDue(status) ? await this.#inspector.audit(status.name) : undefined
    return totals.next(status, news, departures)
  }
}

/** Whether it came about before the time was over. */
async function inTime(work: Promise<void>, timeoutMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, timeoutMs, false)
  })
  const done = work.then(
    () => true,
    () => false,
  )
  return Promise.race([done, tooLate]).finally(() => clearTimeout(timer))
}
