import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { QueueUnavailableError } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { Producer } from '../faults/support/producer.ts'

/** How often Redis is killed for each way to write its file; REDIS_KILLS. */
const KILLS = Number(process.env.REDIS_KILLS ?? 100)
const BUCKET = { intervalUs: 5000, burst: 10 }
const SHAPE = { rate: '200/s', burst: BUCKET.burst, capacity: 500 }
const PRODUCERS = 3
const WORKERS = 2
/** How long it is away, ms. */
const AWAY_MS = 100

// Fault table, row 6. A kill tests the process: what the kernel has taken, it still has.
test.each(['always', 'everysec'])(
  `Redis is killed ${KILLS} times under load, its file written %s: nothing accepted is lost, the bound holds`,
  async (appendfsync) => {
    const service = await startOwnRedis({ persistence: 'aof', args: ['--appendfsync', appendfsync] })
    const connection = quickConnection(service.url)
    const fleet = new Fleet()
    const open = () => fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 300 })
    const queue = open()
    await queue.waitUntilReady()
    for (let i = 0; i < WORKERS; i++) {
      // So short a lock that what was in hand at a kill is soon found, so many deaths that none is too many.
      const recovery = { lockDuration: 2000, stalledInterval: 500, maxStalledCount: 1000 }
      fleet.worker('mail', { connection, concurrency: 10, ...recovery }, () => sleep(20))
    }
    const producers = Array.from({ length: PRODUCERS }, (_, i) => new Producer(open(), { everyMs: 10, name: `p${i}-` }))
    const awayMs: number[] = []
    for (let kill = 0; kill < KILLS; kill++) {
      const departures = fleet.departures.length
      await fleet.until(() => fleet.departures.length >= departures + 20)
      await service.kill()
      const killedMs = performance.now()
      await sleep(AWAY_MS)
      await service.restart()
      const killed = fleet.departures.length
      await fleet.until(() => fleet.departures.length > killed)
      awayMs.push(performance.now() - killedMs)
    }
    for (const producer of producers) await producer.stop()
    const accepted = producers.flatMap((producer) => producer.accepted)
    await expect.poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: 60_000 }).toBe(0)
    const ran = new Set(fleet.departures.map(({ jobId }) => jobId))
    const lost = accepted.filter((id) => !ran.has(id))
    const errors = producers.flatMap(({ refused }) => refused.map(({ error }) => error as QueueUnavailableError))
    const excess = worstExcess(fleet.slotsUs, BUCKET)
    process.stdout.write(
      `${appendfsync}: ${accepted.length} accepted, ${KILLS} kills, lost ${lost.length}, started again ` +
        `${fleet.departures.length - ran.size}; ${errors.length} unavailable, of them unsure ` +
        `${errors.filter(({ mayBeStored }) => mayBeStored).length}; first start at most ` +
        `${(Math.max(...awayMs) / 1000).toFixed(1)} s after a kill; worst excess ${Math.max(0, excess).toFixed(2)}\n`,
    )
    expect({ lost, failed: fleet.failed }).toEqual({ lost: [], failed: [] })
    expect(errors.filter((error) => !(error instanceof QueueUnavailableError))).toEqual([])
    expect(Math.max(...awayMs)).toBeLessThan(25_000)
    expect(excess).toBeLessThanOrEqual(0)
  },
  KILLS * 10_000 + 120_000,
)
