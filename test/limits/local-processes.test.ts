import { expect, onTestFinished, test } from 'vitest'
import { worstWindow } from '../../src/testing/index.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import type { HammerArgs, Hammered } from './programs/local-hammer.ts'
import { PATIENT, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const { limiter } = useLimiters(redis)

test('row 21: local approximation, per-instance counts synced periodically, overshoot bounded and stated', async () => {
  const rule = { rate: '200/s', burst: 60 }
  const sync = { intervalMs: 150, share: 0.25, processes: 3 }
  const options = { ...PATIENT, name: 'hammered', prefix: redis.prefix, ...rule, sync }
  const args: HammerArgs = { url: redis.url, limiter: options, forMs: 1200, hoardMs: 130 }
  const script = new URL('./programs/local-hammer.ts', import.meta.url)
  const crew = times(3, () => processes.fork<Hammered>(script, { args: [JSON.stringify(args)] }))
  onTestFinished(async () => {
    await Promise.all(crew.map((one) => one.kill()))
  })
  await Promise.all(crew.map((one) => one.waitFor('ready')))
  for (const one of crew) one.send('go')
  const done = await Promise.all(crew.map((one) => one.waitFor('hammered')))
  await Promise.all(crew.map(({ exited }) => exited))

  const { overshootBound } = limiter(options)
  expect(overshootBound).toBeCloseTo(30, 3)
  const passed = done.flatMap(({ passedUs }) => passedUs)
  const worst = worstWindow(passed, rule)
  expect(worst && worst.cost - worst.allowed).toBeLessThanOrEqual(overshootBound)
  // All of them worked, mostly without asking.
  expect(Math.min(...done.map(({ passedUs }) => passedUs.length))).toBeGreaterThan(15)
  const decisions = passed.length + done.reduce((sum, { refused }) => sum + refused, 0)
  expect(done.reduce((sum, { sent }) => sum + sent, 0)).toBeLessThan(decisions / 2)
})
