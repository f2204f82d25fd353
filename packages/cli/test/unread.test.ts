import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { Inspector } from '../../../src/inspect/index.ts'
import { headPrefix } from '../../../src/redis/shards.ts'
import { ShardShop } from '../../../test/sharding/support/shop.ts'
import { fakeCluster } from '../../../test/support/fake-cluster.ts'
import { useRedis } from '../../../test/support/redis.ts'
import type { Cli } from '../src/cli.ts'
import { existingStatus, existingWithShape } from '../src/existing-queue.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const SHAPE = { rate: '600/s', burst: 6, capacity: 90 } as const

/** The command line on a cluster without the nodes of the keys that begin so. */
function cliWithout(away: string): Cli {
  const inspector = new Inspector({ connection: fakeCluster(redis.client(), new Set([away])).client, prefix })
  return { inspector: () => inspector, options: { prefix } } as unknown as Cli
}

test('a queue whose node does not answer is not taken for an empty one', async () => {
  const queue = new ShapedQueue('mails', { connection, prefix, shape: SHAPE })
  onTestFinished(() => queue.close())
  await queue.add('job', {})
  const message = 'cannot read queue "mails": its node of Redis did not answer'
  await expect(existingStatus(cliWithout(`${prefix}:mails:`), 'mails')).rejects.toMatchObject({ exitCode: 3, message })
  expect(await existingStatus(cliWithout('none'), 'mails')).toMatchObject({ depth: 1 })
})

test('a sharded queue without its head has a state, but no shape that a command may go by', async () => {
  const queue = new ShardShop({ connection, prefix }).queue('parts', { shards: 2, shape: SHAPE })
  onTestFinished(() => queue.obliterate({ force: true }))
  await queue.add('job', {})
  const cli = cliWithout(headPrefix(prefix, 'parts'))
  expect(await existingStatus(cli, 'parts')).toMatchObject({ depth: 1, unread: ['head'] })
  await expect(existingWithShape(cli, 'parts')).rejects.toMatchObject({
    ...{ exitCode: 3, message: 'cannot read the head of queue "parts": its node of Redis did not answer' },
  })
})
