import { expect, onTestFinished, test } from 'vitest'
import { startProxy } from '../support/proxy.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'
import { startReplica } from './support/replica.ts'

const RATE = 20
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 10 }
const HORIZON_MS = 50

/** A master with a replica, behind one address, and a queue with a backlog that two workers drain. */
async function start(onStateLoss: 'hold' | 'burst') {
  const master = await startOwnRedis({ args: ['--repl-diskless-sync-delay', '0'] })
  const front = await startProxy(master.url)
  onTestFinished(() => front.stop())
  const connection = quickConnection(front.url)
  const fleet = new Fleet()
  const shape = { rate: `${RATE}/s`, burst: BUCKET.burst, horizonMs: HORIZON_MS, onStateLoss }
  const queue = fleet.queue('mail', { connection, shape, admitTimeoutMs: 500 })
  const ids = idsOf(await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {} }))))
  const replica = await startReplica(master)
  for (let i = 0; i < 2; i++)
    fleet.worker('mail', { connection, concurrency: 10, lockDuration: 2000, stalledInterval: 500 })
  await fleet.until(() => fleet.departures.length >= BUCKET.burst + 5)
  return { master, replica, front, fleet, queue, ids }
}

// Fault table, row 8.
test.each([
  ['hold', () => 0],
  ['burst', (lagMs: number) => Math.min(BUCKET.burst, Math.ceil((lagMs * RATE) / 1000)) + (HORIZON_MS * RATE) / 1000],
] as const)(
  'a master is killed, and a replica that lags takes over (%s): the bound holds, and nothing older than the lag is lost',
  async (onStateLoss, mostAbove) => {
    const { master, replica, front, fleet, queue, ids } = await start(onStateLoss)
    const producer = new Producer(queue, { everyMs: 20 })
    await fleet.until(() => fleet.departures.length >= BUCKET.burst + 10)
    await replica.cut()
    const cutMs = performance.now()
    const safe = [...ids, ...producer.accepted]
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
    await queue.setShape({ rate: null }, { by: 'test', reason: 'to see the end' })
    await expect.poll(() => queue.getJobCountByTypes('wait', 'active'), { timeout: 20_000 }).toBe(0)

    const done = new Set(fleet.completed)
    const accepted = [...ids, ...producer.accepted]
    const lost = accepted.filter((id) => !done.has(id))
    const excess = worstExcess(slotsUs, BUCKET)
    process.stdout.write(
      `${onStateLoss}: lag ${Math.round(lagMs)} ms; ${accepted.length} accepted, lost ${lost.length}, ` +
        `run again ${fleet.departures.length - done.size}, worst excess ${excess.toFixed(2)}\n`,
    )
    expect(lost.filter((id) => safe.includes(id))).toEqual([])
    expect(fleet.losses).toMatchObject([{ policy: onStateLoss }])
    // What ended after the cut the replica knows as waiting, or as running under another lock.
    const errors = fleet.errors.filter(({ error }) => !error.message.startsWith('Missing lock for job'))
    expect({ failed: fleet.failed, errors }).toEqual({ failed: [], errors: [] })
    expect(excess).toBeLessThanOrEqual(mostAbove(lagMs))
  },
  60_000,
)
