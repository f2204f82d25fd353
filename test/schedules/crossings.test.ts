import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { QueueLimit, Rate, RateSchedule, ScheduledRate } from '../../src/index.ts'
import { type Combination, combinationOf, type Event } from '../model/combination.ts'
import { failuresOf } from '../model/crossing.ts'
import { fastestOf } from '../model/schedule.ts'
import { VirtualScripts } from '../model/virtual-redis.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

const COMBINATIONS = caseCount(60, 'MODEL_COMBINATIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** 16:01:00 UTC on a Monday. */
const CHANGE_US = 1_764_000_060_000_000

/**
 * The same limits, of which buckets, some of them pools, change for that minute too, and windows are quotas that are spread. These last for the
 * units of all jobs: until the next midnight the workers of a fleet would ask too often.
 */
function scheduledLimits(limits: readonly QueueLimit[], units: number, draw: () => number): QueueLimit[] {
  return limits.map((one) => {
    if (one.rate === undefined || draw() < 0.4) return one
    const { limit, periodMs } = fastestOf(one.rate)
    if (one.algorithm === 'fixed-window' && one.align !== 'day') {
      const day = { limit: limit * 20 + units, period: 86_400_000 }
      return { ...one, align: 'day', rate: day, spread: 'even', minRate: { limit, period: periodMs } }
    }
    if (one.burst === undefined) return one
    const minute = draw() < 0.6 ? 0 : { limit: limit * 0.6, period: periodMs }
    const pool = ['a', 'b', 'c'].slice(0, Math.floor(draw() * 6))
    return { ...one, rate: scheduleOf({ limit, periodMs }, minute), ...(pool.length > 0 && { pool }) }
  })
}

function scheduleOf({ limit, periodMs }: Rate, minute: ScheduledRate['rate']): RateSchedule {
  return {
    schedule: [{ days: 'mon', from: '16:01', to: '16:02', rate: minute }, { rate: { limit, period: periodMs } }],
    timeZone: 'Africa/Abidjan',
  }
}

/** The same queue, whose rate changes for a minute while its jobs leave; undefined if it has no rate, or hears feedback. */
function scheduled(one: Combination): Combination | undefined {
  const { shape, startUs, jobs, events, beside, answers, workers, seed } = one
  const isPlain = !beside && !answers && workers.every(({ killedAfterUs }) => killedAfterUs === undefined)
  if (shape.rate === undefined || !isPlain || events.some(({ kind }) => kind === 'said')) return undefined
  const { uniform } = randomOf(seed * 49_979_687 + 3)
  const { limit, periodMs } = fastestOf(shape.rate)
  // A limit of its own rounds to whole µs, which a rate that falls to a part of itself multiplies like a debt.
  const slow = shape.limits?.length ? 0.6 : 0.1
  const factor = [0, 0, slow, 0.6, 3][Math.floor(uniform() * 5)] as number
  const minute = factor === 0 ? 0 : { limit: limit * factor, period: periodMs }
  const keepsLimits = events.every(({ holds }) => !holds?.limits || isDeepStrictEqual(holds.limits, shape.limits))
  const costs = jobs.map(({ cost, costs, fails = 0 }) => (1 + fails) * Math.max(cost, ...Object.values(costs ?? {})))
  const units = costs.reduce((sum, one) => sum + one, 0)
  const limits = keepsLimits && shape.limits ? scheduledLimits(shape.limits, units, uniform) : shape.limits
  const isOfLimits = limits !== shape.limits && uniform() < 0.5
  const rate = isOfLimits ? shape.rate : scheduleOf({ limit, periodMs }, minute)
  const lastsUs = (jobs.length * periodMs * 1000) / limit
  // Overrides end at whole ms.
  const shiftUs = Math.floor((CHANGE_US - startUs - lastsUs * (0.1 + 0.8 * uniform())) / 1000) * 1000
  const later = <T extends { readonly atUs?: number | undefined }>(what: T): T =>
    what.atUs === undefined ? what : { ...what, atUs: what.atUs + shiftUs }
  const changedHolds = (holds: NonNullable<Event['holds']>) => ({
    ...holds,
    ...(holds.rate === shape.rate && { rate }),
    ...(holds.limits && keepsLimits && limits && { limits }),
  })
  const changed = (event: Event): Event => ({
    ...later(event),
    ...(event.pausedUntilUs ? { pausedUntilUs: event.pausedUntilUs + shiftUs } : {}),
    ...(event.holds ? { holds: changedHolds(event.holds) } : {}),
    ...(event.sets?.limits && keepsLimits && limits ? { sets: { ...event.sets, limits } } : {}),
  })
  return {
    ...{ ...one, startUs: startUs + shiftUs, shape: { ...shape, rate, ...(limits && { limits }) } },
    ...{ jobs: jobs.map(later), events: events.map(changed) },
  }
}

test(`${COMBINATIONS} combinations of a rate, or limits, that follow the clock with holds, jobs, changes and workers leave by their exact schedules`, {
  timeout: 600_000 + COMBINATIONS * 1000,
}, async () => {
  const of = (seed: number) => scheduled(combinationOf(seed))
  const failures = await failuresOf(scripts, redis.prefix, { seed: SEED, count: COMBINATIONS, of })
  expect(failures.length, failures.slice(0, 20).join('\n')).toBe(0)
})
