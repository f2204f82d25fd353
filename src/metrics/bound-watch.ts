import { audit } from '../audit/audit.ts'
import { TOLERANCE_US } from '../audit/bucket-window.ts'
import type { AuditEntry, QueueStatus } from '../inspect/queue-status.ts'

/** The recorded departures are many: they are checked at this interval, or as soon as half of them are new. */
const LOOK_MS = 60_000

/** Checks the departures that `shape.audit` records against the bound of the rate, while the queue runs. */
export class BoundWatch {
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
