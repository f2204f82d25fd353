import { checkCallOptions, LoopLoad, type LoopUse } from 'sluice/internal'
import type { ShedControl } from './shed-level.ts'
import { ShedByLevel } from './shed-level.ts'
import { type Arrival, type Overload, type Shed, Shedder } from './shedder.ts'
import { CONTROL_OPTIONS, checkPositive, SHEDDER_OPTIONS, type ShedderOptions } from './shedder-options.ts'
import { TrafficClasses } from './traffic-classes.ts'

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

const OPTIONS = ['maxLoopUtilisation', 'windowMs', 'intervalMs', 'loopUse']
const MAX_LOOP_UTILISATION = 0.9
const WINDOW_MS = 1000
const INTERVAL_MS = 500

class LoopOverload implements Overload {
  readonly byLevel: ShedByLevel
  readonly #load: LoopLoad
  readonly #max: number
  readonly #intervalMs: number
  readonly #now: () => number
  #adjustedAtMs: number

  constructor(classes: TrafficClasses, options: ProcessShedderOptions) {
    const { maxLoopUtilisation = MAX_LOOP_UTILISATION, windowMs = WINDOW_MS, intervalMs = INTERVAL_MS } = options
    const { now = () => performance.now(), loopUse } = options
    this.#load = new LoopLoad({ windowMs, now, ...(loopUse && { loopUse }) })
    this.#max = maxLoopUtilisation
    this.#intervalMs = intervalMs
    this.#now = now
    this.#adjustedAtMs = now()
    this.byLevel = new ShedByLevel(classes, intervalMs, options)
  }

  judge(arrival: Arrival): Shed | undefined {
    const utilisation = this.#load.utilisation()
    const intervals = Math.floor((this.#now() - this.#adjustedAtMs) / this.#intervalMs)
    if (intervals > 0) {
      this.#adjustedAtMs = this.#now()
      this.byLevel.adjust(utilisation / this.#max, intervals)
    }
    return this.byLevel.judge(arrival)
  }
}

/** A {@link Shedder} by the event loop of this process. */
class ProcessShedder extends Shedder {
  readonly #overload: LoopOverload

  /** @internal */
  constructor(classes: TrafficClasses, overload: LoopOverload, options: ProcessShedderOptions) {
    super(options.name ?? 'process-shedder', overload, classes, options)
    this.#overload = overload
  }

  /** How much is shed: 0 is nothing, 1 the whole last class, 2 also the class before it. */
  get level(): number {
    return this.#overload.byLevel.level
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
  checkCallOptions('processShedder', options, [...SHEDDER_OPTIONS, ...CONTROL_OPTIONS, ...OPTIONS])
  const { classes, classify, maxLoopUtilisation, shedStep, restoreStep, windowMs, intervalMs } = options
  checkPositive({ maxLoopUtilisation, shedStep, restoreStep }, 1)
  checkPositive({ windowMs, intervalMs })
  const sorted = new TrafficClasses(classes, classify)
  return new ProcessShedder(sorted, new LoopOverload(sorted, options), options)
}
