import type { QueueStatus, RedisState } from 'sluice/inspect'
import { expect, test } from 'vitest'
import { redisConditions } from '../src/redis-conditions.ts'

test('what of Redis needs a look, in the words of the page, with the next command', () => {
  const memory = (usedMb: number) => ({ usedBytes: usedMb * 2 ** 20, maxBytes: 64 * 2 ** 20 })
  const replica = (state: string, lagMs: number) => ({ address: 'h:1', state, lagMs })
  const textsOf = (state: Partial<RedisState>, queues: readonly QueueStatus[] = []) =>
    redisConditions({ role: 'master', ...state }, queues).map(({ name, level, text }) => `${level} ${name}: ${text}`)
  expect(textsOf({ memory: memory(57), replicas: [replica('online', 4000)] })).toEqual([])
  expect(textsOf({ memory: { usedBytes: 2 ** 40 } })).toEqual([])
  expect(textsOf({ memory: memory(58) })).toEqual([
    'warning Memory: 90% of 64 MB is used: when it is full, jobs are refused',
  ])
  expect(textsOf({ memory: memory(64), refusesWrites: 'memory' })).toEqual([
    'error Writes refused: its memory is full (100% of 64 MB): no job can be added',
  ])
  expect(textsOf({ refusesWrites: 'disk' })).toEqual(['error Writes refused: its disk fails: no job can be added'])
  expect(textsOf({ replicas: [replica('online', 9000), replica('wait_bgsave', 0)] })).toEqual([
    'warning Replicas: 1 replica not in sync, one was last heard from 9s ago: a failover would lose what it has not received',
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
