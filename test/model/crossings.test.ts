import { expect, test } from 'vitest'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { combinationOf } from './combination.ts'
import { failuresOf } from './crossing.ts'
import { VirtualScripts } from './virtual-redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

/** `npm run test:model` runs 10,000. */
const COMBINATIONS = caseCount(60, 'MODEL_COMBINATIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const MOST_TOLD = 20

test(`${COMBINATIONS} combinations of holds, jobs, changes and workers leave by their exact schedules`, {
  timeout: 600_000 + COMBINATIONS * 1000,
}, async () => {
  const failures = await failuresOf(scripts, redis.prefix, { seed: SEED, count: COMBINATIONS, of: combinationOf })
  expect(failures.length, failures.slice(0, MOST_TOLD).join('\n')).toBe(0)
})
