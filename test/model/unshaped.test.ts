import { expect, test } from 'vitest'
import { type Shape, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { unshaped } from '../../src/testing/index.ts'
import { useRedis } from '../support/redis.ts'

const { connection, prefix } = useRedis(import.meta.url)

test('unshaped() switches the shape of a queue and its worker off', async () => {
  const shaped = { connection, prefix, shape: { rate: '1/day', capacity: 1 } }
  const declared = new ShapedQueue('jobs', shaped)
  await declared.waitUntilReady()
  const queue = new ShapedQueue('jobs', { connection, prefix, ...unshaped(shaped.shape) })
  let worker: ShapedWorker | undefined
  try {
    for (let i = 0; i < 20; i++) await queue.add('job', { i })

    const finished = new Promise<void>((resolve) => {
      let count = 0
      worker = new ShapedWorker('jobs', async () => {}, {
        connection,
        prefix,
        concurrency: 5,
        ...unshaped(shaped.shape),
      })
      worker.on('completed', () => {
        count += 1
        if (count === 20) resolve()
      })
    })
    await finished
    expect((await queue.getShape())?.mode).toBe('off')
  } finally {
    await Promise.all([worker?.close(), queue.close(), declared.close()])
  }
})

test('unshaped(shape) keeps what jobs of the code under test name: groups, units and costs', async () => {
  const shape: Shape = {
    ...{ rate: '1/day', burst: 9, capacity: 1, durability: { replicas: 2 } },
    groups: { rate: '1/day', concurrency: 1, capacity: 1 },
    limits: [{ name: 'tokens', unit: 'tokens', rate: '1/day', burst: 900 }],
  }
  const queue = new ShapedQueue('grouped', { connection, prefix, ...unshaped(shape) })
  const settled: boolean[] = []
  const worker = new ShapedWorker<object, string>(
    'grouped',
    async (job) => {
      await job.settleCost({ tokens: 10 })
      return job.name
    },
    { connection, prefix, concurrency: 4, ...unshaped(shape) },
  )
  worker.on('completed', () => settled.push(true))
  try {
    const opts = { group: { id: 'acme' }, cost: 5, costs: { tokens: 400 } }
    await queue.addBulk(Array.from({ length: 4 }, () => ({ name: 'job', data: {}, opts })))
    await expect.poll(() => settled.length, { timeout: 60_000 }).toBe(4)
    await queue.pauseGroup('acme', { by: 'test', reason: 'is known' })
    expect((await queue.getShape())?.groups).toEqual(shape.groups)
  } finally {
    await Promise.all([worker.close(), queue.close()])
  }
})
