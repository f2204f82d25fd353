import { afterEach, beforeEach, expect, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { createMetrics, type Metrics, type MetricsServer, startMetricsServer } from '../src/index.ts'
import { readScrape, sample } from './support/scrape.ts'

const { connection, prefix } = useRedis(import.meta.url)
let metrics: Metrics
let server: MetricsServer
beforeEach(async () => {
  metrics = createMetrics({ connection, prefix })
  server = await startMetricsServer({ metrics, port: 0 })
})
afterEach(async () => {
  await server.close()
  await metrics.close()
})

const ask = (path: string, method = 'GET') => fetch(`http://127.0.0.1:${server.port}${path}`, { method })

test('a scrape gets the text of the registry', async () => {
  const answer = await ask('/metrics?module=sluice')
  expect(answer.status).toBe(200)
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  expect(sample(readScrape(await answer.text()), 'sluice_up')).toBe(1)
})

test.each([
  ['GET', '/live', 200],
  ['HEAD', '/metrics', 200],
  ['GET', '/', 404],
  ['POST', '/metrics', 405],
])('%s %s is answered %i', async (method, path, status) => {
  expect((await ask(path, method)).status).toBe(status)
})

test('another metric of the registry that fails is an answer, and nothing more', async () => {
  const { Gauge } = await import('prom-client')
  const collect = () => {
    throw new Error('told to')
  }
  new Gauge({ name: 'broken', help: 'Fails.', registers: [metrics.register], collect })
  const answer = await ask('/metrics')
  expect([answer.status, await answer.text()]).toEqual([500, 'told to\n'])
})

test('a port that is taken is said', async () => {
  await expect(startMetricsServer({ metrics, port: server.port })).rejects.toMatchObject({ code: 'EADDRINUSE' })
})
