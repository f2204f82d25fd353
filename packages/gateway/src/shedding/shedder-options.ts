import type { ShapeMode } from 'sluice'
import { InvalidInputError } from 'sluice/internal'
import type { HttpRequest } from '../middleware.ts'
import type { ModeSwitch } from '../mode-switch.ts'
import type { Classify, TrafficClass } from './traffic-classes.ts'

/** Options of all shedders. */
export interface ShedderOptions {
  /** The name of the shedder: in responses (`violated-policies`) and for its mode. */
  readonly name?: string
  /**
   * From critical to sheddable. The first of several is never shed for load. Default: `critical` and `default`, a fifth
   * of the room reserved for each, and `sheddable`.
   */
  readonly classes?: readonly TrafficClass[]
  /**
   * Default: `request.identity.trafficClass`. An unknown class counts as `default`, or as the last one if there is no
   * such class.
   */
  readonly classify?: Classify
  /**
   * Identifies the caller: within a class, the same callers are shed while the level is constant. Default: the
   * identity's name, else the remote address of the connection. undefined: unknown; each request is shed at random.
   */
  readonly key?: (request: HttpRequest) => string | undefined
  /** The mode until the switch sets another. `shadow` only counts, `off` does not even count. Default `enforce`. */
  readonly mode?: ShapeMode
  /** Sets the mode at run time, under the name of the shedder. */
  readonly modes?: ModeSwitch
  /** The field that names a shedder in shadow mode that would have refused the request. Default: none. */
  readonly shadowHeader?: string
  /** A monotonic clock, ms. Default: `performance.now`. */
  readonly now?: () => number
}

/** Names of the options that all shedders have. */
export const SHEDDER_OPTIONS = ['name', 'classes', 'classify', 'key', 'mode', 'modes', 'shadowHeader', 'now']
export const CONTROL_OPTIONS = ['shedStep', 'restoreStep']

/** @throws InvalidInputError */
export function checkPositive(numbers: Readonly<Record<string, number | undefined>>, most = Number.MAX_VALUE): void {
  for (const [name, value] of Object.entries(numbers)) {
    if (value === undefined || (value > 0 && value <= most)) continue
    const range = most === Number.MAX_VALUE ? '> 0' : `> 0 and at most ${most}`
    throw new InvalidInputError(`${name} must be a number ${range}; got ${value}`)
  }
}
