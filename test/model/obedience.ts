import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { Shape } from '../../src/index.ts'
import { Fleet } from './fleet.ts'
import { ObedientProducer } from './obedient-producer.ts'
import { type VirtualScripts, VirtualWorld } from './virtual-redis.ts'

const START_US = 1_764_000_000_123_457
const FIRST_US = 1_000_000
export const ROUND_TRIP_US = 500

/** A full queue, its workers, and the events during the run. */
export interface Scenario {
  readonly name: string
  readonly shape: Shape & { readonly capacity: number }
  readonly workers: number
  /** Of each worker. */
  readonly concurrency: number
  readonly jobMs: number
  /** The largest deviation of a job's duration from that, as a share of it. Default 0. */
  readonly spread?: number
  /** How many of the first jobs take twice as long, as in a new process. Default: none. */
  readonly slowJobs?: number
  /** Pauses of the meter: their duration and interval, ms. */
  readonly pauses?: { readonly forMs: number; readonly everyMs: number }
  readonly seconds: number
}

/** The results of a period. */
export interface Stretch {
  readonly accepted: number
  readonly refusals: number
  /** How much later than a place became free the hint asked to retry, ms; below 0: how much sooner. */
  readonly errorsMs: readonly number[]
  /**
   * The same as an absolute value, as a share of the wait, or of the mean time between two jobs where that is longer.
   */
  readonly shares: readonly number[]
}

export interface Obedience {
  /** The first second of the workers, and the rest. */
  readonly first: Stretch
  readonly rest: Stretch
  /** The mean time between two jobs that were taken, ms. */
  readonly intervalMs: number
}

/** Runs a producer that retries exactly at the time in the hint, in virtual time and with the real scripts. */
export async function obey(
  base: string,
  scripts: VirtualScripts,
  scenario: Scenario,
  seed: number,
): Promise<Obedience> {
  const { shape, workers, concurrency, jobMs, spread = 0, slowJobs = 0, pauses, seconds } = scenario
  const { uniform } = randomOf(seed)
  const most = Math.ceil(seconds * Math.min(rateOf(shape), (1000 / jobMs) * workers * concurrency)) + 300
  const jobs = Array.from({ length: shape.capacity + most }, (_, number) => ({
    cost: 1,
    runsUs: Math.round(jobMs * 1000 * (1 + spread * (2 * uniform() - 1)) * (number < slowJobs ? 2 : 1)),
    // All jobs after the first ones are added by the producer.
    atUs: number < shape.capacity ? undefined : Number.POSITIVE_INFINITY,
  }))
  const fleet = new Fleet(base, new VirtualWorld(base, scripts, START_US), { jobs, startUs: START_US, uniform })
  const traits = { concurrency, roundTripUs: ROUND_TRIP_US }
  const team = Array.from({ length: workers }, () => ({ ...traits, startsAfterUs: Math.round(20_000 * uniform()) }))
  await fleet.begin(shape, team)
  for (let ms = pauses?.everyMs ?? Number.POSITIVE_INFINITY; ms < seconds * 1000; ms += pauses?.everyMs ?? 0) {
    fleet.pause(START_US + ms * 1000, Math.round(START_US / 1000 + ms + (pauses?.forMs ?? 0)) * 1000)
  }
  const producer = new ObedientProducer(fleet, base, ROUND_TRIP_US)
  fleet.time.at(START_US, () => void producer.run(shape.capacity))
  await Fleet.run([fleet], START_US + seconds * 1e6)
  if (producer.failure) throw producer.failure
  return measure(
    [...fleet.granted.values()].map(({ atUs }) => atUs).sort((one, other) => one - other),
    producer,
  )
}

/** Maximum number of jobs per second, by the rate. */
function rateOf({ rate }: Shape): number {
  return rate === undefined ? Number.POSITIVE_INFINITY : Number.parseFloat(String(rate))
}

/** @param takenUs when workers took jobs, which freed places */
function measure(takenUs: readonly number[], { refusals, acceptedUs }: ObedientProducer): Obedience {
  const [firstUs = 0, lastUs = 0] = [takenUs[0], takenUs.at(-1)]
  const intervalMs = (lastUs - firstUs) / 1000 / Math.max(1, takenUs.length - 1)
  const stretch = (fromUs: number, toUs: number): Stretch => {
    const within = (us: number) => us >= fromUs && us < toUs
    const refused = refusals.filter(({ atUs }) => within(atUs))
    const waits = refused.flatMap(({ atUs, retryAfterMs }) => {
      const freeUs = takenUs.find((us) => us > atUs)
      return freeUs === undefined ? [] : [{ trueMs: (freeUs - atUs) / 1000, retryAfterMs }]
    })
    return {
      accepted: acceptedUs.filter(within).length,
      refusals: refused.length,
      errorsMs: waits.map(({ trueMs, retryAfterMs }) => retryAfterMs - trueMs),
      shares: waits.map(({ trueMs, retryAfterMs }) => Math.abs(retryAfterMs - trueMs) / Math.max(intervalMs, trueMs)),
    }
  }
  return {
    first: stretch(firstUs, firstUs + FIRST_US),
    rest: stretch(firstUs + FIRST_US, Number.POSITIVE_INFINITY),
    intervalMs,
  }
}
