import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { type Combination, combinationOf, type Event } from '../model/combination.ts'
import { failuresOf } from '../model/crossing.ts'
import { VirtualScripts } from '../model/virtual-redis.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

const COMBINATIONS = caseCount(20, 'MODEL_COMBINATIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)

/**
 * The same queue, where members of pools share what its limits allow; undefined if it has none, or another queue uses them. Jobs
 * that are alike are in groups in some of them, which may keep their members; in which order they leave does not matter then.
 */
function pooled(one: Combination): Combination | undefined {
  const { shape, jobs, events, beside, answers, workers, seed } = one
  if (beside || !shape.limits) return undefined
  const { uniform } = randomOf(seed * 86_028_121 + 7)
  const most = Math.max(...jobs.map(({ cost, costs = {} }) => Math.max(cost, ...Object.values(costs))))
  const counts = shape.limits.map(() => 1 + Math.floor(uniform() * 4))
  const areAlike = most === 1 && jobs.every(({ atUs, priority, fails }) => atUs === undefined && !priority && !fails)
  const isWhole = !answers && workers.every(({ killedAfterUs }) => killedAfterUs === undefined)
  const groups = areAlike && isWhole && uniform() < 0.6 ? 1 + Math.floor(uniform() * 5) : 0
  const sticky = groups > 0 && uniform() < 0.5 ? ({ sticky: 'group' } as const) : {}
  const poolOf = (limit: QueueLimit, i: number): QueueLimit => {
    if (counts[i] === 1) return limit
    const pool = ['a', 'b', 'c', 'd'].slice(0, counts[i])
    if (limit.algorithm === 'concurrency') return most > 1 ? limit : { ...limit, pool, ...sticky }
    const { limit: units, period } = limit.rate as { limit: number; period: number }
    return { ...limit, pool, ...sticky, rate: { limit: Math.max(most, Math.ceil(units / pool.length)), period } }
  }
  const limits = shape.limits.map(poolOf)
  const changed = (event: Event): Event => ({
    ...event,
    ...(event.sets?.limits ? { sets: { ...event.sets, limits: event.sets.limits.map(poolOf) } } : {}),
    ...(event.holds?.limits ? { holds: { ...event.holds, limits: event.holds.limits.map(poolOf) } } : {}),
  })
  const grouped = groups === 0 ? jobs : jobs.map((job, i) => ({ ...job, group: `g${i % groups}` }))
  return {
    ...{ ...one, shape: { ...shape, limits, ...(groups > 0 && { groups: {} }) }, jobs: grouped },
    events: events.map(changed),
  }
}

test(`${COMBINATIONS} combinations of pools with holds, groups, changes and workers leave by their exact schedules`, {
  timeout: 600_000 + COMBINATIONS * 1000,
}, async () => {
  const of = (seed: number) => pooled(combinationOf(seed))
  const failures = await failuresOf(scripts, redis.prefix, { seed: SEED, count: COMBINATIONS, of })
  expect(failures.length, failures.slice(0, 20).join('\n')).toBe(0)
})
