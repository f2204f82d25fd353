import { changesUs } from '../audit/changes.ts'
import {
  type AuditEntry,
  type HeldMs,
  type HistoryEntry,
  HOLD_CAUSES,
  type QueueStatus,
} from '../inspect/queue-status.ts'
import { BoundWatch } from './bound-watch.ts'
import { feedbackLabels } from './feedback-labels.ts'
import type { FeedbackCount, QueueReading } from './fleet-reading.ts'
import { unitsPerSecond } from './utilisation.ts'

/** The history of a queue is kept to about so many entries. */
export const HISTORY_ENTRIES = 1000

const NONE: readonly number[] = []

/** What is kept of a look for the next one: there may be very many queues. */
type Before = Pick<QueueReading, 'departedTotal' | 'heldMs'> & Pick<QueueStatus, 'acceptedTotal'>

/** Carries what a queue's counters need from one scrape to the next. */
export class RunningTotals {
  /** The newest entry of the history that was counted; undefined before the first look. */
  #lastId: string | undefined
  // Most queues have neither.
  #feedback: Map<string, FeedbackCount> | undefined
  #bound: BoundWatch | undefined
  #changesUs: readonly number[] = NONE
  #before: Before | undefined
  #lostUnits = 0

  /** Where the history is to be read from. */
  get after(): string | undefined {
    return this.#lastId
  }

  /** Whether the history may hold something to count. */
  asksForNews({ feedback, shape }: QueueStatus): boolean {
    return feedback !== undefined || shape?.audit !== undefined || (this.#lastId !== undefined && this.#lastId !== '0')
  }

  /** Whether the departures that are kept are to be looked at. */
  isAuditDue(status: QueueStatus): boolean {
    if (status.shape?.audit === undefined) return false
    this.#bound ??= new BoundWatch()
    return this.#bound.isDue(status)
  }

  /**
   * @param news entries of the history behind {@link after}, newest first
   * @param departures those that are kept, where {@link isAuditDue}
   */
  next(status: QueueStatus, news: readonly HistoryEntry[], departures?: readonly AuditEntry[]): QueueReading {
    // Where the total of jobs went back, there is another queue of that name.
    const before = this.#before && status.acceptedTotal >= this.#before.acceptedTotal ? this.#before : undefined
    // Slots that are given back are taken off; Prometheus would take that for a counter that began anew.
    const departedTotal = Math.max(status.departedTotal, before?.departedTotal ?? 0)
    // A reader adds what was not accounted yet by its own clock, which on a replica is another.
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

  /** What was there before the first look counts 0: a counter that starts high looks like a burst. */
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
  return Object.fromEntries(HOLD_CAUSES.map((cause) => [cause, Math.max(now[cause], before[cause])])) as HeldMs
}
