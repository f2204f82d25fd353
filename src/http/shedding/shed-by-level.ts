import { type ShedControl, ShedLevel } from './shed-level.ts'
import type { Arrival, Shed } from './shedder.ts'
import type { TrafficClasses } from './traffic-classes.ts'

const MIN_RETRY_AFTER_MS = 1000
/** The level may fall sooner than by its own steps, when a process restarts: no caller is sent away for longer. */
const MAX_RETRY_AFTER_MS = 30_000

/** Judges requests by a level that moves once in an interval. */
export class ShedByLevel {
  readonly #level: ShedLevel
  readonly #intervalMs: number

  constructor(classes: TrafficClasses, intervalMs: number, control: ShedControl) {
    this.#level = new ShedLevel(classes.names.length, classes.sheddable, control)
    this.#intervalMs = intervalMs
  }

  get level(): number {
    return this.#level.level
  }

  adjust(pressure: number, intervals: number): void {
    this.#level.adjust(pressure, intervals)
  }

  judge({ rank, className, cohort }: Arrival): Shed | undefined {
    const share = this.#level.shareOf(rank)
    if (share === 0) return undefined
    const place = cohort()
    if (place >= share) return undefined
    const untilMs = this.#level.intervalsUntil(rank, place) * this.#intervalMs
    const percent = Math.max(1, Math.round(share * 100))
    return {
      retryAfterMs: Math.min(MAX_RETRY_AFTER_MS, Math.max(MIN_RETRY_AFTER_MS, untilMs)),
      detail: `the load is too high: ${percent} % of the callers of class "${className}" are turned away`,
    }
  }
}
