import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { QueueUnavailableError, type ShapedQueue } from '../../src/index.ts'
import type { RedisService } from '../../workers/services/redis.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { type Refusal, refusals } from '../faults/support/refusals.ts'

/** Jobs whose ends are counted; REFUSALS_JOBS. */
const JOBS = Number(process.env.REFUSALS_JOBS ?? 10_000)
const RATE = 200
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 20 }
const SHAPE = { rate: `${RATE}/s`, burst: BUCKET.burst, capacity: 2000 }
const WORKERS = 4
/** Runs at once in each: batches, as far as the rate lets them. */
const CONCURRENCY = 30

interface Added {
  readonly accepted: string[]
  /** Refused in so many words, by their first; nothing of these may run. */
  readonly refused: Map<string, number>
  readonly unsure: string[]
  readonly others: unknown[]
}

/** Adds jobs until enough were accepted. */
async function produce(queue: ShapedQueue): Promise<Added> {
  const added: Added = { accepted: [], refused: new Map(), unsure: [], others: [] }
  for (let n = 0; added.accepted.length < JOBS; n++) {
    const opts = { jobId: `j${n}`, attempts: 1 }
    await queue.addWhenFree('job', {}, opts).then(
      () => added.accepted.push(opts.jobId),
      async (error: unknown) => {
        if (!(error instanceof QueueUnavailableError)) added.others.push(error)
        else if (error.mayBeStored) added.unsure.push(opts.jobId)
        else {
          const [word = ''] = error.message.replace(/^.*?: /, '').split(' ')
          added.refused.set(word, (added.refused.get(word) ?? 0) + 1)
        }
        await sleep(5)
      },
    )
  }
  return added
}

/** One fault after another: each word that Redis refuses with, and a server that stands still. */
async function disturb(service: RedisService, admin: Redis, until: AbortSignal): Promise<Map<string, number>> {
  const times = new Map<string, number>()
  const stopped = {
    begin: async () => process.kill(service.pid as number, 'SIGSTOP'),
    end: async () => process.kill(service.pid as number, 'SIGCONT'),
  }
  const faults = Object.entries<Refusal>({ ...refusals, stopped })
  for (let turn = 0; !until.aborted; turn++) {
    const [name, { begin, end }] = faults[turn % faults.length] as (typeof faults)[number]
    await sleep(500)
    await begin(admin)
    await sleep(200 + (turn % 5) * 300)
    await end(admin)
    times.set(name, (times.get(name) ?? 0) + 1)
  }
  return times
}

test(
  `${JOBS} jobs while Redis refuses everything, and stands still, again and again: each runs once`,
  async () => {
    const service = await startOwnRedis({ args: refusals.LOADING?.args ?? [] })
    const connection = quickConnection(service.url)
    const fleet = new Fleet()
    const queue = fleet.queue('refusals', { connection, shape: SHAPE })
    await queue.waitUntilReady()
    const runs = new Map<string, number>()
    const run = async ({ id }: { id?: string }) => {
      runs.set(id as string, (runs.get(id as string) ?? 0) + 1)
      await sleep(Math.random() * 100)
    }
    for (let i = 0; i < WORKERS; i++) {
      fleet.worker('refusals', { connection, concurrency: CONCURRENCY, stalledInterval: 1000 }, run)
    }
    const stop = new AbortController()
    const disturbing = disturb(service, adminOf(service.url), stop.signal)
    const added = await produce(queue)
    stop.abort()
    const times = await disturbing
    const possible = new Set([...added.accepted, ...added.unsure])
    await fleet.until(() => added.accepted.every((id) => runs.has(id)))
    await expect.poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: 60_000 }).toBe(0)

    const twice = [...runs].filter(([, count]) => count > 1)
    const refusedEnds = fleet.errors.filter(({ error }) => /^(BUSY|READONLY|LOADING|M|NOREPLICAS)/.test(error.message))
    process.stdout.write(
      `${added.accepted.length} accepted, ${added.unsure.length} unsure, refused ${JSON.stringify([...added.refused])}; ` +
        `faults ${JSON.stringify([...times])}; ${refusedEnds.length} errors of workers; ran twice ${twice.length}, failed ` +
        `${fleet.failed.length}, worst excess ${Math.max(0, worstExcess(fleet.slotsUs, BUCKET)).toFixed(2)}\n`,
    )
    expect(twice).toEqual([])
    expect([...runs.keys()].filter((id) => !possible.has(id))).toEqual([])
    expect({ failed: fleet.failed, others: added.others }).toEqual({ failed: [], others: [] })
    expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  },
  JOBS * 50 + 180_000,
)
