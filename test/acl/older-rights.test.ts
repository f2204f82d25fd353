import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { useAclRedis } from './support.ts'

const redis = useAclRedis()

test('jobs of groups are added in bulk with the rights of 0.1.0, which lack ZMSCORE', async () => {
  await redis.admin.call('ACL', 'SETUSER', 'sluice-producer', '-zmscore')
  const shape = { groups: {} }
  const queue = new ShapedQueue('older', { connection: redis.connection('producer'), prefix: redis.prefix, shape })
  onTestFinished(() => queue.close())
  const bulk = ['a', 'b', 'a'].map((id) => ({ name: 'job', data: {}, opts: { group: { id } } }))
  await queue.addBulk(bulk)
  await queue.addBulk(bulk)
  expect(await Promise.all(['a', 'b'].map((id) => queue.getGroupJobsCount(id)))).toEqual([4, 2])
})
