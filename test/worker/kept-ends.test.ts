import { expect, onTestFinished, test, vi } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

test.each([
  ['a job that is kept needs no memory of its end', undefined, 0],
  ['the end of a job that is not kept is remembered apart', true, 3],
])('%s', async (_name, removeOnComplete, remembered) => {
  const queue = shop.queue({ capacity: 100 })
  const worker = shop.worker(queue, async () => {}, { concurrency: 1 })
  const completed = eventsOf('completed', worker)
  await queue.addBulk(jobs(3).map((job) => ({ ...job, opts: removeOnComplete ? { removeOnComplete } : {} })))
  await completed.reach(3)
  const keys = await client.keys(`${queue.toKey('meta:ended:')}*`)
  const ids = await Promise.all(keys.map((key) => client.hkeys(key)))
  expect(new Set(ids.flat()).size).toBe(remembered)
  for (const key of keys) expect(await client.pttl(key)).toBeGreaterThan(0)
})

test('a worker with shorter locks shortens no memory of the others', async () => {
  const queue = shop.queue({ capacity: 100 })
  const now = Date.now()
  const clock = vi.spyOn(Date, 'now').mockReturnValue(now)
  onTestFinished(() => clock.mockRestore())
  for (const lockDuration of [30_000, 1000]) {
    const worker = shop.worker(queue, async () => {}, { lockDuration })
    const completed = eventsOf('completed', worker)
    await queue.add('job', {}, { removeOnComplete: true })
    await completed.reach(1)
    await worker.close()
  }
  const [key] = await client.keys(`${queue.toKey('meta:ended:')}*`)
  expect(await client.hlen(key as string)).toBe(2)
  expect(await client.pttl(key as string)).toBeGreaterThan(20_000)
})
