import { afterEach, beforeEach, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

// A unit that no limit counts is a typing error, or belongs to a limit that comes or goes at run time.
const shop = new Workshop(useRedis(import.meta.url))
const warnings: string[] = []
const hear = (warning: Error & { code?: string }) => {
  if (warning.code === 'SLUICE_UNIT') warnings.push(warning.message)
}
beforeEach(() => {
  warnings.length = 0
  process.on('warning', hear)
})
afterEach(() => process.off('warning', hear))

/** Warnings are emitted in the next tick. */
const told = async () => {
  await new Promise(setImmediate)
  return warnings
}

test('costs in a unit that no limit counts are warned of once, and the job is added', async () => {
  const queue = shop.queue({ limits: [{ name: 'tpm', rate: '9/s', burst: 9, unit: 'tokens' }] })
  for (let i = 0; i < 2; i++) await queue.add('job', {}, { costs: { token: 5, tokens: 2 } })
  await queue.addBulk([{ name: 'job', data: {}, opts: { costs: { 'p\nages': 1 } } }])
  const begin = `queue "${queue.name}": no limit counts costs.`
  expect(await told()).toEqual([
    `${begin}token of a job; they count tokens (did you mean 'tokens'?)`,
    `${begin}p\\nages of a job; they count tokens`,
  ])
  expect(await queue.count()).toBe(3)
})

test('a unit whose limit goes at run time refuses no job', async () => {
  const queue = shop.queue({ limits: [{ name: 'tpm', rate: '9/s', burst: 9, unit: 'tokens' }] })
  await queue.add('job', {}, { costs: { tokens: 2 } })
  expect(await told()).toEqual([])
  await queue.setShape({ limits: [] }, { by: 'test', reason: 'no limit' })
  await queue.add('job', {}, { costs: { tokens: 2 } })
  expect(await told()).toEqual([`queue "${queue.name}": no limit counts costs.tokens of a job; none has a unit`])
  expect(await queue.count()).toBe(2)
})

test('without a shape nobody knows the limits', async () => {
  const queue = shop.queue()
  await queue.add('job', {}, { costs: { tokens: 2 } })
  expect(await told()).toEqual([])
})
