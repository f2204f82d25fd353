import { expect, test } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { unshaped } from '../../src/testing/index.ts'
import { useRedis } from '../support/redis.ts'

const { connection, prefix } = useRedis(import.meta.url)

test('unshaped() switches the shape of a queue and its worker off', async () => {
  const shaped = { connection, prefix, shape: { rate: '1/day', capacity: 1 } }
  const declared = new ShapedQueue('jobs', shaped)
  await declared.waitUntilReady()
  const queue = new ShapedQueue('jobs', { ...shaped, ...unshaped() })
  let worker: ShapedWorker | undefined
  try {
    for (let i = 0; i < 20; i++) await queue.add('job', { i })

    const finished = new Promise<void>((resolve) => {
      let count = 0
      worker = new ShapedWorker('jobs', async () => {}, { ...shaped, concurrency: 5, ...unshaped() })
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
