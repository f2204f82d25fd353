import { expect, test } from 'vitest'
import { encodeRule } from '../../src/limits/definition.ts'
import type { LimitRule } from '../../src/limits/index.ts'
import { costUnder, mostUnder, type QueueLimit, splitQueueLimits } from '../../src/limits/queue-limits.ts'
import { encodeShape } from '../../src/shape/shape.ts'

test.each<[string, LimitRule, number]>([
  ['a bucket to fill', { rate: '10/s', burst: 5 }, 500_000],
  ['a window to pass', { algorithm: 'fixed-window', rate: '10/min' }, 60_000_000],
  ['a lease to end', { algorithm: 'concurrency', concurrency: 4, leaseMs: 250 }, 250_000],
  ['what is given', { rate: '10/s', burst: 5, lendAfterMs: 70 }, 70_000],
])('a reserve is lent after as long as it takes %s', (_, rule, lendUs) => {
  expect(encodeRule({ ...rule, reservedShare: 0.5 })).toMatchObject({ reserve: 0.5, lend: lendUs })
  expect(encodeRule(rule)).not.toHaveProperty('lend')
})

test('a job takes of a limit what it costs in its unit, of places whole ones, and at most all of it', () => {
  const rate = '100/min'
  const tokens: QueueLimit = { name: 'tokens', rate, algorithm: 'fixed-window', unit: 'tokens' }
  const places: QueueLimit = { name: 'places', algorithm: 'concurrency', concurrency: 7 }
  expect(costUnder({ name: 'jobs', rate }, 2.5, { tokens: 40 })).toBe(2.5)
  expect(costUnder(tokens, 2.5, { tokens: 40 })).toBe(40)
  expect(costUnder(tokens, 2.5)).toBe(1)
  expect(costUnder(places, 2.5)).toBe(3)
  expect([mostUnder(tokens), mostUnder(places), mostUnder({ name: 'b', rate, burst: 9 })]).toEqual([100, 7, 9])
})

test('the limits that hold the whole queue are told from those that count by group', () => {
  const stored = (limits: readonly QueueLimit[]) => encodeShape({ limits, groups: {} }).fields.limits as string
  const names = (text: string | undefined) => text && JSON.parse(text).map(({ name }: { name: string }) => name)
  const [day, hour] = [{ name: 'day', rate: '9/day' } as const, { name: 'hour', rate: '3/h' } as const]
  const [tenant, own] = [
    { ...day, name: 'tenant', by: 'group' } as const,
    { ...hour, name: 'own', by: 'group' } as const,
  ]
  const split = (limits: readonly QueueLimit[]) => {
    const { queue, keyed } = splitQueueLimits(stored(limits))
    return [names(queue), names(keyed)]
  }
  expect(split([day, hour])).toEqual([['day', 'hour'], undefined])
  expect(split([tenant, own])).toEqual([undefined, ['tenant', 'own']])
  expect(split([tenant, day, own, hour])).toEqual([
    ['day', 'hour'],
    ['tenant', 'own'],
  ])
})
