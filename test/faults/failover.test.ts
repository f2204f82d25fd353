import type { Redis } from 'ioredis'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { startProxy } from '../support/proxy.ts'
import { RunningTime } from '../support/running-time.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'
import { startReplica } from './support/replica.ts'

useConcurrentTests()

const RATE = 20
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 10 }
const HORIZON_MS = 50
const MAX_LAG_S = 1
/** Where Redis does answer: a busy machine is to refuse nothing by itself. */
const ANSWERED_MS = 5000

/**
 * A master with a replica, behind one address, and a queue with a backlog that two workers drain. The backlog is added
 * by a queue of its own: the first call of a process may take longer than a producer waits.
 */
async function start(onStateLoss: 'hold' | 'burst', admitTimeoutMs: number) {
  const master = await startOwnRedis({ args: ['--repl-diskless-sync-delay', '0'] })
  const front = await startProxy(master.url)
  onTestFinished(() => front.stop())
  const connection = quickConnection(front.url)
  const fleet = new Fleet()
  const shape = { rate: `${RATE}/s`, burst: BUCKET.burst, horizonMs: HORIZON_MS, onStateLoss }
  const queue = fleet.queue('mail', { connection, shape, admitTimeoutMs })
  const filling = fleet.queue('mail', { connection, shape, admitTimeoutMs: 20_000 })
  const ids = idsOf(await filling.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {} }))))
  const replica = await startReplica(master)
  for (let i = 0; i < 2; i++)
    fleet.worker('mail', { connection, concurrency: 10, lockDuration: 2000, stalledInterval: 500 })
  await fleet.until(() => fleet.departures.length >= BUCKET.burst + 5)
  return { master, replica, front, fleet, queue, filling, ids }
}

/** Whatever was accepted before is on the replica. */
async function untilReplicated(admin: Redis): Promise<void> {
  await admin.set('replicated', 1)
  await expect.poll(() => admin.wait(1, 1000)).toBe(1)
}

// Fault table, row 8.
test.each([
  ['hold', () => 0],
  ['burst', (lagMs: number) => Math.min(BUCKET.burst, Math.ceil((lagMs * RATE) / 1000)) + (HORIZON_MS * RATE) / 1000],
] as const)(
  'a master is killed, and a replica that lags takes over (%s): the bound holds, and nothing older than the lag is lost',
  async (onStateLoss, mostAbove) => {
    const { master, replica, front, fleet, queue, filling, ids } = await start(onStateLoss, 500)
    const producer = new Producer(queue, { everyMs: 20 })
    await fleet.until(() => fleet.departures.length >= BUCKET.burst + 10)
    const safe = [...ids, ...producer.accepted]
    await untilReplicated(adminOf(master.url))
    await replica.cut()
    const cutMs = performance.now()
    const before = fleet.departures.length
    await fleet.until(() => fleet.departures.length >= before + 20)
    await master.kill()
    const lagMs = performance.now() - cutMs
    await replica.promote()
    front.redirect(replica.url)
    await fleet.until(() => fleet.losses.length > 0)
    const killed = fleet.departures.length
    await fleet.until(() => fleet.departures.length >= killed + 30)
    await producer.stop()
    const slotsUs = fleet.slotsUs
    await filling.setShape({ rate: null }, { by: 'test', reason: 'to see the end' })
    await expect.poll(() => filling.getJobCountByTypes('wait', 'active')).toBe(0)

    // A worker reports an end once its reply has come, which may be after the counts were read.
    await expect
      .poll(() => ({ left: safe.filter((id) => !fleet.completed.includes(id)), failed: fleet.failed }))
      .toEqual({ left: [], failed: [] })
    const accepted = [...ids, ...producer.accepted]
    const lost = accepted.filter((id) => !fleet.completed.includes(id))
    const excess = worstExcess(slotsUs, BUCKET)
    process.stdout.write(
      `${onStateLoss}: lag ${Math.round(lagMs)} ms; ${accepted.length} accepted, lost ${lost.length}, ` +
        `run again ${fleet.departures.length - new Set(fleet.completed).size}, worst excess ${excess.toFixed(2)}\n`,
    )
    expect(fleet.losses).toMatchObject([{ policy: onStateLoss }])
    // What ended after the cut the replica knows as waiting, or as running under another lock.
    const errors = fleet.errors.filter(({ error }) => !/^(Missing lock|Lock mismatch) for job /.test(error.message))
    expect({ failed: fleet.failed, errors }).toEqual({ failed: [], errors: [] })
    expect(excess).toBeLessThanOrEqual(mostAbove(lagMs))
  },
)

// Fault table, row 9.
test('a master that is cut off from its replica with its clients refuses within min-replicas-max-lag, and nothing older is lost', async () => {
  const { master, replica, front, fleet, queue, ids } = await start('hold', ANSWERED_MS)
  const admin = adminOf(master.url)
  await admin.config('SET', 'min-replicas-max-lag', MAX_LAG_S)
  await admin.config('SET', 'min-replicas-to-write', '1')
  const producer = new Producer(queue, { everyMs: 20 })
  await fleet.until(() => fleet.departures.length >= BUCKET.burst + 10)
  const safe = [...ids, ...producer.accepted]
  await untilReplicated(admin)
  replica.silence()
  const running = new RunningTime(admin)
  await expect.poll(() => producer.refused.length, { interval: 10 }).toBeGreaterThan(0)
  const refusedAfterMs = running.ms
  const refusedUs = Date.now() * 1000
  const accepted = producer.accepted.length
  await expect.poll(() => producer.refused.length, { interval: 10 }).toBeGreaterThan(20)
  expect(producer.accepted).toHaveLength(accepted)
  for (const { error } of producer.refused) {
    expect(error).toMatchObject({ mayBeStored: false, message: expect.stringContaining('NOREPLICAS') })
  }
  // What was granted before may still start, and no more.
  expect(Math.max(...fleet.slotsUs)).toBeLessThanOrEqual(refusedUs + 1000 + HORIZON_MS * 1000)

  await producer.stop()
  await replica.promote()
  front.redirect(replica.url)
  front.cut()
  await fleet.until(() => fleet.losses.length > 0 && safe.every((id) => fleet.completed.includes(id)))
  const lost = producer.accepted.filter((id) => !fleet.completed.includes(id)).length
  process.stdout.write(`refused after ${Math.round(refusedAfterMs)} ms; ${accepted} accepted, lost ${lost}\n`)
  // Redis counts the lag in whole seconds, once a second.
  expect(refusedAfterMs).toBeLessThan((MAX_LAG_S + 3) * 1000)
  expect(fleet.losses).toMatchObject([{ policy: 'hold' }])
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})
