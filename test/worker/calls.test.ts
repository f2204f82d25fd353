import { Redis } from 'ioredis'
import { afterEach, beforeEach, test as testAlone } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { expect, PerTest, test, useConcurrentTests } from '../support/concurrent.ts'
import { asksUntil, callsOf, eventsOf, jobs } from './support.ts'

useConcurrentTests()

interface Place {
  readonly service: RedisService
  readonly admin: Redis
  readonly open: { close(): Promise<unknown> }[]
}

// A server for each test: what is counted is what that test sends.
const places = new PerTest<Place>()
const here = () => places.list[0] as Place

beforeEach(async () => {
  const service = await startRedis({ ignoreGiven: true })
  places.list.push({ service, admin: new Redis(service.url), open: [] })
})

afterEach(async () => {
  const [{ service, admin, open }] = places.list.splice(0) as [Place]
  for (const thing of open.reverse()) await thing.close()
  admin.disconnect()
  await service.stop()
})

const connection = () => ({ host: here().service.host, port: here().service.port, maxRetriesPerRequest: null })

async function shaped(name: string, shape: object): Promise<ShapedQueue> {
  const queue = new ShapedQueue(name, { connection: connection(), shape })
  here().open.push(queue)
  await queue.waitUntilReady()
  return queue
}

function team(name: string, size: number, concurrency: number): ShapedWorker[] {
  return Array.from({ length: size }, () => {
    // On an empty queue it asks again so rarely that no machine is slow enough to see it.
    const options = { connection: connection(), concurrency, autorun: false, skipStalledCheck: true, drainDelay: 60 }
    const worker = new ShapedWorker(name, async () => {}, options)
    here().open.push(worker)
    return worker
  })
}

/** Calls by command since the last reset, as clients sent them. */
async function calls(): Promise<Record<string, number>> {
  const found: Record<string, number> = {}
  for (const [, name, count] of (await here().admin.info('commandstats')).matchAll(
    /cmdstat_([^:|]+)[^:]*:calls=(\d+)/g,
  )) {
    found[name!] = (found[name!] ?? 0) + Number(count)
  }
  return found
}

const scripts = ({ fcall = 0, evalsha = 0 }: Record<string, number>) => fcall + evalsha

// What a busy machine makes late costs calls: nothing else runs beside these.
testAlone.each([1, 8])('under a backlog at 10/s, %i workers send no more than 3 scripts for each job', async (size) => {
  const name = `backlog-${size}`
  const queue = await shaped(name, { rate: '10/s' })
  await queue.addBulk(jobs(200))
  const workers = team(name, size, 4)
  const completed = eventsOf('completed', ...workers)
  const asked = workers.map(callsOf)
  for (const worker of workers) void worker.run()
  await Promise.all(asked.map((each) => asksUntil(each, 'closed')))
  // A machine that stops for a while makes jobs late for their slots, which cost calls more: one stretch without is enough.
  for (let stretch = 0, perJob = Number.POSITIVE_INFINITY; perJob > 3; stretch += 1) {
    expect(stretch, `${perJob} scripts for each job`).toBeLessThan(5)
    const before = completed.all.length
    await completed.reach(before + 3)
    await here().admin.config('RESETSTAT')
    await completed.reach(before + 15)
    perJob = scripts(await calls()) / 12
  }
})

async function settle(workers: ShapedWorker[], stop: 'empty' | 'closed'): Promise<void> {
  const asked = workers.map(callsOf)
  for (const worker of workers) void worker.run()
  await Promise.all(asked.map((each) => asksUntil(each, stop)))
  // Subscribing wakes each once more: quiet for a while means that all of it is over.
  const count = () => asked.reduce((sum, { all }) => sum + all.length, 0)
  for (let before = -1; before !== count(); ) {
    before = count()
    await new Promise((resolve) => setTimeout(resolve, 150))
  }
}

async function sentBy(command: string): Promise<number> {
  return (await calls())[command] ?? 0
}

/** But for what keeps an eye on connections: PING, and the same of a subscriber. */
async function sentForJobs(): Promise<string[]> {
  return Object.keys(await calls()).filter((name) => !['config', 'info', 'ping', 'client', 'subscribe'].includes(name))
}

test('idle workers on an empty queue send the blocking wait and nothing else', async () => {
  await shaped('empty', { rate: '50/s' })
  await settle(team('empty', 8, 4), 'empty')
  await here().admin.config('RESETSTAT')
  // Nothing to wait for but time.
  await new Promise((resolve) => setTimeout(resolve, 3000))
  expect((await sentForJobs()).filter((name) => name !== 'bzpopmin')).toEqual([])
})

test('workers of a paused meter send nothing at all', async () => {
  const queue = await shaped('paused', { rate: '50/s' })
  await queue.addBulk(jobs(20))
  await queue.pauseUntil(Date.now() + 60_000, { reason: 'maintenance' })
  await settle(team('paused', 8, 4), 'closed')
  await here().admin.config('RESETSTAT')
  await new Promise((resolve) => setTimeout(resolve, 3000))
  expect(await sentForJobs()).toEqual([])
})

test('what the sleep of a worker costs Redis does not grow with those that sleep already', async () => {
  const queue = await shaped('sleepers', { rate: '1/min' })
  await queue.addBulk(jobs(300))
  const { exchange } = team('sleepers', 1, 1)[0]!.getBackend()
  const ask = () => exchange!.ask({ horizonUs: 50_000, jobs: 1 })
  // The first grant is stored with the shape, which is read anew.
  expect([(await ask()).stop, (await ask()).stop]).toEqual(['full', 'closed'])

  const reads: number[] = []
  for (const asleep of [40, 400]) {
    const nowUs = Date.now() * 1000
    const wakes = Array.from({ length: asleep }, (_, i) => [nowUs + 1e6 + i * 60e6, `asleep-${i}`])
    await here().admin.zadd(queue.toKey('meta:sleepers'), ...wakes.flat())
    await here().admin.config('RESETSTAT')
    expect((await ask()).stop).toBe('closed')
    reads.push((await sentBy('hmget')) + (await sentBy('lrange')))
  }
  expect(reads[1]).toBe(reads[0])
})

test('a worker behind many that sleep wakes soon after their slots, in case they have died', async () => {
  // The next slot is 100 ms away, and its clock stands still.
  const held = new HeldQueue({ prefix: 'bull', connection: connection() }, here().admin, 'behind')
  here().open.push(held)
  await held.reset({ rate: '10/s' })
  await held.queue.addBulk(jobs(300))
  expect((await held.depart(1, 50_000)).grants).toHaveLength(1)
  const { nextUs: next } = await held.depart(1, 50_000)
  const nextUs = next as number
  const wakes = Array.from({ length: 80 }, (_, i) => [nextUs + i * 100_000 - 50_000, `asleep-${i}`])
  await here().admin.zadd(`${held.base}meta:sleepers`, ...wakes.flat())
  const { stop, wakeUs } = await held.depart(1, 50_000)
  expect(stop).toBe('closed')
  expect((wakeUs as number) - nextUs).toBeGreaterThan(7_500_000)
  expect((wakeUs as number) - nextUs).toBeLessThan(8_500_000)
})
