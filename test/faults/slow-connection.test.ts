import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection } from './support/own-redis.ts'

const redis = useRedis(import.meta.url)

const ROUND_TRIP_MS = 200
const PIECE_BYTES = 300
const RATE = 50
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 1 }
const JOBS = 200

// Fault table, row 12.
test('everything arrives late and in pieces: no errors, each job runs once, never above the rate', async () => {
  const { prefix } = redis
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const fleet = new Fleet()
  const queue = fleet.queue('slow', { connection, prefix, shape: { rate: `${RATE}/s`, capacity: 1000 } })
  await queue.waitUntilReady()
  proxy.latency(ROUND_TRIP_MS)
  proxy.slice(PIECE_BYTES)
  const ids = idsOf(await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {} }))))
  for (let i = 0; i < 2; i++) fleet.worker('slow', { connection, prefix, concurrency: 40 }, () => sleep(10))
  await fleet.until(() => fleet.completed.length >= JOBS)

  const slots = fleet.slotsUs.toSorted((a, b) => a - b)
  // The first ones may go to workers that do not know yet how far away Redis is.
  const steady = slots.slice(JOBS / 4)
  const kept = ((steady.length - 1) * BUCKET.intervalUs) / ((steady.at(-1) as number) - (steady[0] as number))
  const errorMs = Math.max(...fleet.departures.map(({ clockErrorUs }) => clockErrorUs)) / 1000
  process.stdout.write(`rate kept ${kept.toFixed(4)}, clock error at most ${errorMs.toFixed(0)} ms\n`)
  expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
  expect(fleet.completed.toSorted()).toEqual(ids.toSorted())
  expect(fleet.departures).toHaveLength(JOBS)
  expect(worstExcess(slots, BUCKET)).toBeLessThanOrEqual(0)
  // How well a worker knows the time is told: half of a round trip at least.
  expect(errorMs).toBeGreaterThanOrEqual(ROUND_TRIP_MS / 2)
  // Far from the rate of a quiet machine: that is for whoever reads the figure.
  expect(kept).toBeGreaterThan(0.5)
})
