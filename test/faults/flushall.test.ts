import { Queue } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import type { ShapedWorker } from '../../src/index.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

const BURST = 8
const BUCKET = { intervalUs: 10_000, burst: BURST }
const OVERRIDE = { by: 'test', reason: 'incident' }

/** A producer that declared and overrode, and two workers that declared nothing. */
async function start(onStateLoss: 'hold' | 'burst' = 'hold') {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: { rate: '400/s', burst: BURST, capacity: 500, onStateLoss } })
  await queue.setShape({ rate: '100/s' }, OVERRIDE)
  const workers = [1, 2].map(() => fleet.worker('mail', { connection, concurrency: 10 }))
  return { admin: adminOf(service.url), connection, fleet, queue, workers }
}

const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

// With `burst` as many more may leave as the bucket holds, and as were granted ahead, within the horizon of 50 ms.
test.each([
  ['hold', 0],
  ['burst', BURST + 5],
] as const)(
  'FLUSHALL under load (%s): the shape is back before the next grant, once, and the bound holds',
  async (onStateLoss, mostAbove) => {
    const { admin, fleet, queue } = await start(onStateLoss)
    const before = await queue.getShape()
    await queue.addBulk(jobs(100))
    await fleet.until(() => fleet.departures.length >= 30)
    await admin.flushall()
    const at = fleet.departures.length
    await queue.addBulk(jobs(40))
    await fleet.until(() => fleet.departures.length >= at + 40)

    const { revision: _before, ...declared } = before ?? {}
    const { revision: _after, ...restored } = (await queue.getShape()) ?? {}
    expect(restored).toEqual(declared)
    expect(restored).toMatchObject({ rate: '100/s', overrides: { rate: OVERRIDE } })
    expect(fleet.losses).toHaveLength(1)
    expect(fleet.losses[0]?.policy).toBe(onStateLoss)
    const excess = worstExcess(fleet.slotsUs, BUCKET)
    process.stdout.write(`FLUSHALL (${onStateLoss}): above the rate by ${Math.max(0, excess).toFixed(1)}\n`)
    expect(excess).toBeLessThanOrEqual(mostAbove)
  },
)

test('after FLUSHALL a worker that declared nothing restores override and pause before it grants anything', async () => {
  const { admin, connection, fleet, queue } = await start()
  await queue.addBulk(jobs(40))
  await fleet.until(() => fleet.departures.length >= 20)
  const pausedUntil = new Date(Date.now() + 1200)
  await queue.pauseUntil(pausedUntil, { reason: 'incident' })
  // Both workers have to have heard of the pause before everything is gone.
  // What they know has no event, and nothing starts any more.
  const pausedAt = ({ backend }: ShapedWorker) => backend.store.memory.stored?.pausedUntilUs ?? 0
  await expect.poll(() => Math.min(...fleet.workers.map(pausedAt)), { interval: 5 }).toBeGreaterThan(0)
  await queue.close()
  await admin.flushall()

  // Nobody who knows the shape produces any more.
  const stock = new Queue('mail', { connection })
  onTestFinished(() => stock.close())
  await stock.addBulk(jobs(30))
  // What was granted before and held may still start; the ids of a stock queue are numbers.
  const afterwards = () => fleet.departures.filter(({ jobId }) => /^\d+$/.test(jobId))
  await fleet.until(() => afterwards().length === 30)

  expect(afterwards()[0]?.departureTimeUs).toBeGreaterThanOrEqual(pausedUntil.getTime() * 1000)
  expect(fleet.losses).toHaveLength(1)
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  expect(await admin.hmget('bull:mail:meta:shape', 'rate', 'pauseReason')).toEqual(['[100,1000]', 'incident'])
})

test('a process that remembers an older shape restores it, and one that remembers the last one puts that in its place', async () => {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const shape = { rate: '400/s', burst: 8, capacity: 500 }
  const behind = fleet.queue('mail', { connection, shape })
  await behind.waitUntilReady()
  const ahead = fleet.queue('mail', { connection, shape })
  await ahead.setShape({ rate: '100/s' }, OVERRIDE)

  await adminOf(service.url).flushall()
  await behind.add('job', {})
  await ahead.add('job', {})
  expect(await behind.getShape()).toMatchObject({ rate: '100/s', overrides: { rate: OVERRIDE } })
  expect(fleet.losses).toHaveLength(1)
})
