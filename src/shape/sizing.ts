import { checkArgument } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { intervalUs, parseRate, type RateInput } from '../rate.ts'
import { DEFAULT_HORIZON_MS } from './shape.ts'

/** Known facts about a queue's traffic. */
export interface SizingInput {
  /** The drain rate, as in a shape. */
  readonly rate: RateInput
  /** Jobs that arrive per second while a spike lasts. */
  readonly arrivalsPerSecond: number
  /** How long a spike lasts, s. */
  readonly spikeSeconds: number
  /** How long one job runs, s: use a high percentile rather than the mean. */
  readonly jobSeconds: number
  /** Mean cost of a job, units. Default 1. */
  readonly meanCost?: number
  /** The horizon of the workers, ms: a job occupies a place for that long before it starts. Default 50. */
  readonly horizonMs?: number
}

/** Minimum values for a shape and its workers. */
export interface Sizing {
  /** Jobs that must be able to wait so that a spike causes no refusal. At least 1. */
  readonly capacity: number
  /** How long the last job of a full queue waits, s. */
  readonly longestWaitSeconds: number
  /** Jobs that must be able to run at once, over all workers, to reach the rate. At least 1. */
  readonly concurrency: number
}

/**
 * Sizes a queue: capacity >= spike seconds × (arrivals − rate), longest wait = capacity / rate, concurrency >= rate ×
 * (job seconds + horizon), with the rate in jobs per second. These are minimum values without a margin.
 *
 * ```ts
 * sizeShape({ rate: '50/s', arrivalsPerSecond: 400, spikeSeconds: 30, jobSeconds: 0.4 })
 * // { capacity: 10500, longestWaitSeconds: 210, concurrency: 23 }
 * ```
 * @throws InvalidRateError for a wrong rate, InvalidInputError for any other wrong number
 */
export function sizeShape(input: SizingInput): Sizing {
  checkArgument(
    typeof input === 'object' && input !== null,
    'sizeShape: its input',
    'an object, such as { rate, … }',
    input,
  )
  const { rate, arrivalsPerSecond, spikeSeconds, jobSeconds, meanCost = 1, horizonMs = DEFAULT_HORIZON_MS } = input
  const parsed = parseRate(rate)
  for (const [name, value] of Object.entries({ arrivalsPerSecond, spikeSeconds, jobSeconds, horizonMs })) {
    if (!(value >= 0) || !Number.isFinite(value)) throw refusal(name, '>= 0', value)
  }
  if (!(meanCost > 0) || !Number.isFinite(meanCost)) throw refusal('meanCost', '> 0', meanCost)
  const jobsPerSecond = 1e6 / (intervalUs(parsed) * meanCost)
  const capacity = wholeAtLeast1(spikeSeconds * (arrivalsPerSecond - jobsPerSecond))
  return {
    capacity,
    longestWaitSeconds: tidy(capacity / jobsPerSecond),
    concurrency: wholeAtLeast1(jobsPerSecond * (jobSeconds + horizonMs / 1000)),
  }
}

function wholeAtLeast1(value: number): number {
  return Math.max(1, Math.ceil(tidy(value)))
}

/** Drops the noise in the last digits of a double: 100 × 0.07 is 7. */
function tidy(value: number): number {
  return Number(value.toPrecision(12))
}

function refusal(name: string, expected: string, value: unknown): InvalidInputError {
  return new InvalidInputError(`sizeShape: ${name} must be a number ${expected}; got ${JSON.stringify(value) ?? value}`)
}
