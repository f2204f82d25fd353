import { setTimeout as sleep } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { RunningTime } from '../support/running-time.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { buildClock, whyNoClock } from './support/settable-clock.ts'

const missing = whyNoClock()

/** By how much a worker's idea of Redis's clock may be off on a busy machine: one reply that came so late. */
const JITTER_US = 100_000
const INTERVAL_US = 50_000
const JOBS = 40
/** Jobs that the two workers hold or run at most: those of one horizon, and of half a one that is asked for early. */
const IN_HAND = 4

async function start(horizonMs: number, timing: { lockDuration?: number; stalledInterval?: number } = {}) {
  const clock = buildClock()
  onTestFinished(() => clock.remove())
  const service = await startOwnRedis({ env: clock.env })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: { rate: '20/s', horizonMs, maxLatenessMs: 2000 } })
  const ids = idsOf(await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: {} }))))
  for (let i = 0; i < 2; i++)
    fleet.worker('mail', { connection, concurrency: 20, ...timing }, async (job) => {
      if ((job as Job).name === 'long') await sleep(1500)
    })
  await fleet.until(() => fleet.departures.length >= 10)
  return { clock, fleet, queue, connection, admin: adminOf(service.url), ids }
}

/** When jobs started, in true time, less what each knew to be late: a job that is early does not know. */
function onTime({ departures }: Fleet): number[] {
  return departures.map(({ startedMs, latenessUs }) => startedMs * 1000 - latenessUs)
}

describe.skipIf(missing)(
  `Redis's clock is set while workers hold jobs for their slots${missing ? ` (${missing})` : ''}:`,
  () => {
    // Fault table, row 16.
    test.each([
      ['an hour back', -3_600_000, 50],
      ['an hour back, with a second granted ahead', -3_600_000, 1000],
      ['a second back', -1000, 200],
    ])('%s: nothing hangs, and nothing leaves faster in true time', async (name, offsetMs, horizonMs) => {
      const { clock, fleet, admin, ids } = await start(horizonMs)
      clock.set(offsetMs)
      const left = JOBS - fleet.departures.length
      const running = new RunningTime(admin)
      await fleet.until(() => fleet.departures.length === JOBS)

      // What was granted ahead may be given back, and its slots are lost then.
      const lostMs = running.ms - (left * INTERVAL_US) / 1000
      process.stdout.write(`${name}: ${lostMs.toFixed(0)} ms lost\n`)
      expect(lostMs).toBeLessThan(horizonMs + 1500)
      expect(fleet.clockSteps.length).toBeGreaterThan(0)
      expect(Math.max(...fleet.clockSteps)).toBeLessThanOrEqual(-offsetMs * 1000)
      const startsUs = onTime(fleet)
      expect(
        worstExcess(startsUs, { intervalUs: INTERVAL_US, burst: 1 + JITTER_US / INTERVAL_US }),
      ).toBeLessThanOrEqual(0)
      await fleet.until(() => fleet.completed.length === JOBS)
      expect(fleet.departures.map(({ jobId }) => jobId).toSorted()).toEqual(ids.toSorted())
      expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
    })

    test('an hour back: jobs whose worker died are found as soon as usual, and renewed locks hold', async () => {
      const timing = { lockDuration: 1000, stalledInterval: 300 }
      const { clock, fleet, queue, connection } = await start(50, timing)
      let end = () => {}
      const ended = new Promise<void>((resolve) => {
        end = resolve
      })
      const taken: unknown[] = []
      fleet.worker('mail', { ...timing, connection, concurrency: 1, skipLockRenewal: true }, async ({ id }) => {
        taken.push(id)
        await ended
      })
      await vi.waitFor(() => expect(taken).toHaveLength(1), 60_000)
      await queue.add('long', {})
      clock.set(-3_600_000)
      // Nothing renews the lock of the first; another runs for longer than its lock lasts.
      await fleet.until(() => fleet.completed.length === JOBS + 1)
      expect(fleet.stalled).toEqual(taken)
      end()
    })

    // Fault table, row 15.
    test('an hour ahead: at most one bucket more leaves, once', async () => {
      const { clock, fleet, queue, admin, ids } = await start(50)
      clock.set(3_600_000)
      const [running, left] = [new RunningTime(admin), JOBS - fleet.departures.length]
      await fleet.until(() => new Set(fleet.completed).size === JOBS)
      expect(running.ms).toBeLessThan((left * INTERVAL_US) / 1000 + 1500)
      const startsUs = onTime(fleet)
      const horizonJobs = 50_000 / INTERVAL_US
      const burst = 1 + 1 + horizonJobs + JITTER_US / INTERVAL_US
      expect(worstExcess(startsUs, { intervalUs: INTERVAL_US, burst })).toBeLessThanOrEqual(0)
      expect(new Set(fleet.completed)).toEqual(new Set(ids))
      // All locks are over at once: what was in hand then may run again.
      const again = fleet.departures.length - JOBS
      process.stdout.write(`an hour ahead: ${again} started twice\n`)
      expect(again).toBeLessThanOrEqual(IN_HAND)
      expect(await queue.getJobCounts('completed', 'failed', 'active', 'wait')).toEqual({
        ...{ completed: JOBS, failed: 0, active: 0, wait: 0 },
      })
      expect(fleet.errors).toEqual([])
    })
  },
)
