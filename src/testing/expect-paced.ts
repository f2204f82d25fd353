import { AssertionError } from 'node:assert'
import { InvalidInputError } from '../errors.ts'
import { decodeRate, encodeRate } from '../limits/schedule.ts'
import { formatValue, type Shape } from '../shape/shape.ts'
import { type Start, type Window, worstWindow } from './worst-window.ts'

/** Departure times are whole microseconds: a window may look too short by one. */
const DEFAULT_TOLERANCE_US = 1

export interface ExpectPacedOptions {
  /**
   * How much longer windows may be than measured, µs, default 1. For `departedAtUs`, or for times taken at a receiver,
   * give the longest time between departure and measurement, for example 100_000.
   */
  readonly toleranceUs?: number
}

/**
 * Asserts that starts conform to a shape: no closed window of length T holds more than `burst + T / I` units of cost.
 *
 * ```ts
 * const starts: number[] = []
 * worker.on('departed', (_job, { departureTimeUs }) => starts.push(departureTimeUs))
 * // …
 * expectPaced(starts, { rate: '50/s', burst: 10 })
 * ```
 * @param starts µs on one clock, in any order
 * @throws AssertionError naming the worst window
 * @throws InvalidRateError; InvalidInputError for a shape without a rate
 */
export function expectPaced(
  starts: readonly Start[],
  shape: Pick<Shape, 'rate' | 'burst'>,
  { toleranceUs = DEFAULT_TOLERANCE_US }: ExpectPacedOptions = {},
): void {
  if (shape?.rate === undefined)
    throw new InvalidInputError("expectPaced needs a shape with a rate, as { rate: '50/s' }; got none")
  const worst = worstWindow(starts, shape)
  if (!worst || worst.excessUs <= toleranceUs) return
  const rate = formatValue(decodeRate(encodeRate(shape.rate)))
  throw new AssertionError({
    message: `${describe(worst)}, but ${rate} with burst ${shape.burst ?? 1} allows ${round(worst.allowed)}`,
    actual: worst.cost,
    expected: worst.allowed,
    operator: '<=',
    stackStartFn: expectPaced,
  })
}

function describe({ cost, fromUs, toUs }: Window): string {
  return `${round(cost)} units of cost started within ${(toUs - fromUs) / 1000} ms (${fromUs} to ${toUs} µs)`
}

function round(units: number): number {
  return Number(units.toFixed(6))
}
