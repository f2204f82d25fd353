import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { Inspector, type QueueStatus, type RedisState } from '../../src/inspect/index.ts'
import { redisConditions } from '../../src/inspect/redis-conditions.ts'
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

test('what of Redis needs a look, in the words of the page, with the next command', () => {
  const memory = (usedMb: number) => ({ usedBytes: usedMb * 2 ** 20, maxBytes: 64 * 2 ** 20 })
  const replica = (state: string, lagMs: number) => ({ address: 'h:1', state, lagMs })
  const textsOf = (state: Partial<RedisState>, queues: readonly QueueStatus[] = []) =>
    redisConditions({ role: 'master', ...state }, queues).map(({ name, level, text }) => `${level} ${name}: ${text}`)
  expect(textsOf({ memory: memory(57), replicas: [replica('online', 4000)] })).toEqual([])
  expect(textsOf({ memory: { usedBytes: 2 ** 40 } })).toEqual([])
  expect(textsOf({ memory: memory(58) })).toEqual([
    'warning Memory: 90 % of 64 MB is used: when it is full, jobs are refused',
  ])
  expect(textsOf({ memory: memory(64), refusesWrites: 'memory' })).toEqual([
    'error Writes refused: its memory is full (100 % of 64 MB): no job can be added',
  ])
  expect(textsOf({ refusesWrites: 'disk' })).toEqual(['error Writes refused: its disk fails: no job can be added'])
  expect(textsOf({ replicas: [replica('online', 9000), replica('wait_bgsave', 0)] })).toEqual([
    'warning Replicas: 1 replica not in step, one was last heard from 9s ago: a failover would lose what it has not received',
  ])
  const at = new Date('2026-03-01T17:30:00Z')
  const queue = (ms: number) => ({ at, samplesDeletedAt: new Date(at.getTime() - ms) }) as QueueStatus
  expect(textsOf({}, [queue(600_000), queue(300_000)])).toEqual([
    'warning Samples deleted: at 2026-03-01T17:25:00.000Z to free memory: earlier points of the charts are two minutes apart',
  ])
  expect(textsOf({}, [queue(90_000_000)])).toEqual([])
  expect(redisConditions({ role: 'master', refusesWrites: 'disk' }, [])).toMatchObject([
    { next: 'sluice doctor says what to do' },
  ])
})
