import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { type Combination, START_US } from './combination.ts'
import { Crossing } from './crossing.ts'
import { VirtualScripts } from './virtual-redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

const COMBINATIONS = caseCount(30, 'MODEL_ENDED_TOGETHER')
const TOGETHER = 8

/** Busy workers whose jobs end together, under a rate and limits with room for some of the next ones. */
function combinationOf(seed: number): Combination {
  const { uniform } = randomOf(seed * 7919 + 3)
  const pick = <T>(from: readonly T[]) => from[Math.floor(from.length * uniform())] as T
  const [perSecond, burst, most] = [pick([50, 500, 5000]), pick([8, 30, 200]), pick([1, 1, 3, 8])]
  const limit: QueueLimit = {
    name: 'limit',
    rate: pick(['200/s', '60/100ms']),
    algorithm: pick(['gcra', 'fixed-window']),
  }
  const runsUs = pick([1000, 10_000, 60_000])
  return {
    seed,
    startUs: START_US,
    shape: {
      rate: { limit: perSecond * 1000, period: 1_000_000 },
      burst,
      ...(uniform() < 0.3 ? { limits: [limit] } : {}),
      ...(uniform() < 0.2 ? { concurrency: 12 } : {}),
    },
    jobs: Array.from({ length: 200 }, () => ({ cost: 1 + Math.floor(most * uniform()), runsUs })),
    workers: Array.from({ length: pick([1, 1, 2]) }, () => ({
      concurrency: pick([10, 20, 50]),
      roundTripUs: 1000,
      startsAfterUs: Math.floor(20_000 * uniform()),
    })),
    events: uniform() < 0.3 ? [{ kind: 'pause', atUs: START_US + 90_000, pausedUntilUs: START_US + 300_877 }] : [],
  }
}

test(`${COMBINATIONS} queues whose jobs end together leave by their exact schedules`, {
  timeout: 600_000,
}, async () => {
  const failures: string[] = []
  let next = 1
  const runOn = async () => {
    while (next <= COMBINATIONS) {
      const seed = next
      next += 1
      const base = `${redis.prefix}:c${seed}:`
      const failure = await new Crossing(base, scripts, combinationOf(seed)).check()
      if (failure) failures.push(`${seed}: ${failure.slice(0, 300)}`)
      const keys = await scripts.client.keys(`${base}*`)
      if (keys.length > 0) await scripts.client.unlink(...keys)
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, runOn))
  expect(failures).toEqual([])
})
