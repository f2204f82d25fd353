import { expect, test } from 'vitest'
import { connectionOptions, useRedis } from '../../../../test/support/redis.ts'
import { startCountingProxy } from './counting-proxy.ts'
import { readEvents } from './event-reader.ts'
import { serve, shapedQueue } from './support.ts'

const redis = useRedis(import.meta.url)
const QUEUES = 30
const SECONDS = 5
const MAX_PER_SECOND = 20

test(`${QUEUES} queues and 40 pages: at most ${MAX_PER_SECOND} round trips a second, and none when all have gone`, async () => {
  const names = Array.from({ length: QUEUES }, (_, i) => `queue-${i}`)
  for (const name of names) await shapedQueue(redis, name)
  const { host, port } = connectionOptions(redis.url)
  const proxy = await startCountingProxy({ host, port })
  const connection = { ...redis.connection, host: '127.0.0.1', port: proxy.port }
  const { url, get } = await serve({ connection, prefix: redis.prefix })
  expect((await get('api/fleet')).status).toBe(200)

  const before = [proxy.roundTrips(), performance.now()] as const
  const watched = [...names, ...names.slice(0, 10)]
  const pages = await Promise.all(watched.map((name) => readEvents(`${url}api/events?queue=${name}`)))
  // Each page takes everything; the first one counts the seconds.
  const others = pages.slice(1).map(async (page) => {
    while ((await page.next('queue')) !== undefined) {}
  })
  for (let i = 0; i <= SECONDS; i++) expect((await pages[0]?.next('queue'))?.data.status.name).toBe('queue-0')
  const seconds = (performance.now() - before[1]) / 1000
  const perSecond = (proxy.roundTrips() - before[0]) / seconds
  expect(seconds).toBeGreaterThan(SECONDS - 1)
  expect(perSecond).toBeGreaterThan(1)
  expect(perSecond).toBeLessThanOrEqual(MAX_PER_SECOND)

  for (const page of pages) page.close()
  await Promise.all(others)
  await expect.poll(async () => grown(proxy.roundTrips), { interval: 1500 }).toBe(0)
})

test('pages that open at once read once', async () => {
  await shapedQueue(redis, 'shared')
  const { host, port } = connectionOptions(redis.url)
  const proxy = await startCountingProxy({ host, port })
  const connection = { ...redis.connection, host: '127.0.0.1', port: proxy.port }
  const { get } = await serve({ connection, prefix: redis.prefix })
  await get('api/fleet')
  const before = proxy.roundTrips()
  const paths = ['fleet', 'queues/shared', 'queues/shared/jobs', 'queues/shared/series']
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => get(`api/${paths[i % paths.length]}`)))
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(proxy.roundTrips() - before).toBeLessThanOrEqual(20)
})

let last = -1
/** How much a count has grown since the call before. */
function grown(count: () => number): number {
  const growth = count() - last
  last = count()
  return growth
}
