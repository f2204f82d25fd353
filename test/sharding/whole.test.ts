import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { Inspector, type QueueStatus } from '../../src/inspect/index.ts'
import { wholeGroups, wholeStatus } from '../../src/inspect/whole.ts'
import { useRedis } from '../support/redis.ts'

const { connection, prefix } = useRedis(import.meta.url)

test('the rate of the whole is what feedback leaves its shards', async () => {
  const queue = new ShapedQueue('plain', { connection, prefix, shape: { rate: '900/s' } })
  await queue.waitUntilReady()
  const inspector = new Inspector({ connection, prefix })
  onTestFinished(() => inspector.close())
  const [status] = (await inspector.status(['plain'])) as [QueueStatus]
  const shard = (rate: string, cause: QueueStatus['cause'] = 'override') => ({ ...status, rate, cause })
  expect(wholeStatus(status, [shard('299.9/s'), shard('600/s')]).rate).toBe('900/s')
  const slowed = wholeStatus(status, [shard('30/min', 'feedback'), shard('600/s')])
  expect(slowed).toMatchObject({ rate: '600.5/s', cause: 'feedback' })
  const unpaced = { ...status, rate: undefined }
  expect(wholeStatus(unpaced, [shard('1/s', 'feedback'), unpaced]).rate).toBeUndefined()
  await queue.obliterate({ force: true })
  await queue.close()
})

test('of the groups that are held, as many of each kind as were asked for', () => {
  const row = (id: string, status: string) => ({ id, status, waiting: 1, headAgeMs: 1 })
  const view = (shard: number) => ({
    ...{ at: new Date(0), waiting: 3, oldest: [], largest: [] },
    counts: { waiting: 0, limited: 2, maxed: 0, paused: 1 },
    held: [row(`a${shard}`, 'limited'), row(`b${shard}`, 'limited'), row(`c${shard}`, 'paused')],
  })
  const whole = wholeGroups([view(0), view(1), view(2)] as never, 2)
  expect(whole?.held.map(({ id }) => id)).toEqual(['a0', 'b0', 'c0', 'c1'])
  expect(whole?.counts).toMatchObject({ limited: 6, paused: 3 })
})
