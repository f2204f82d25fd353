import { LoopLoad, type LoopUse } from 'sluice/internal'
import { type ShedControl, ShedLevel } from './shed-level.ts'
import { type Arrival, checkPositive, type Shed, Shedder, type ShedderOptions } from './shedder.ts'

export interface ProcessShedderOptions extends ShedderOptions, ShedControl {
  /** Above this utilisation of the event loop the level rises. 0 to 1, default 0.9. */
  readonly maxLoopUtilisation?: number
  /** The period over which the utilisation is measured. ms, default 1000. */
  readonly windowMs?: number
  /** How often the level moves while requests arrive. ms, default 500. */
  readonly intervalMs?: number
  /** How long the loop has been busy and idle so far, ms. Default: `performance.eventLoopUtilization`. */
  readonly loopUse?: () => LoopUse
}

const OPTIONS = ['shedStep', 'restoreStep', 'maxLoopUtilisation', 'windowMs', 'intervalMs', 'loopUse']
const MAX_LOOP_UTILISATION = 0.9
const WINDOW_MS = 1000
const INTERVAL_MS = 500

/** A {@link Shedder} by the event loop of this process. */
class ProcessShedder extends Shedder {
  readonly #level: ShedLevel
  readonly #load: LoopLoad
  readonly #max: number
  readonly #intervalMs: number
  #adjustedAtMs: number

  /** @internal */
  constructor(options: ProcessShedderOptions) {
    super('processShedder', 'process-shedder', options, OPTIONS)
    const { maxLoopUtilisation = MAX_LOOP_UTILISATION, windowMs = WINDOW_MS, intervalMs = INTERVAL_MS } = options
    const { shedStep, restoreStep, loopUse } = options
    checkPositive({ maxLoopUtilisation, shedStep, restoreStep }, 1)
    checkPositive({ windowMs, intervalMs })
    this.#load = new LoopLoad({ windowMs, now: this.now, ...(loopUse && { loopUse }) })
    this.#max = maxLoopUtilisation
    this.#intervalMs = intervalMs
    this.#adjustedAtMs = this.now()
    this.#level = new ShedLevel(this.classes.names.length, this.classes.sheddable, intervalMs, options)
  }

  /** How much is shed: 0 is nothing, 1 the whole last class, 2 also the class before it. */
  get level(): number {
    return this.#level.level
  }

  protected judge(arrival: Arrival): Shed | undefined {
    const utilisation = this.#load.utilisation()
    const intervals = Math.floor((this.now() - this.#adjustedAtMs) / this.#intervalMs)
    if (intervals > 0) {
      this.#adjustedAtMs = this.now()
      this.#level.adjust(utilisation / this.#max, intervals)
    }
    return this.#level.judge(arrival)
  }
}

/**
 * Sheds requests while the event loop of this process is too busy: the most sheddable class first, a growing share of
 * its callers, then the class before it. The first of several classes always passes: `requestsInFlight` bounds it. In
 * shadow mode nothing is shed, so the level rises further than it would. (Stripe, "Scaling your API with rate
 * limiters", 2017: layer 4, the utilisation of workers)
 * @throws InvalidInputError
 */
export function processShedder(options: ProcessShedderOptions = {}): ProcessShedder {
  return new ProcessShedder(options)
}
