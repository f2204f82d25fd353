import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { worstExcess, worstWindow } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const BURST = 5
const DECLARED = 100
const HORIZON_US = 50_000
const WHO = { by: 'test', reason: 'test' }
/** Slots are whole microseconds, up to 300 of them a second. */
const TOLERANCE = 300 / 1_000_000

/** A rate, and from when on it is in force at the latest, on the clock of this machine, which is also Redis's. */
interface Step {
  readonly perSecond: number
  readonly fromUs: number
}

/** What those rates let through until a time. */
function drainedBy(steps: readonly Step[], timeUs: number): number {
  return steps.reduce((sum, { perSecond, fromUs }, i) => {
    const untilUs = Math.min(timeUs, steps[i + 1]?.fromUs ?? Number.POSITIVE_INFINITY)
    return sum + (Math.max(0, untilUs - fromUs) * perSecond) / 1_000_000
  }, 0)
}

// Fault table, row 37.
test('the rate is lowered and raised while jobs leave, and the queue obliterated: no window is above what was in force, and no debt is left', async () => {
  const fleet = new Fleet()
  const shape = { rate: `${DECLARED}/s`, burst: BURST, horizonMs: HORIZON_US / 1000 }
  const queue = fleet.queue('live', { connection, prefix, shape })
  const add = async (count: number) =>
    idsOf(await queue.addBulk(Array.from({ length: count }, () => ({ name: 'job', data: {} }))))
  await add(1000)
  for (let i = 0; i < 2; i++) fleet.worker('live', { connection, prefix, concurrency: 20 })
  const leave = async (count: number) => {
    const seen = fleet.departures.length
    await fleet.until(() => fleet.departures.length >= seen + count)
  }
  const steps: Step[] = [{ perSecond: DECLARED, fromUs: 0 }]
  const change = async (perSecond: number) => {
    const isLower = perSecond < (steps.at(-1) as Step).perSecond
    const beforeUs = Date.now() * 1000
    await queue.setShape({ rate: `${perSecond}/s` }, WHO)
    // What was granted before a change may leave by the rate of before, up to one horizon later.
    steps.push({ perSecond, fromUs: isLower ? (Date.now() + 1) * 1000 + HORIZON_US : beforeUs })
  }
  await leave(40)
  await change(20)
  await leave(25)
  await change(300)
  await leave(100)
  await change(2)
  await leave(3)

  const excess = worstWindow(fleet.slotsUs, BURST, (timeUs) => drainedBy(steps, timeUs)).excess
  process.stdout.write(
    `rate changed ${steps.length - 1} times: above what was in force by ${Math.max(0, excess).toFixed(1)}\n`,
  )
  expect(excess).toBeLessThanOrEqual(TOLERANCE)
  expect(fleet.losses).toEqual([])

  // What is owed at this rate would take hours.
  await queue.setShape({ rate: '1/h' }, WHO)
  await queue.obliterate({ force: true })
  const obliteratedMs = Date.now()
  const ids = await add(30)
  await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))
  const later = fleet.departures
    .filter(({ jobId }) => ids.includes(jobId))
    .map(({ departureTimeUs }) => departureTimeUs)
  expect(later).toHaveLength(30)
  // By the declared rate.
  expect(worstExcess(later, { intervalUs: 1_000_000 / DECLARED, burst: BURST })).toBeLessThanOrEqual(0)
  expect((await queue.getShape())?.rate).toBe(`${DECLARED}/s`)
  expect(Math.min(...later)).toBeGreaterThanOrEqual(obliteratedMs * 1000)
  expect(fleet.failed).toEqual([])
  // A worker that calls before it is told finds nothing: it holds for the declared horizon, never for that of 1/h.
  for (const { holdMs } of fleet.losses) expect(holdMs).toBeLessThan(2 * (HORIZON_US / 1000))
})
