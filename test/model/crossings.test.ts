import { expect, test } from 'vitest'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { combinationOf } from './combination.ts'
import { Crossing } from './crossing.ts'
import { VirtualScripts } from './virtual-redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

/** `npm run test:model` runs 10,000. */
const COMBINATIONS = caseCount(60, 'MODEL_COMBINATIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** With this many at once, Redis and this process are equally busy. */
const TOGETHER = 8
const MOST_TOLD = 20

test(`${COMBINATIONS} combinations of holds, jobs, changes and workers leave by their exact schedules`, {
  timeout: 600_000 + COMBINATIONS * 1000,
}, async () => {
  const failures: string[] = []
  let next = SEED
  const runOn = async () => {
    while (next < SEED + COMBINATIONS) {
      const seed = next
      next += 1
      const base = `${redis.prefix}:c${seed}:`
      const failure = await new Crossing(base, scripts, combinationOf(seed)).check()
      if (failure) {
        failures.push(`MODEL_SEED=${seed} MODEL_COMBINATIONS=1: ${failure}`)
        // Printed at once, so that a long run that is stopped has shown what it found.
        process.stderr.write(`${failures.at(-1)}\n`)
      }
      const keys = await scripts.client.keys(`${base}*`)
      if (keys.length > 0) await scripts.client.unlink(...keys)
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, runOn))
  expect(failures.length, failures.slice(0, MOST_TOLD).join('\n')).toBe(0)
})
