import { RedisConnection } from 'bullmq'
import { afterEach, expect, test, vi } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
afterEach(() => void vi.restoreAllMocks())

/** What BullMQ asks each new connection. */
interface Asking {
  readonly extraOptions: { readonly blocking: boolean }
  getRedisVersionAndType(): Promise<unknown>
}

/** The blocking connection of the next worker gets this answer to the first questions of BullMQ. */
function failQuestions(message: string, times = 1): { readonly count: number; serve(): void } {
  const asked = {
    count: 0,
    serve: () => {
      times = 0
    },
  }
  const asking = RedisConnection.prototype as unknown as Asking
  const ask = asking.getRedisVersionAndType
  vi.spyOn(asking, 'getRedisVersionAndType').mockImplementation(async function (this: Asking) {
    if (this.extraOptions.blocking && ++asked.count <= times) throw new Error(message)
    return ask.call(this)
  })
  return asked
}

test.each([
  'Too many Cluster redirections. Last error: Error: Connection is closed.',
  'CLUSTERDOWN The cluster is down',
])('a worker whose second connection was not served at first (%s) stores what succeeds', async (message) => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const asked = failQuestions(message)
  const worker = shop.worker(queue, async () => 'done')
  const errors = eventsOf<Error>('error', worker)
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await queue.add('job', {})
  await vi.waitFor(() => expect(completed.all.length + failed.all.length).toBe(1), 60_000)
  expect(failed.all).toEqual([])
  expect(errors.all).toMatchObject([{ message }])
  expect(asked.count).toBe(2)
})

test('while its second connection is not served, a worker keeps the locks of jobs whose work is done', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const asked = failQuestions('CLUSTERDOWN The cluster is down', Number.POSITIVE_INFINITY)
  const worker = shop.worker(queue, async () => 'done', { lockDuration: 20_000, lockRenewTime: 100 })
  worker.on('error', () => {})
  const completed = eventsOf('completed', worker)
  const renewals: string[] = []
  worker.on('locksRenewed', ({ jobIds }) => renewals.push(...jobIds))
  const { id } = await queue.add('job', {})
  await vi.waitFor(() => expect(renewals.filter((renewed) => renewed === id).length).toBeGreaterThan(2), 60_000)
  expect(completed.all).toEqual([])
  asked.serve()
  await vi.waitFor(() => expect(completed.all).toHaveLength(1), 60_000)
})

test('a worker closes while its second connection is not served', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const asked = failQuestions('CLUSTERDOWN The cluster is down', Number.POSITIVE_INFINITY)
  const worker = shop.worker(queue, async () => 'done')
  worker.on('error', () => {})
  await vi.waitFor(() => expect(asked.count).toBeGreaterThan(1), 60_000)
  await worker.close().catch((error: Error) => expect(error.message).toMatch('CLUSTERDOWN'))
})
