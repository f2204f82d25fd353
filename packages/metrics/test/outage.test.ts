import { Queue } from 'bullmq'
import { afterEach, expect, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { quickConnection, startOwnRedis } from '../../../test/faults/support/own-redis.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { createMetrics, type Metrics } from '../src/index.ts'
import { readScrape, type Scrape, sample } from './support/scrape.ts'

const open: { close(): Promise<unknown> }[] = []
afterEach(async () => {
  for (const one of open.splice(0)) await one.close()
})

function keep<T extends { close(): Promise<unknown> }>(one: T): T {
  open.unshift(one)
  return one
}

async function scrapeOf(metrics: Metrics): Promise<Scrape> {
  return readScrape(await metrics.text())
}

test('a scrape while Redis is away tells what was known, and the next one after it is back', async () => {
  const redis = await startOwnRedis()
  const connection = quickConnection(redis.url)
  const queue = keep(new ShapedQueue('emails', { connection, shape: { rate: '100/s', capacity: 5 } }))
  queue.on('error', () => {})
  await queue.addBulk(['a', 'b', 'c'].map((name) => ({ name, data: {} })))
  const metrics = keep(createMetrics({ connection, queues: ['emails'], timeoutMs: 3000 }))
  const before = await scrapeOf(metrics)
  expect(sample(before, 'sluice_up')).toBe(1)
  expect(sample(before, 'sluice_backlog_jobs', { queue: 'emails' })).toBe(3)

  await redis.kill()
  const away = await scrapeOf(metrics)
  expect(away.get('sluice_up{}')).toBe(0)
  expect(new Map([...away].filter(([series]) => series !== 'sluice_up{}'))).toEqual(
    new Map([...before].filter(([series]) => series !== 'sluice_up{}')),
  )

  await redis.restart()
  await expect.poll(async () => sample(await scrapeOf(metrics), 'sluice_up')).toBe(1)
})

test('a Redis that never answered leaves nothing but sluice_up 0', async () => {
  const connection = quickConnection(`redis://127.0.0.1:${await findFreePort()}`)
  const metrics = keep(createMetrics({ connection, timeoutMs: 100 }))
  const scrapes = await Promise.all([scrapeOf(metrics), scrapeOf(metrics)])
  for (const scrape of scrapes) expect([...scrape]).toEqual([['sluice_up{}', 0]])
})

test('what a queue is not harms no other: a name that no queue has is left out', async () => {
  const redis = await startOwnRedis()
  const connection = quickConnection(redis.url)
  const stock = keep(new Queue('stock', { connection }))
  await stock.add('job', {})
  const scrape = await scrapeOf(keep(createMetrics({ connection, queues: ['stock', 'nobody'] })))
  expect(sample(scrape, 'sluice_up')).toBe(1)
  expect(sample(scrape, 'sluice_jobs', { queue: 'stock', state: 'waiting' })).toBe(1)
  expect(sample(scrape, 'sluice_backlog_jobs', { queue: 'nobody' })).toBeUndefined()
})
