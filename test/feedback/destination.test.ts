import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { afterEach, expect, test } from 'vitest'
import { profiles } from '../../src/egress/index.ts'
import type { FeedbackChange } from '../../src/index.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, jobs, Workshop } from '../worker/support.ts'

// A server that goes away and comes back, under a real worker.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

let server: Server | undefined
afterEach(() => down())

/** Not on a port of the kernel's choice: a worker that calls it while it is away could be given that port itself. */
async function up(on?: number): Promise<number> {
  const port = on ?? (await findFreePort())
  server = createServer((request, response) => void answer(request.url as string, () => response.end('ok')))
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return port
}

async function down(): Promise<void> {
  if (!server) return
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  server = undefined
  await closed
}

let answer = (_path: string, end: () => void): void => end()
afterEach(() => {
  answer = (_path, end) => end()
})

const calling = (port: number) => (job: { id?: string }) =>
  fetch(`http://127.0.0.1:${port}/${job.id}`).then(async (response) => {
    await response.text()
    return response.status
  })

test.each([1, 12])('%i jobs outlast a server that is away: no attempt is used up, and none fails', async (count) => {
  const port = await up()
  await down()
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(count))
  const worker = shop.worker(queue, calling(port), { feedback: profiles.http, concurrency: 4, adapt: true })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  const changes = eventsOf<FeedbackChange>('feedback', worker)
  await changes.until((all) => all.filter(({ kind }) => kind === 'pause').length >= 1)
  await up(port)
  await completed.reach(count)
  expect(failed.all).toEqual([])
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual(Array(count).fill(1))
  expect(changes.all[0]).toMatchObject({ kind: 'pause', hard: true, reason: 'no connection (ECONNREFUSED)' })
  expect(changes.all.map(({ kind }) => kind)).toContain('resumed')
  expect((await queue.meter()).rate).toBe('500/s')
})

test('calls that a restart breaks off come again without an attempt, where a job may be tried again', async () => {
  const port = await up()
  const under = gate()
  let calls = 0
  answer = (_path, end) => {
    calls += 1
    if (calls === 4) under.open()
    if (calls > 4) end()
  }
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(3, { attempts: 2, backoff: 1 }))
  await queue.add('once', {})
  const worker = shop.worker(queue, calling(port), { feedback: profiles.http, concurrency: 4 })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await under.opened
  await down()
  await up(port)
  await completed.reach(3)
  await failed.reach(1)
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual([1, 1, 1])
  // The call may have had its effect, and the job was to be tried once.
  expect(failed.all.map(({ name, attemptsMade }) => [name, attemptsMade])).toEqual([['once', 1]])
})
