import { type LocalTime, systemTime } from '../redis/clock.ts'

/** A job returned this often is fetched without a horizon, so that it can start in the tick of its reply. */
const MAX_RETURNS = 2
/**
 * ms until a return is forgotten: another worker may have taken the job, which is not reported here. A returned job is
 * at the head, so its next slot is near; and while a job counts as late, this worker takes one job at a time and may
 * fall below the rate.
 */
const MEMORY_MS = 5000

/** Counts how often jobs missed their slots in this worker. */
export class LateReturns {
  readonly #time: LocalTime
  readonly #returns = new Map<string, { count: number; atMs: number }>()

  constructor(time: LocalTime = systemTime) {
    this.#time = time
  }

  /** Whether some job is repeatedly late here. */
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
