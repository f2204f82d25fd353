import { type LocalTime, systemTime } from '../redis/clock.ts'

/** A job that went back so often is asked for without a horizon, so that it can start in the tick of its reply. */
const MAX_RETURNS = 2
/**
 * Another worker may have taken a job that went back, and nobody says so here: it is forgotten after so many ms. A job
 * that comes back here is at the head, so that its next slot is near; and as long as a job counts as late, this worker
 * takes one at a time and may not keep the rate up.
 */
const MEMORY_MS = 5000

/** Counts how often jobs came too late for their slots in this worker. */
export class LateReturns {
  readonly #time: LocalTime
  readonly #returns = new Map<string, { count: number; atMs: number }>()

  constructor(time: LocalTime = systemTime) {
    this.#time = time
  }

  /** Whether some job keeps coming late here. */
  get persistent(): boolean {
    if (this.#returns.size === 0) return false
    const now = this.#time.wallMs()
    for (const [id, { atMs }] of this.#returns) if (now - atMs > MEMORY_MS) this.#returns.delete(id)
    return [...this.#returns.values()].some(({ count }) => count >= MAX_RETURNS)
  }

  note(id: string): void {
    const count = (this.#returns.get(id)?.count ?? 0) + 1
    this.#returns.set(id, { count, atMs: this.#time.wallMs() })
  }

  started(id: string): void {
    this.#returns.delete(id)
  }
}
