import type { HistoryEntry, Inspector, QueueStatus } from 'sluice/inspect'
import { withinMs } from 'sluice/internal'
import type { Family } from './families.ts'
import type { FleetReading, QueueReading } from './fleet-reading.ts'
import { MergedPoints } from './points.ts'
import { OTHER, type QueueLabels } from './queue-labels.ts'
import { HISTORY_ENTRIES, RunningTotals } from './running-totals.ts'

export interface FleetReaderOptions {
  readonly inspector: Inspector
  /** The names of the queues; undefined: all that have a shape. */
  readonly queues: readonly string[] | undefined
  readonly labels: QueueLabels
  /** Groups of each queue with a label of their own: so many by age, and by waiting jobs. */
  readonly groups: number
  /** Values of limits of each such queue with a label of their own. */
  readonly keys: number
  /** The metrics that are merged for queues without a label of their own. */
  readonly families: readonly Family<QueueReading>[]
  readonly timeoutMs: number
}

const NOTHING: FleetReading = {
  ...{ up: false, atMs: undefined, redis: undefined, unreadQueues: new Map() },
  ...{ queues: [], others: new Map() },
}

/**
 * Reads all queues for scrapes: concurrent scrapes share one read, and none fails. A queue without a label of its own
 * is merged into the others as soon as it is read, so that memory does not grow with their number.
 */
export class FleetReader {
  readonly #options: FleetReaderOptions
  #totals: ReadonlyMap<string, RunningTotals> = new Map()
  #last: FleetReading = NOTHING
  #looking: Promise<void> | undefined

  constructor(options: FleetReaderOptions) {
    const { queues } = options
    this.#options = { ...options, queues: queues && [...new Set(queues)] }
  }

  /** The current reading of Redis, or the last one. Never rejects. */
  async read(): Promise<FleetReading> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    const looked = this.#looking.then(
      () => true,
      () => false,
    )
    const up = (await withinMs(this.#options.timeoutMs, looked)) ?? false
    return { ...this.#last, up }
  }

  async #look(): Promise<void> {
    const { inspector, labels } = this.#options
    const names = this.#options.queues ?? (await inspector.queues())
    // A user with access only to the keys of queues is not allowed to run INFO.
    const redis = await inspector.redisState().catch(() => undefined)
    const totals = new Map<string, RunningTotals>()
    const queues: QueueReading[] = []
    const others = new Others(this.#options.families)
    let atMs = 0
    const unreadQueues = new Map<string, number>()
    let isAnyRead = false
    for await (const status of inspector.statuses(names)) {
      const { name } = status
      // The totals of queues that no longer exist are dropped.
      const known = this.#totals.get(name) ?? new RunningTotals()
      totals.set(name, known)
      isAnyRead ||= !isBlank(status)
      // Sums that lack a shard would look like a counter that was reset.
      if (status.unread) {
        const label = labels.claim(name) ? name : OTHER
        unreadQueues.set(label, (unreadQueues.get(label) ?? 0) + 1)
        continue
      }
      atMs = Math.max(atMs, status.at.getTime())
      const reading = await this.#reading(status, known)
      if (!labels.claim(name)) others.add(reading)
      else {
        const [groups, limitValues] = await Promise.all([this.#groups(status), this.#limitValues(status)])
        queues.push({ ...reading, groups, limitValues })
      }
    }
    if (!isAnyRead && unreadQueues.size > 0) throw new Error('no queue could be read')
    this.#totals = totals
    labels.keep(totals)
    this.#last = {
      ...{ up: true, atMs: atMs || this.#last.atMs, redis, unreadQueues },
      ...{ queues, others: unreadQueues.has(OTHER) ? this.#last.others : others.points() },
    }
  }

  /** The history is read only where it may hold entries to count. */
  async #reading(status: QueueStatus, totals: RunningTotals): Promise<QueueReading> {
    const { inspector } = this.#options
    const news = totals.asksForNews(status) ? await this.#news(status, totals) : []
    const departures = totals.isAuditDue(status) ? await inspector.audit(status.name) : undefined
    return totals.next(status, news, departures)
  }

  async #groups({ name, groups }: QueueStatus): Promise<QueueReading['groups']> {
    const { inspector, groups: count } = this.#options
    return groups && count > 0 ? inspector.groups(name, { count }) : undefined
  }

  async #limitValues({ name, shape }: QueueStatus): Promise<QueueReading['limitValues']> {
    const { inspector, keys: count } = this.#options
    const hasKeys = shape?.limits?.some(({ by, pool }) => by ?? pool)
    return hasKeys && count > 0 ? inspector.limitValues(name, { count }) : undefined
  }

  #news({ name, shape }: QueueStatus, { after }: RunningTotals): Promise<HistoryEntry[]> {
    // Before the first read, only the last entry is needed, unless the times of rate changes are needed too.
    const count = after === undefined && shape?.audit === undefined ? 1 : HISTORY_ENTRIES
    return this.#options.inspector.history(name, { count, ...(after === undefined ? {} : { after }) })
  }
}

/** Whether nothing of a queue could be read. */
function isBlank({ unread, shards }: QueueStatus): boolean {
  return unread?.includes('queue') === true || (unread?.includes('head') === true && shards?.length === 0)
}

/** The queues that share one label. */
class Others {
  readonly #families: readonly { readonly family: Family<QueueReading>; readonly merged: MergedPoints }[]
  #isEmpty = true

  constructor(families: readonly Family<QueueReading>[]) {
    this.#families = families.map((family) => ({ family, merged: new MergedPoints(family.merge ?? 'sum') }))
  }

  add(reading: QueueReading): void {
    this.#isEmpty = false
    for (const { family, merged } of this.#families) merged.add(family.read(reading))
  }

  points(): FleetReading['others'] {
    if (this.#isEmpty) return new Map()
    return new Map(this.#families.map(({ family, merged }) => [family.name, merged.points()]))
  }
}
