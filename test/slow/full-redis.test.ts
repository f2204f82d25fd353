import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { QueueUnavailableError, type ShapedQueue } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'

/** How long Redis is full; FULL_SECONDS. */
const SECONDS = Number(process.env.FULL_SECONDS ?? 120)
const RATE = 100
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 1 }
const PRODUCERS = 4
const WORKERS = 3
/** What a machine that has other things to do may cost; FULL_RATE_KEPT. */
const RATE_KEPT = Number(process.env.FULL_RATE_KEPT ?? 0.99)

interface Added {
  accepted: number
  refused: number
  readonly others: unknown[]
}

/** Takes every byte that comes free. */
async function fill(queue: ShapedQueue, added: Added, until: AbortSignal): Promise<void> {
  const data = { filling: 'x'.repeat(500) }
  while (!until.aborted) {
    await queue.add('more', data).then(
      () => {
        added.accepted += 1
      },
      (error: unknown) => {
        const full = error instanceof QueueUnavailableError && !error.mayBeStored && error.message.includes('OOM')
        if (full) added.refused += 1
        else added.others.push(error)
      },
    )
  }
}

test(
  `${SECONDS} s of a full Redis, with producers that continue: the queue drains at its rate`,
  async () => {
    const service = await startOwnRedis()
    const connection = quickConnection(service.url)
    const admin = adminOf(service.url)
    const fleet = new Fleet()
    // Far ahead and with room, so that a busy machine does not cost slots: what is watched is the memory.
    const shape = { rate: `${RATE}/s`, horizonMs: 500, maxLatenessMs: 1000 }
    const queue = fleet.queue('full', { connection, shape })
    for (let i = 0; i < (SECONDS + 20) * RATE; i += 1000) {
      await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: 'job', data: { filling: 'x'.repeat(500) } })))
    }
    const used = Number(/used_memory:(\d+)/.exec(await admin.info('memory'))?.[1])
    await admin.config('SET', 'maxmemory', used)
    const added: Added = { accepted: 0, refused: 0, others: [] }
    const stop = new AbortController()
    const producing = Array.from({ length: PRODUCERS }, () => fill(queue, added, stop.signal))
    await sleep(1000)
    for (let i = 0; i < WORKERS; i++) {
      fleet.worker('full', { connection, concurrency: 50, removeOnComplete: { count: 0 } }, () => sleep(10))
    }
    await fleet.until(() => fleet.departures.length > 0)
    const perSecond: number[] = []
    for (let before = fleet.departures.length; perSecond.length < SECONDS; before = fleet.departures.length) {
      await sleep(1000)
      perSecond.push(fleet.departures.length - before)
    }
    stop.abort()
    await Promise.all(producing)

    const slots = fleet.slotsUs.toSorted((one, other) => one - other)
    const spanUs = (slots.at(-1) as number) - (slots[0] as number)
    const kept = ((slots.length - 1) * BUCKET.intervalUs) / spanUs
    process.stdout.write(
      `${slots.length} departures, rate kept ${kept.toFixed(4)}, ${Math.min(...perSecond)} to ${Math.max(...perSecond)} a ` +
        `second; ${added.accepted} adds accepted, ${added.refused} refused, ${fleet.errors.length} errors of workers\n`,
    )
    expect(kept).toBeGreaterThan(RATE_KEPT)
    expect(worstExcess(slots, BUCKET)).toBeLessThanOrEqual(0)
    expect(added.refused).toBeGreaterThan(0)
    expect({ others: added.others, failed: fleet.failed }).toEqual({ others: [], failed: [] })
    await admin.config('SET', 'maxmemory', '0')
  },
  SECONDS * 2000 + 180_000,
)
