import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'

// What was set for single values of a limit outlives a loss of Redis's data, as overrides of the shape do.
const WHO = { by: 'billing', reason: 'enterprise' }
const PLAN: QueueLimit = { name: 'plan', by: 'model', rate: '1/h', tiers: { pro: { rate: '9/h' } } }

async function start() {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const setter = fleet.queue('mail', { connection, shape: { limits: [PLAN] } })
  const other = fleet.queue('mail', { connection })
  await setter.waitUntilReady()
  const values = async () =>
    Promise.all(['a', 'b', 'c'].map(async (model) => (await other.getLimit('plan', model)).inForce.rate))
  return { admin: adminOf(service.url), connection, fleet, setter, other, values }
}

test.each(['the process that set it', 'one that has seen the shape'])('%s restores what was set', async (which) => {
  const { admin, fleet, setter, other, values } = await start()
  await setter.setLimit('plan', 'a', { rate: '50/h' }, { ...WHO, ttlMs: 3_600_000 })
  await setter.setLimit('plan', 'b', { tier: 'pro' }, WHO)
  await setter.setLimit('plan', 'c', { rate: '7/h' }, WHO)
  await setter.clearLimit('plan', 'c', WHO)
  const before = (await other.getLimit('plan', 'a')).overrides
  if (which !== 'the process that set it') await setter.close()
  await admin.flushall()
  const restorer = which === 'the process that set it' ? setter : other
  await restorer.add('job', {}, { keys: { model: 'a' } })
  expect(await values()).toEqual(['50/h', '9/h', '1/h'])
  expect((await other.getLimit('plan', 'a')).overrides).toEqual(before)
  await other.clearLimit('plan', 'a', WHO)
  expect(await values()).toEqual(['1/h', '9/h', '1/h'])
  expect(fleet.losses.length).toBeLessThan(2)
})

test('what another process set meanwhile stays, and what was lifted after an older copy is lifted', async () => {
  const { admin, connection, fleet, setter, other, values } = await start()
  await setter.setLimit('plan', 'a', { rate: '50/h' }, WHO)
  const copy = await admin.dumpBuffer('bull:mail:meta:shape')
  const own = await admin.dumpBuffer('bull:mail:meta:limits:own:plan')
  await setter.clearLimit('plan', 'a', WHO)
  await setter.setLimit('plan', 'b', { rate: '8/h' }, WHO)
  await admin.flushall()
  // A failover to an older copy.
  await admin.restore('bull:mail:meta:shape', 0, copy)
  await admin.restore('bull:mail:meta:limits:own:plan', 0, own)
  await setter.add('job', {}, { keys: { model: 'a' } })
  expect(await values()).toEqual(['1/h', '8/h', '1/h'])
  await admin.flushall()
  const third = fleet.queue('mail', { connection, shape: { limits: [PLAN] } })
  await third.waitUntilReady()
  await third.setLimit('plan', 'b', { rate: '3/h' }, WHO)
  await setter.add('job', {}, { keys: { model: 'a' } })
  expect(await values()).toEqual(['1/h', '3/h', '1/h'])
  await other.close()
})
