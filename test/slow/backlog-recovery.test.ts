import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'

/** How many jobs wait when Redis is killed; BACKLOG_JOBS. */
const JOBS = Number(process.env.BACKLOG_JOBS ?? 100_000)
const CHUNK = 5000
const RATE = 500
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 10 }
const WORKERS = 5
/** Departures that are looked at afterwards. */
const AFTERWARDS = 30 * RATE
/** What a busy machine may cost. */
const RATE_KEPT = 0.97

/** How many connections a server has accepted. */
async function connectionsOf(admin: Redis): Promise<number> {
  return Number(/total_connections_received:(\d+)/.exec(await admin.info('stats'))?.[1])
}

// Fault table, row 31.
test(`Redis is killed with ${JOBS} jobs waiting: they leave at the rate, without a storm of connections`, async () => {
  const service = await startOwnRedis({ persistence: 'aof' })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const shape = { rate: `${RATE}/s`, burst: BUCKET.burst, horizonMs: 200, maxLatenessMs: 500 }
  const queue = fleet.queue('backlog', { connection, shape })
  for (let i = 0; i < JOBS; i += CHUNK) {
    await queue.addBulk(Array.from({ length: CHUNK }, () => ({ name: 'job', data: {} })))
  }
  for (let i = 0; i < WORKERS; i++) fleet.worker('backlog', { connection, concurrency: 50 })
  await fleet.until(() => fleet.departures.length >= 2 * RATE)
  await service.kill()
  const killedMs = performance.now()
  await service.restart()
  const admin = adminOf(service.url)
  // Whoever looks whether the server is there has opened some by now.
  const opened = await connectionsOf(admin)
  const before = fleet.departures.length
  await fleet.until(() => fleet.departures.length > before)
  const firstMs = performance.now() - killedMs
  await fleet.until(() => fleet.departures.length >= before + AFTERWARDS)
  const slots = fleet.slotsUs.slice(before).toSorted((a, b) => a - b)
  const connections = (await connectionsOf(admin)) - opened
  const kept = ((slots.length - 1) * BUCKET.intervalUs) / ((slots.at(-1) as number) - (slots[0] as number))
  const excess = worstExcess(fleet.slotsUs, BUCKET)
  process.stdout.write(
    `${JOBS} jobs waited: the first one left ${(firstMs / 1000).toFixed(1)} s after the kill; rate kept ` +
      `${kept.toFixed(4)}, worst excess ${Math.max(0, excess).toFixed(2)}, ${connections} connections opened\n`,
  )
  expect(excess).toBeLessThanOrEqual(0)
  expect(kept).toBeGreaterThan(RATE_KEPT)
  // Each worker has three of its own.
  expect(connections).toBeLessThanOrEqual(3 * (WORKERS + 1))
  // A server that loads its file answers late, and workers say that they do not know the time then.
  const errors = fleet.errors.filter(({ error }) => error.name !== 'UncertainClockError')
  expect({ failed: fleet.failed, errors }).toEqual({ failed: [], errors: [] })
}, 300_000)
