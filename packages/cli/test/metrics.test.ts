import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../test/support/concurrent.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { jobs, Workshop } from '../../../test/worker/support.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { readScrape, type Scrape, sample } from '../../metrics/test/support/scrape.ts'
import { type Running, useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const shop = new Workshop(redis)
const sluice = useSluice(redis)

async function urlOf(run: Running): Promise<string> {
  while (!run.stdout.includes('\n')) await Promise.race([once(run.child.stdout, 'data'), failing(run)])
  return run.stdout.replace(/^metrics at /, '').trim()
}

async function failing(run: Running): Promise<never> {
  throw new Error(JSON.stringify(await run.ended))
}

async function scrapeAt(url: string): Promise<Scrape> {
  return readScrape(await (await fetch(url)).text())
}

test('sluice metrics serves the queues that it is told of until it is stopped', async () => {
  const [queue, other] = [shop.queue({ rate: '1/s' }), shop.queue({ rate: '1/s' })]
  await queue.addBulk(jobs(3))
  await other.addBulk(jobs(1))
  const run = sluice.start(['metrics', queue.name, '--port', '0'])
  const url = await urlOf(run)
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/)
  const scrape = await scrapeAt(url)
  expect(sample(scrape, 'sluice_backlog_jobs', { queue: queue.name })).toBe(3)
  expect(sample(scrape, 'sluice_backlog_jobs', { queue: other.name })).toBeUndefined()
  run.child.kill('SIGTERM')
  expect(await run.ended).toMatchObject({ code: 0, stderr: '' })
})

test('it serves while Redis can not be reached, and says so', async () => {
  const host = `127.0.0.1:${await findFreePort()}`
  const REDIS_URL = `redis://user:secret@${host}`
  const run = sluice.start(['metrics', '--port', '0'], { env: { REDIS_URL } })
  expect([...(await scrapeAt(await urlOf(run)))]).toEqual([['sluice_up{}', 0]])
  while (!run.stderr.includes('\n')) await once(run.child.stderr, 'data')
  run.child.kill('SIGINT')
  const why = `cannot use Redis at ${host}: connect ECONNREFUSED ${host}`
  const stderr = `sluice: warning: ${why}; it is tried again, and sluice_up is 0 until then\n`
  expect(await run.ended).toMatchObject({ code: 0, stderr })
})

test('a port that is taken ends it with 1, a wrong option with 2', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const taken = await sluice.run(['metrics', '--port', String(port)])
  expect(taken.code).toBe(1)
  expect(taken.stderr).toMatch(new RegExp(`^sluice: cannot listen on 127\\.0\\.0\\.1:${port}: .*EADDRINUSE.*\n$`))
  expect(await sluice.run(['metrics', '--port', '70000'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('expected a whole number from 0 to 65535'),
  })
})
