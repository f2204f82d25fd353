import type { Redis } from 'ioredis'
import { Redis as Client } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { HeldQueue } from './held-queue.ts'

// A separate Redis, since the commands of the whole server are counted.
let service: RedisService
let client: Redis
let queue: HeldQueue

beforeAll(async () => {
  service = await startRedis()
  client = new Client(service.url)
  const { host, port } = service
  queue = new HeldQueue({ prefix: 'commands', connection: { host, port, maxRetriesPerRequest: null } }, client, 'jobs')
})

afterAll(async () => {
  await queue.close()
  client.disconnect()
  await service.stop()
})

const SHAPE = { rate: '1000/s', burst: 5, capacity: 200_000 }

/** How often each command ran, including inside scripts, but for the PING that a connection is asked with now and then. */
async function countCommands(run: () => Promise<unknown>): Promise<Record<string, number>> {
  await client.config('RESETSTAT')
  await run()
  const info = await client.info('commandstats')
  const calls = [...info.matchAll(/cmdstat_(\S+):calls=(\d+)/g)].map(([, name, count]) => [name, Number(count)])
  const {
    info: _info,
    config: _config,
    'config|resetstat': _reset,
    ping: _ping,
    ...counted
  } = Object.fromEntries(calls)
  return counted
}

async function fill(jobs: number): Promise<void> {
  await queue.reset(SHAPE)
  for (let added = 0; added < jobs; added += 5000) {
    await queue.queue.addBulk(Array.from({ length: Math.min(5000, jobs - added) }, () => ({ name: 'job', data: {} })))
  }
  // The very first calls also send the scripts, and record that the queue is metered.
  await queue.depart(1)
  await queue.add()
}

test('a call runs the same Redis commands, whether 100 jobs wait or 100,000', { timeout: 600_000 }, async () => {
  const measure = async () => ({
    depart: await countCommands(() => queue.depart(4, 50_000)),
    refused: await countCommands(() => queue.depart(4)),
    admission: await countCommands(() => queue.add()),
  })
  // A full queue that drops a job for each new one.
  const measureDrop = async () => {
    const dropping = { capacity: await queue.queue.count(), overflow: 'drop-oldest', maxWaitMs: 3_600_000 }
    await queue.backend.store.override(dropping, 'test', 'full', undefined)
    // The very first change and the very first drop run more commands.
    await queue.add()
    return countCommands(() => queue.add())
  }
  await fill(100)
  const few = await measure()
  const fewDropped = await measureDrop()
  await fill(100_000)
  expect(await measure()).toEqual(few)
  expect(few.depart.rpoplpush).toBeGreaterThan(1)
  expect(await measureDrop()).toEqual(fewDropped)
  expect(fewDropped.lrem).toBe(1)
})
