import type { Inspector, QueueStatus } from 'sluice/inspect'

/** A queue at one look, and its flow since the previous look. */
export type QueueFlow = QueueStatus & Flow

/** Workers report every few seconds, and together: flows of what they report are means over this long. */
const REPORTED_OVER_MS = 10_000
/** How often the list of queues, and which of them are fullest, is read again. */
const NAMES_FOR_MS = 5000

/** Looks at queues repeatedly; if there are too many, at the fullest. */
export class QueueWatch {
  readonly #inspector: Inspector
  readonly #name: string | undefined
  readonly #limit: number
  #names: readonly string[] = []
  #total = 0
  #namesReadMs = Number.NEGATIVE_INFINITY
  /** Of each queue, the last looks, oldest first. */
  #before = new Map<string, readonly Totals[]>()

  /**
   * @param name the only queue to look at; undefined: all
   * @param limit maximum number of queues: the fullest
   */
  constructor(inspector: Inspector, name: string | undefined, limit: number) {
    this.#inspector = inspector
    this.#name = name
    this.#limit = limit
  }

  /** How many queues there are, looked at or not. */
  get total(): number {
    return this.#total
  }

  /** Queues that no longer exist are left out. */
  async look(): Promise<QueueFlow[]> {
    await this.#readNames()
    const found = (await this.#inspector.status(this.#names)).filter((status) => status !== undefined)
    const looks = found.map((status) => [...this.#recent(status), status])
    this.#before = new Map(found.map(({ name }, i) => [name, looks[i] as Totals[]]))
    return found.map((status, i) => ({ ...status, ...flowBetween(looks[i]?.at(-2), status, looks[i]?.[0]) }))
  }

  /** The looks since the last that is old enough for what workers report, or all since the queue was made anew. */
  #recent(now: QueueStatus): readonly Totals[] {
    const looks = this.#before.get(now.name) ?? []
    const isOld = ({ at }: Totals) => now.at.getTime() - at.getTime() >= REPORTED_OVER_MS
    const recent = looks.slice(Math.max(0, looks.findLastIndex(isOld)))
    return recent.slice(recent.findLastIndex(({ completedTotal }) => completedTotal > now.completedTotal) + 1)
  }

  async #readNames(): Promise<void> {
    if (this.#name !== undefined) {
      this.#names = [this.#name]
      this.#total = 1
      return
    }
    if (performance.now() - this.#namesReadMs < NAMES_FOR_MS) return
    const names = await this.#inspector.queues()
    this.#total = names.length
    // Sorted by name: rows that change places are hard to read.
    const isCut = names.length > this.#limit
    this.#names = isCut ? (await this.#inspector.fullest(names, this.#limit)).sort() : names
    this.#namesReadMs = performance.now()
  }
}

/**
 * What happened in a queue between two looks, per second; undefined for the first look. Workers report ends, and starts
 * past the meter, every few seconds: their flows are means over a longer time.
 */
interface Flow {
  readonly arrivalsPerSecond: number | undefined
  readonly departuresPerSecond: number | undefined
  readonly refusalsPerSecond: number | undefined
  readonly completionsPerSecond: number | undefined
  /** Attempts that failed, whether the job was retried or not. */
  readonly failuresPerSecond: number | undefined
  /** Starts past the meter. */
  readonly bypassesPerSecond: number | undefined
}

/** The fields of a queue's status from which flows are computed. */
type Totals = Pick<QueueStatus, 'at' | 'unread' | Total>

type Total =
  | 'acceptedTotal'
  | 'departedTotal'
  | 'refusedTotal'
  | 'completedTotal'
  | 'failedAttemptsTotal'
  | 'bypassedTotal'

/**
 * Refused jobs do not count as arrivals. If a total decreased, the queue was created anew and its flow is unknown; so it
 * is if only one of the totals lacks a part that could not be read, or both lack all.
 * @param longBefore an earlier look, for what workers report every few seconds
 */
export function flowBetween(before: Totals | undefined, now: Totals, longBefore = before): Flow {
  return {
    arrivalsPerSecond: perSecond('acceptedTotal', before, now),
    departuresPerSecond: perSecond('departedTotal', before, now),
    refusalsPerSecond: perSecond('refusedTotal', before, now),
    completionsPerSecond: perSecond('completedTotal', longBefore, now),
    failuresPerSecond: perSecond('failedAttemptsTotal', longBefore, now),
    bypassesPerSecond: perSecond('bypassedTotal', longBefore, now),
  }
}

function perSecond(total: Total, before: Totals | undefined, now: Totals): number | undefined {
  if (!before || String(before.unread) !== String(now.unread) || now.unread?.includes('queue')) return undefined
  const seconds = (now.at.getTime() - before.at.getTime()) / 1000
  const more = now[total] - before[total]
  return seconds > 0 && more >= 0 ? more / seconds : undefined
}
