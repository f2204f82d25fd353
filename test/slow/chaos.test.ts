import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { loggedDepartures } from '../faults/support/logged-departures.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { type Program, useProcesses } from '../support/processes.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const processes = useProcesses()

/** How long faults go on; CHAOS_SECONDS. Afterwards everything has to come to rest. */
const SECONDS = Number(process.env.CHAOS_SECONDS ?? 60)
const WORKERS = 3
const BUCKET = { intervalUs: 5000, burst: 10 }
const SHAPE = { rate: '200/s', burst: 10, capacity: 500 }

type Message = { type: 'ready' } | { type: 'departed'; count: number } | { type: 'error'; message: string }

/** Adds jobs while it may; keeps the ids of those that were accepted. */
async function produce(queue: ShapedQueue, accepted: string[], until: AbortSignal): Promise<void> {
  for (let n = 0; !until.aborted; n++) {
    const jobId = `j${n}`
    await queue.add('job', {}, { jobId }).then(
      () => accepted.push(jobId),
      () => sleep(20),
    )
  }
}

test(
  `${SECONDS} s of killed workers, a killed Redis and forgotten scripts: nothing accepted is lost, the bound holds`,
  async () => {
    const service = await startOwnRedis({ persistence: 'aof' })
    const fleet = new Fleet()
    const queue = fleet.queue('chaos', { connection: quickConnection(service.url), shape: SHAPE, admitTimeoutMs: 500 })
    await queue.waitUntilReady()
    const log = join(temporaryFolder(), 'departures')
    const script = new URL('../faults/programs/logging-worker.ts', import.meta.url)
    const start = () =>
      processes.fork<Message>(script, {
        args: [service.url, 'bull', 'chaos', log],
        env: { MAX_STALLED_COUNT: '1000' },
      })
    const workers: Program<Message>[] = Array.from({ length: WORKERS }, start)
    await Promise.all(workers.map((worker) => worker.waitFor('ready')))

    const stop = new AbortController()
    const accepted: string[] = []
    const producing = produce(queue, accepted, stop.signal)
    const admin = adminOf(service.url)
    const faults = { workers: 0, redis: 0, scripts: 0 }
    const end = performance.now() + SECONDS * 1000
    for (let turn = 0; performance.now() < end; turn++) {
      await sleep(500)
      if (turn % 4 === 1) {
        const victim = workers.shift() as Program<Message>
        await victim.kill()
        workers.push(start())
        faults.workers += 1
      } else if (turn % 8 === 6) {
        await service.kill()
        await sleep(200)
        await service.restart()
        faults.redis += 1
      } else {
        await admin.script('FLUSH')
        faults.scripts += 1
      }
    }
    stop.abort()
    await producing

    const completed = async () => new Set(await admin.zrange('bull:chaos:completed', '0', '-1'))
    for (const deadline = performance.now() + 60_000; (await completed()).size < accepted.length; ) {
      if (performance.now() > deadline) break
      await sleep(200)
    }
    for (const worker of workers) {
      await worker.waitFor('ready')
      worker.send('close')
      await worker.exited
    }

    const done = await completed()
    const departures = loggedDepartures(log)
    const excess = worstExcess(
      departures.map(({ departureTimeUs }) => departureTimeUs),
      BUCKET,
    )
    const lost = accepted.filter((id) => !done.has(id))
    const { failed } = await queue.getJobCounts('failed')
    process.stdout.write(
      `${accepted.length} accepted; killed: ${faults.workers} workers, ${faults.redis} times Redis; ${faults.scripts} times ` +
        `scripts forgotten; lost ${lost.length}, failed ${failed}, started again ${departures.length - done.size}, ` +
        `worst excess ${Math.max(0, excess).toFixed(2)}\n`,
    )
    expect({ lost, failed }).toEqual({ lost: [], failed: 0 })
    expect(excess).toBeLessThanOrEqual(0)
  },
  SECONDS * 1000 + 180_000,
)
