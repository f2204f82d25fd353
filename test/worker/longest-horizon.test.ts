import { expect, onTestFinished, test, vi } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

test('a worker passes on the longest horizon that it knows of, for the time after a loss', async () => {
  const { connection, prefix } = redis
  const queue = new ShapedQueue('mail', { connection, prefix, shape: { rate: '1000/s' } })
  onTestFinished(() => queue.close())
  await queue.add('job', {})
  const worker = new ShapedWorker('mail', async () => {}, { connection, prefix, autorun: false })
  onTestFinished(() => worker.close())
  const { backend } = worker
  const asks = vi.spyOn(backend, 'depart')
  const distant = { jobs: 1, horizonUs: 700_000, workerId: 'distant', allowUnshaped: false }
  await backend.depart('token', undefined, distant)
  const known = () => asks.mock.calls.map(([, , request]) => request).filter(({ workerId }) => workerId !== 'distant')

  void worker.run()
  await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'job', data: {} })))

  await expect.poll(() => known().some((request) => request.longestHorizonUs === 700_000), { interval: 5 }).toBe(true)
  expect(known().every(({ horizonUs }) => horizonUs < 700_000)).toBe(true)
})
