import { expect, test, vi } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { ShardShop } from '../../../test/sharding/support/shop.ts'
import { onTestFinished } from '../../../test/support/concurrent.ts'
import { startProxy } from '../../../test/support/proxy.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'
import { useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const sluice = useSluice(redis)
const SHAPE = { rate: '600/s', burst: 6, capacity: 90, groups: {} } as const
const move = (from: string, to: string, ...more: string[]) => ['shards', 'move', from, to, '--reason', 'more', ...more]

test('shards move: says what it waits for, what it carried over and where the rest is, and removes the old queue', async () => {
  const shop = new ShardShop({ connection, prefix })
  const old = shop.queue('old', { shards: 2, shape: SHAPE })
  const renewed = shop.queue('new', { shards: 3, shape: SHAPE })
  await Promise.all([old.waitUntilReady(), renewed.waitUntilReady()])
  await (await old.queueOfGroup('a')).setGroup('a', { weight: 2 }, { by: 'ops', reason: 'enterprise' })
  const toAdd = [1, 2].map((n) => ({ name: 'job', data: { n }, opts: { group: { id: 'a' } } }))
  // The shard takes both or none: until it has been leased places for them, it has one.
  await vi.waitFor(() => old.addBulk(toAdd), 60_000)
  const late = await runHere(redis, move('old', 'new', '--timeout', '1ms'))
  expect(late).toMatchObject({ code: 1, stdout: '' })
  expect(late.stderr).toMatch(/^sluice: queue "old" is not moved in time: .*repeat the move/)
  const running = sluice.start(move('old', 'new'))
  await expect
    .poll(() => running.stderr, { timeout: 60_000 })
    .toMatch(
      /^new is paused: switch the producers of old to it\nold: 2 waiting, 0 delayed, 0 running; shards.*no live worker/,
    )
  const process = async ({ data }: { data: { n: number } }) => {
    if (data.n === 2) throw new Error('refused')
  }
  const worker = shop.worker('old', process, { shards: 2, concurrency: 4, shape: SHAPE, deadLetter: 'dead' })
  const done = await running.ended
  expect(done).toMatchObject({ code: 0 })
  expect(done.stderr).toContain('old is empty; 10ms until its last departures no longer count')
  expect(done.stdout).toContain('new is resumed\n')
  expect(done.stdout).toMatch(/1 dead letter in dead, --prefix '\{.*:old:\d-\d+\}'/)
  const refused = await runHere(redis, move('old', 'new', '--obliterate'))
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('has 1 worker: expected none') })
  await worker.close()
  const gone = await jsonHere(redis, move('old', 'new', '--obliterate'))
  expect(gone).toMatchObject({ from: 'old', to: 'new', resumed: true, obliterated: true })
  await renewed.obliterate({ force: true })
})

test('shards move: queues that are not sharded, or do not exist', async () => {
  const plain = new ShapedQueue('plain', { connection, prefix, shape: SHAPE })
  onTestFinished(() => plain.close())
  await plain.add('job', {})
  const sharded = await runHere(redis, move('plain', 'none'))
  expect(sharded).toMatchObject({ code: 2, stderr: 'sluice: queue "plain" has no shards: expected a sharded queue\n' })
  expect(await runHere(redis, move('none', 'plain'))).toMatchObject({ code: 4 })
})

test('shards move: waits for Redis, and does not count what it cannot see', async () => {
  const shop = new ShardShop({ connection, prefix })
  const old = shop.queue('away-old', { shards: 1, shape: SHAPE })
  const renewed = shop.queue('away-new', { shards: 2, shape: SHAPE })
  await Promise.all([old.waitUntilReady(), renewed.waitUntilReady()])
  await old.add('job', {})
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const running = sluice.start(move('away-old', 'away-new'), { env: { REDIS_URL: proxy.url } })
  await expect.poll(() => running.stderr).toContain('away-old: 1 waiting')
  await proxy.refuse()
  await expect.poll(() => running.stderr).toContain('\naway-old: Redis does not answer, or refuses to; trying again\n')
  await proxy.resume()
  await old.each[0]?.drain()
  expect(await running.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('away-new is resumed\n') })
  for (const queue of [old, renewed]) await queue.obliterate({ force: true })
})
