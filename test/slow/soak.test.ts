import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { QueueFullError, type ShapedQueue } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'

/** How long it runs; SOAK_SECONDS. */
const SECONDS = Number(process.env.SOAK_SECONDS ?? 120)
const RATE = 200
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 1 }
/** What the second half of the run may hold more than the first, in the mean. */
const MAX_KEYS_GROWTH = 50
const MAX_HEAP_GROWTH = 8 * 1024 * 1024
const MAX_REDIS_GROWTH = 2 * 1024 * 1024

setFlagsFromString('--expose-gc')
/** What is garbage, the heap does not hold. */
const collectGarbage = runInNewContext('gc') as () => void

interface Sample {
  readonly keys: number
  readonly heap: number
  readonly redis: number
}

const mean = (samples: readonly Sample[], field: keyof Sample) =>
  samples.reduce((sum, sample) => sum + sample[field], 0) / samples.length

/** Keeps the queue full. */
async function produce(queue: ShapedQueue, until: AbortSignal): Promise<void> {
  const jobs = Array.from({ length: 40 }, () => ({ name: 'job', data: {} }))
  while (!until.aborted) {
    try {
      await queue.addBulk(jobs)
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      await sleep(error.retryAfterMs)
    }
  }
}

test(
  `${SECONDS} s under a backlog: the rate is kept, and nothing grows`,
  async () => {
    const service = await startOwnRedis()
    const connection = quickConnection(service.url)
    const admin = adminOf(service.url)
    const fleet = new Fleet()
    const removeOnComplete = { count: 100 }
    const queue = fleet.queue('soak', {
      connection,
      // Far ahead and with room, so that a busy machine does not cost slots: what is watched is the meter.
      shape: { rate: `${RATE}/s`, capacity: 300, horizonMs: 500, maxLatenessMs: 1000 },
      defaultJobOptions: { removeOnComplete },
      streams: { events: { maxLen: 100 } },
    })
    await queue.waitUntilReady()
    const stop = new AbortController()
    const producers = [1, 2].map(() => produce(queue, stop.signal))
    for (let i = 0; i < 4; i++) fleet.worker('soak', { connection, concurrency: 60 }, () => sleep(10))
    await sleep(5000)

    const samples: Sample[] = []
    const first = fleet.departures.length
    while (samples.length < SECONDS) {
      await sleep(1000)
      collectGarbage()
      const memory = /used_memory:(\d+)/.exec(await admin.info('memory'))?.[1]
      samples.push({ keys: await admin.dbsize(), heap: process.memoryUsage().heapUsed, redis: Number(memory) })
    }
    stop.abort()
    await Promise.all(producers)

    const slots = fleet.slotsUs.slice(first).sort((a, b) => a - b)
    const spanUs = (slots.at(-1) as number) - (slots[0] as number)
    const rateKept = ((slots.length - 1) * BUCKET.intervalUs) / spanUs
    const half = samples.length / 2
    const growth = (field: keyof Sample) => mean(samples.slice(half), field) - mean(samples.slice(0, half), field)
    process.stdout.write(
      `${slots.length} departures, rate kept ${rateKept.toFixed(5)}; growth: ${growth('keys').toFixed(0)} keys, ` +
        `${growth('redis').toFixed(0)} bytes of Redis, ${growth('heap').toFixed(0)} bytes of heap\n`,
    )
    expect(rateKept).toBeGreaterThan(0.999)
    expect(worstExcess(slots, BUCKET)).toBeLessThanOrEqual(0)
    expect(growth('keys')).toBeLessThan(MAX_KEYS_GROWTH)
    expect(growth('redis')).toBeLessThan(MAX_REDIS_GROWTH)
    // The test itself keeps every departure.
    expect(growth('heap')).toBeLessThan(MAX_HEAP_GROWTH + SECONDS * RATE * 200)
    expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
  },
  SECONDS * 1000 + 60_000,
)
