/** An exponentially weighted mean. */
export class MovingMean {
  readonly #weight: number
  value: number | undefined

  /** @param weight of the last observation, above 0 and below 1 */
  constructor(weight: number) {
    this.#weight = weight
  }

  add(value: number): void {
    this.value = this.value === undefined ? value : this.value + (value - this.value) * this.#weight
  }
}

/** Weight of the last job in both means. */
const WEIGHT = 1 / 8

/**
 * Mean time from a job's slot to its end, and the mean deviation from it. A worker sends both with its requests for
 * jobs: admissions use them to estimate when running jobs end.
 */
export class RunTimes {
  readonly #us = new MovingMean(WEIGHT)
  readonly #offUs = new MovingMean(WEIGHT)

  add(us: number): void {
    if (us <= 0) return
    this.#offUs.add(Math.abs(us - (this.#us.value ?? us)))
    this.#us.add(us)
  }

  /** In the format of `lua/verbs/exchange.lua`; '' before the first job. */
  get text(): string {
    const [us, offUs] = [this.#us.value, this.#offUs.value]
    return us === undefined ? '' : `${Math.round(us)} ${Math.round(offUs ?? 0)}`
  }
}
