import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import type { Departure } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { useProcesses } from '../support/processes.ts'
import { startProxy } from '../support/proxy.ts'

const processes = useProcesses()

/** How long jobs leave with each shape; FAR_SECONDS. */
const SECONDS = Number(process.env.FAR_SECONDS ?? 60)
const RATE = 300
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 1 }
const ROUND_TRIP_MS = 200
/** By how much the wall clocks of the workers are wrong, and whether the worker is far away: half of them are. */
const WORKERS = [
  { skewMs: 0, far: false },
  { skewMs: 200, far: false },
  { skewMs: -200, far: true },
  { skewMs: 200, far: true },
]
/** What a busy machine may add between the look at the clock and the start, ms. */
const PREEMPTED_MS = Number(process.env.FAR_PREEMPTED_MS ?? 20)

interface Started extends Departure {
  readonly type: 'started'
  readonly startedUs: number
}
type Message = Started | { type: 'ready' } | { type: 'counts'; late: number; uncertain: number }

/** Redis's clock less the monotonic one of the machine, µs, by the fastest of some calls. */
async function distanceUs(admin: Redis): Promise<number> {
  const nowUs = () => Number(process.hrtime.bigint() / 1000n)
  const found: { tripUs: number; distance: number }[] = []
  for (let i = 0; i < 200; i++) {
    const sentUs = nowUs()
    const [seconds, micros] = await admin.time()
    const tripUs = nowUs() - sentUs
    found.push({ tripUs, distance: Number(seconds) * 1e6 + Number(micros) - sentUs - tripUs / 2 })
  }
  return found.reduce((best, one) => (one.tripUs < best.tripUs ? one : best)).distance
}

async function start(shape: object) {
  const service = await startOwnRedis()
  const proxy = await startProxy(service.url)
  onTestFinished(() => proxy.stop())
  proxy.latency(ROUND_TRIP_MS)
  const fleet = new Fleet()
  const connection = quickConnection(service.url)
  const queue = fleet.queue('far', { connection, shape })
  const jobs = Array.from({ length: SECONDS * RATE }, () => ({ name: 'job', data: {} }))
  for (let i = 0; i < jobs.length; i += 1000) await queue.addBulk(jobs.slice(i, i + 1000))
  const script = new URL('./programs/far-worker.ts', import.meta.url)
  const fork = ({ skewMs, far }: (typeof WORKERS)[number]) =>
    processes.fork<Message>(script, { args: [far ? proxy.url : service.url, 'far', String(skewMs)] })
  return {
    queue,
    admin: adminOf(service.url),
    workers: WORKERS.map((worker) => ({ ...worker, program: fork(worker) })),
  }
}

test.each([
  ['no lateness is declared', {}],
  ['maxLatenessMs 100', { maxLatenessMs: 100 }],
  ['maxLatenessMs 300', { maxLatenessMs: 300 }],
])(
  'half of the workers are 200 ms away, with clocks that are wrong: starts keep the bound, %s',
  async (_name, lateness: { maxLatenessMs?: number }) => {
    const { queue, admin, workers } = await start({ rate: `${RATE}/s`, ...lateness })
    const begun = await distanceUs(admin)
    await expect
      .poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: SECONDS * 8000, interval: 500 })
      .toBe(0)
    await sleep(500)
    const distance = (begun + (await distanceUs(admin))) / 2
    const starts = workers.flatMap(({ far, program }) =>
      program.messages.flatMap((message) => (message.type === 'started' ? { far, ...message } : [])),
    )
    const counts = []
    for (const { program } of workers) {
      program.send('counts')
      counts.push(await program.waitFor('counts'))
      program.send('close')
      await program.exited
    }
    const latenessMs = starts.map(({ startedUs, departureTimeUs }) => (startedUs + distance - departureTimeUs) / 1000)
    const errorMs = Math.max(...starts.map(({ clockErrorUs }) => clockErrorUs)) / 1000
    const promisedMs = lateness.maxLatenessMs ?? Math.max(100, 50 + errorMs)
    const excess = worstExcess(
      starts.map(({ startedUs }) => startedUs),
      BUCKET,
    )
    const slotsUs = starts.map(({ departureTimeUs }) => departureTimeUs)
    const spanUs = Math.max(...slotsUs) - Math.min(...slotsUs)
    process.stdout.write(
      `${starts.length} starts, ${starts.filter(({ far }) => far).length} far away; rate kept ` +
        `${(((starts.length - 1) * BUCKET.intervalUs) / spanUs).toFixed(4)}; clock error at most ${errorMs.toFixed(1)} ms, ` +
        `late at most ${Math.max(...latenessMs).toFixed(1)} ms of ${promisedMs.toFixed(1)}, early ` +
        `${Math.max(0, -Math.min(...latenessMs)).toFixed(1)} ms; ${excess.toFixed(1)} starts above, promised ` +
        `${((promisedMs * RATE) / 1000).toFixed(1)}; gone back ${counts.map(({ late }) => late)}, uncertain ` +
        `${counts.map(({ uncertain }) => uncertain)}\n`,
    )
    expect(excess).toBeLessThanOrEqual(((promisedMs + PREEMPTED_MS) * RATE) / 1000)
    expect(worstExcess(slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  },
  SECONDS * 10_000 + 120_000,
)
