import type { AuditEntry, HeldMs, HistoryEntry, QueueStatus } from 'sluice/inspect'
import { audit, changesUs, mapCauses, TOLERANCE_US } from 'sluice/internal'
import { feedbackLabels } from './feedback-labels.ts'
import type { FeedbackCount, QueueReading } from './fleet-reading.ts'
import { unitsPerSecond } from './utilisation.ts'

/** A queue's history keeps about this many entries. */
export const HISTORY_ENTRIES = 1000

const NONE: readonly number[] = []

/** What is kept of a read for the next one: little, since there may be very many queues. */
type Before = Pick<QueueReading, 'departedTotal' | 'heldMs'> & Pick<QueueStatus, 'acceptedTotal'>

/** The state that a queue's counters carry from one scrape to the next. */
export class RunningTotals {
  /** The newest counted entry of the history; undefined before the first read. */
  #lastId: string | undefined
  // Most queues have neither.
  #feedback: Map<string, FeedbackCount> | undefined
  #bound: BoundWatch | undefined
  #changesUs: readonly number[] = NONE
  #before: Before | undefined
  #lostUnits = 0

  /** The id from which the history has to be read. */
  get after(): string | undefined {
    return this.#lastId
  }

  /** Whether the history may hold entries to count. */
  asksForNews({ feedback, shape }: QueueStatus): boolean {
    return feedback !== undefined || shape?.audit !== undefined || (this.#lastId !== undefined && this.#lastId !== '0')
  }

  /** Whether the recorded departures have to be checked. */
  isAuditDue(status: QueueStatus): boolean {
    // Each shard has an audit of its own, at its part of the rate.
    if (status.shards || status.shape?.audit === undefined) return false
    this.#bound ??= new BoundWatch()
    return this.#bound.isDue(status)
  }

  /**
   * @param news entries of the history after {@link after}, newest first
   * @param departures the recorded ones, where {@link isAuditDue}
   */
  next(status: QueueStatus, news: readonly HistoryEntry[], departures?: readonly AuditEntry[]): QueueReading {
    // If the total of accepted jobs went back, this is another queue of that name.
    const before = this.#before && status.acceptedTotal >= this.#before.acceptedTotal ? this.#before : undefined
    // Returned slots are subtracted; Prometheus would take a decrease for a counter reset.
    const departedTotal = Math.max(status.departedTotal, before?.departedTotal ?? 0)
    // A reader adds time that is not yet accounted for by its own clock, which on a replica differs.
    const heldMs = before ? atLeast(status.heldMs, before.heldMs) : status.heldMs
    if (before) this.#lostUnits += ((heldMs.workers - before.heldMs.workers) / 1000) * (unitsPerSecond(status) ?? 0)
    this.#note(news)
    if (departures) {
      this.#bound ??= new BoundWatch()
      this.#bound.look(status, departures, this.#changesUs)
    }
    this.#before = { acceptedTotal: status.acceptedTotal, departedTotal, heldMs }
    return {
      status,
      departedTotal,
      heldMs,
      feedback: this.#feedback ? [...this.#feedback.values()] : [],
      lostUnits: this.#lostUnits,
      boundViolations: status.shape?.audit === undefined ? undefined : (this.#bound?.violations ?? 0),
    }
  }

  /** Entries before the first read count 0: a counter that starts high looks like a burst. */
  #note(news: readonly HistoryEntry[]): void {
    const weight = this.#lastId === undefined ? 0 : 1
    for (const entry of news) {
      if (entry.kind !== 'feedback') continue
      const labels = feedbackLabels(entry)
      const key = `${labels.source} ${labels.kind}`
      this.#feedback ??= new Map()
      this.#feedback.set(key, { ...labels, count: (this.#feedback.get(key)?.count ?? 0) + weight })
    }
    this.#lastId = news[0]?.id ?? this.#lastId ?? '0'
    if (news.length === 0) return
    const changes = [...this.#changesUs, ...changesUs(news)].sort((one, other) => one - other)
    this.#changesUs = changes.slice(-2 * HISTORY_ENTRIES)
  }
}

function atLeast(now: HeldMs, before: HeldMs): HeldMs {
  return mapCauses((cause) => Math.max(now[cause], before[cause]))
}

/** The recorded departures are many: they are checked at this interval, or as soon as half of them are new. */
const LOOK_MS = 60_000

/** Checks the departures that `shape.audit` records against the bound of the rate, while the queue runs. */
class BoundWatch {
  #violations = 0
  #lastUs = 0
  #lookedMs = Number.NEGATIVE_INFINITY
  #departed = 0

  /** Windows above the bound found so far. */
  get violations(): number {
    return this.#violations
  }

  isDue({ shape, departedTotal, at }: QueueStatus): boolean {
    if (shape?.audit === undefined || departedTotal === this.#departed) return false
    return at.getTime() - this.#lookedMs >= LOOK_MS || departedTotal - this.#departed >= shape.audit / 2
  }

  /** @param changesUs when the shape may have changed, ascending */
  look({ departedTotal, at }: QueueStatus, entries: readonly AuditEntry[], changesUs: readonly number[]): void {
    this.#lookedMs = at.getTime()
    this.#departed = departedTotal
    const { worst } = audit(entries, { changesUs })
    // A violation that was already counted stays in the stream for a while.
    if (!worst || worst.excessUs <= TOLERANCE_US || worst.toUs <= this.#lastUs) return
    this.#lastUs = worst.toUs
    this.#violations += 1
  }
}
