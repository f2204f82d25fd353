import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { Inspector } from '../../src/inspect/index.ts'
import { infoFields, readRedisState } from '../../src/inspect/redis-state.ts'
import { startRedis } from '../../workers/services/redis.ts'
import { fakeCluster } from '../support/fake-cluster.ts'

/** INFO of a master as it should be, with some fields otherwise. */
function stateOf(fields: Readonly<Record<string, string | number>>) {
  const usual = { redis_version: '7.4.1', used_memory: 900, maxmemory: 1000, maxmemory_policy: 'noeviction' }
  const info = { ...usual, aof_enabled: 1, aof_last_write_status: 'ok', role: 'master', ...fields }
  const lines = Object.entries(info).map(([name, value]) => `${name}:${value}`)
  return readRedisState(infoFields(['# Server', ...lines, ''].join('\r\n')))
}

test('what is read of a master', () => {
  expect(stateOf({ slave0: 'ip=10.0.0.7,port=7000,state=online,offset=14,lag=3' })).toEqual({
    role: 'master',
    version: 'Redis 7.4.1',
    memory: { usedBytes: 900, maxBytes: 1000, policy: 'noeviction' },
    replicas: [{ address: '10.0.0.7:7000', state: 'online', lagMs: 3000 }],
  })
  expect(stateOf({ valkey_version: '8.1.0' }).version).toBe('Valkey 8.1.0')
  expect(stateOf({ maxmemory: 0 }).memory).toEqual({ usedBytes: 900, policy: 'noeviction' })
})

test.each([
  ['the memory is full', { used_memory: 1000 }, 'memory'],
  ['buffers do not count', { used_memory: 1100, mem_not_counted_for_evict: 200 }, undefined],
  ['keys are evicted instead', { used_memory: 1100, maxmemory_policy: 'allkeys-lru' }, undefined],
  ['the log cannot be written', { aof_last_write_status: 'err' }, 'disk'],
  ['no log is kept', { aof_enabled: 0, aof_last_write_status: 'err' }, undefined],
  ['too few replicas', { min_slaves_good_slaves: 0 }, 'replicas'],
  ['enough replicas', { min_slaves_good_slaves: 1 }, undefined],
  ['a replica refuses whatever it has', { role: 'slave', used_memory: 2000 }, undefined],
] as const)('writes are refused: %s', (_, fields, cause) => {
  expect(stateOf(fields).refusesWrites).toBe(cause)
})

test('a full Redis says so, also as a master of a cluster beside one that does not answer', async () => {
  const service = await startRedis({ ignoreGiven: true })
  const admin = new Redis(service.url)
  const inspector = new Inspector({ connection: { url: service.url } as never })
  onTestFinished(async () => {
    await inspector.close()
    admin.disconnect()
    await service.stop()
  })
  expect(await inspector.redisState()).toMatchObject({
    role: 'master',
    version: expect.stringMatching(/^(Redis|Valkey) \d+\.\d+/),
  })
  await admin.config('SET', 'maxmemory', '1')
  const full = { role: 'master', memory: { maxBytes: 1, policy: 'noeviction' }, refusesWrites: 'memory' }
  expect(await inspector.redisState()).toMatchObject(full)
  const away = { call: async () => Promise.reject(new Error('Connection is closed.')) }
  const roomy = { call: async () => 'role:master\r\nused_memory:1\r\nmaxmemory:100\r\n' }
  const { client } = fakeCluster(admin, new Set(), { nodes: [away, roomy, admin] })
  expect(await new Inspector({ connection: client }).redisState()).toMatchObject(full)
  const alone = fakeCluster(admin, new Set(), { nodes: [away] })
  expect(await new Inspector({ connection: alone.client }).redisState()).toEqual({ role: 'master' })
})
