import type { Arrival, Shed } from './shedder.ts'

/** How fast the level rises and falls. */
export interface ShedControl {
  /**
   * How far the level rises in an interval of overload: share of a class. Default 0.05. (DAGOR's alpha) Up to what the
   * pressure calls for it rises faster, by a class in two seconds.
   */
  readonly shedStep?: number
  /** How far it falls in an interval without overload. Default 0.01. (DAGOR's beta) */
  readonly restoreStep?: number
}

/** Below this share of the bound the level falls; from there up to the bound it stays. */
const RESUME_SHARE = 0.8
const SHED_STEP = 0.05
const RESTORE_STEP = 0.01
/** In how long the level rises by a class, up to what the pressure calls for. ms */
const CLASS_MS = 2000
const MIN_RETRY_AFTER_MS = 1000
/** A process that restarts begins at level 0, so no caller is asked to wait longer than this. */
const MAX_RETRY_AFTER_MS = 30_000

/**
 * How much is shed: 0 is nothing, 1 the whole last class, 1.3 also three tenths of the callers of the class before it.
 * While the pressure is above 1, it rises within seconds to the share of all sheddable classes by which the pressure
 * exceeds 1: twice the bound calls for all of them. Beyond that, and below a pressure of 0.8, it moves by one step per
 * interval, up five times as fast as down. So shedding takes effect before more is shed, and load returns gradually.
 * (DAGOR, SoCC 2018, §4.2: alpha 5% down, beta 1% up, one level over classes and hashed users; Stripe 2017: shed
 * slowly, restore slowly)
 */
export class ShedLevel {
  readonly #classes: number
  readonly #most: number
  readonly #intervalMs: number
  readonly #shedStep: number
  readonly #restoreStep: number
  readonly #calledForStep: number
  #level = 0

  /**
   * @param classes how many there are
   * @param most how many of them may be shed, counted from the last
   */
  constructor(
    classes: number,
    most: number,
    intervalMs: number,
    { shedStep = SHED_STEP, restoreStep = RESTORE_STEP }: ShedControl = {},
  ) {
    this.#intervalMs = intervalMs
    this.#calledForStep = intervalMs / CLASS_MS
    this.#classes = classes
    this.#most = most
    this.#shedStep = shedStep
    this.#restoreStep = restoreStep
  }

  get level(): number {
    return this.#level
  }

  /**
   * @param pressure the load, divided by the load above which it is overload
   * @param intervals how many have passed since the last call: without requests this process caused no load
   */
  adjust(pressure: number, intervals: number): void {
    if (pressure > 1) {
      const calledFor = Math.min(this.#most * (pressure - 1), this.#level + this.#calledForStep)
      this.#level = Math.min(this.#most, Math.max(calledFor, this.#level + this.#shedStep))
    } else if (pressure < RESUME_SHARE) this.#level = Math.max(0, this.#level - this.#restoreStep * intervals)
  }

  /** The share of the callers of a class that is shed, 0 to 1. */
  shareOf(rank: number): number {
    return Math.min(1, Math.max(0, this.#level - this.#before(rank)))
  }

  /** The minimum number of intervals without overload until a caller is let in again. */
  intervalsUntil(rank: number, cohort: number): number {
    return Math.max(0, Math.ceil((this.#level - this.#before(rank) - cohort) / this.#restoreStep))
  }

  /** Whether the caller of a request is among those that are shed. */
  judge({ rank, className, cohort }: Arrival): Shed | undefined {
    const share = this.shareOf(rank)
    if (share === 0) return undefined
    const place = cohort()
    if (place >= share) return undefined
    const untilMs = this.intervalsUntil(rank, place) * this.#intervalMs
    const percent = Math.max(1, Math.round(share * 100))
    return {
      retryAfterMs: Math.min(MAX_RETRY_AFTER_MS, Math.max(MIN_RETRY_AFTER_MS, untilMs)),
      detail: `the load is too high: ${percent}% of the callers of class "${className}" are turned away`,
    }
  }

  /** The level at which shedding of a class begins. */
  #before(rank: number): number {
    return this.#classes - 1 - rank
  }
}
