import { expect, test } from 'vitest'
import { ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, gate, Workshop } from '../worker/support.ts'

// A parent whose last child has ended waits at the head of its group, as BullMQ puts it at the head of its queue.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const of = (id: string) => ({ group: { id } })
const inGroup = async (queue: ShapedQueue, id: string) => (await queue.getGroupJobs(id, 0, 99)).map(({ name }) => name)

/** A queue with a parent that waits for a child that is not known to have ended, and a job before it in its group. */
async function withParent(): Promise<{ queue: ShapedQueue; child: object }> {
  const queue = shop.queue({ groups: {} })
  await queue.add('first', {}, of('p'))
  const base = queue.toKey('')
  await client.hset(`${base}child`, { name: 'child', data: '{}', opts: '{}', returnvalue: '1' })
  await client.zadd(`${base}completed`, 1, 'child')
  await client.hset(`${base}parent`, { name: 'parent', data: '{}', opts: JSON.stringify(of('p')) })
  await client.zadd(`${base}waiting-children`, 1, 'parent')
  return { queue, child: { jobId: 'child', parent: { id: 'parent', queue: queue.qualifiedName } } }
}

const job = (name: string, opts: object) => ({ name, data: {}, opts })

test.each<[string, (queue: ShapedQueue, child: object) => Promise<unknown>]>([
  ['an add', (queue, child) => queue.add('child', {}, { ...child, ...of('c') })],
  ['a bulk', (queue, child) => queue.addBulk([job('more', of('p')), job('child', { ...child, ...of('c') })])],
  [
    'a bulk with priorities',
    (queue, child) => {
      const ranked = { group: { id: 'c', priority: 3 } }
      return queue.addBulk([job('more', of('p')), job('other', ranked), job('child', { ...child, ...ranked })])
    },
  ],
  [
    'adds at once',
    (queue, child) =>
      Promise.all([
        ...Array.from({ length: 9 }, () => queue.add('more', {}, of('p'))),
        queue.add('child', {}, { ...child, ...of('c') }),
      ]),
  ],
])('%s of a child that has ended already releases it to the head', async (_what, add) => {
  const { queue, child } = await withParent()
  await add(queue, child)
  expect((await inGroup(queue, 'p')).slice(0, 2)).toEqual(['parent', 'first'])
  expect(await queue.getGroupJobsCount('c').then((count) => count < 2)).toBe(true)
  expect(await queue.getJobCountByTypes('wait')).toBe(0)
})

test.each([1, 10])('%i children that end together release them to the head', async (count) => {
  const queue = shop.queue({ groups: {} })
  await queue.waitUntilReady()
  const flows = shop.keep(new ShapedFlowProducer({ connection: shop.connection, prefix: shop.prefix }))
  const tree = (i: number) => ({
    ...{ name: `parent${i}`, queueName: queue.name, data: {}, opts: of('p') },
    children: [{ name: 'child', queueName: queue.name, data: {}, opts: of('c') }],
  })
  await flows.addBulk(Array.from({ length: count }, (_, i) => tree(i)))
  await queue.pauseGroup('p', { by: 'test', reason: 'test' })
  await queue.add('first', {}, of('p'))
  const ended = gate()
  const worker = shop.worker(queue, () => ended.opened, { concurrency: count })
  await departuresOf(worker).reach(count)
  ended.open()
  await expect.poll(() => queue.getGroupJobsCount('p')).toBe(count + 1)
  // The last one that was released is the first, as in BullMQ.
  const parents = Array.from({ length: count }, (_, i) => `parent${i}`)
  expect(await inGroup(queue, 'p')).toEqual([...parents.toReversed(), 'first'])
})
