import { InvalidInputError } from '../../errors.ts'
import type { ShapeMode } from '../../mode.ts'
import type { HttpRequest } from '../door.ts'
import type { ModeSwitch } from '../mode-switch.ts'
import type { Classify, TrafficClass } from './traffic-classes.ts'

/** What all shedders take. */
export interface ShedderOptions {
  /** What the shedder is called: in answers (`violated-policies`) and for its mode. */
  readonly name?: string
  /** From critical to sheddable. The first of several is never turned away for load. Default: DEFAULT_CLASSES. */
  readonly classes?: readonly TrafficClass[]
  /** Default: `request.identity.trafficClass`. A class that is not among `classes` is `default`, else the last one. */
  readonly classify?: Classify
  /**
   * Who calls: of one class, the same callers are turned away while the level stays. Default: the identity's name, else
   * the address at the other end of the connection. undefined: nobody knows, each request is drawn by itself.
   */
  readonly key?: (request: HttpRequest) => string | undefined
  /** Until the switch says otherwise. `shadow` only counts, `off` does not even do that. Default `enforce`. */
  readonly mode?: ShapeMode
  /** Where the mode is set at run time, under the name of the shedder. */
  readonly modes?: ModeSwitch
  /** Field in which an answer names the shedder that would have refused it, in shadow. Default: none. */
  readonly shadowHeader?: string
  /** A monotonic clock, ms. Default: `performance.now`. */
  readonly now?: () => number
}

/** Names of those that all have. */
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
