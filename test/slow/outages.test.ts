import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet, idsOf } from '../faults/support/fleet.ts'
import { startOwnRedis } from '../faults/support/own-redis.ts'
import { Producer } from '../faults/support/producer.ts'
import { connectionOptions } from '../support/redis.ts'

/** How long Redis is away, s; OUTAGES, separated by commas. */
const OUTAGES = (process.env.OUTAGES ?? '6,12,60').split(',').map(Number)
const RATE = 100
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 5 }
const WORKERS = 3

test.each(OUTAGES)(
  'Redis is away for %i s: every worker resumes by itself, and nothing accepted is lost',
  async (seconds) => {
    const service = await startOwnRedis({ persistence: 'aof' })
    // As a program has it: ioredis's own delays, BullMQ's own drainDelay.
    const connection = { ...connectionOptions(service.url), maxRetriesPerRequest: null }
    const fleet = new Fleet()
    const queue = fleet.queue('mail', { connection, shape: { rate: `${RATE}/s`, burst: BUCKET.burst } })
    const ran = Array.from({ length: WORKERS }, () => 0)
    for (let i = 0; i < WORKERS; i++) {
      fleet.worker('mail', { connection, concurrency: 2 }, async () => {
        ran[i] = (ran[i] ?? 0) + 1
        await sleep(10)
      })
    }
    const before = idsOf(await queue.addBulk(Array.from({ length: RATE }, () => ({ name: 'job', data: {} }))))
    await fleet.until(() => fleet.completed.length === before.length)
    await service.kill()
    await sleep(seconds * 1000)
    ran.fill(0)
    await service.restart()
    const backMs = performance.now()
    const producer = new Producer(queue, { everyMs: 1000 / RATE })
    await fleet.until(() => fleet.departures.length > before.length)
    const firstMs = performance.now() - backMs
    await fleet.until(() => ran.every((count) => count > 0))
    const allMs = performance.now() - backMs
    await producer.stop()
    await fleet.until(() => producer.accepted.every((id) => fleet.completed.includes(id)))
    process.stdout.write(
      `away for ${seconds} s: the first job ${(firstMs / 1000).toFixed(1)} s after it is back, every worker ` +
        `${(allMs / 1000).toFixed(1)} s after\n`,
    )
    expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
    expect(new Set(fleet.completed).size).toBe(fleet.completed.length)
    expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  },
  180_000,
)
