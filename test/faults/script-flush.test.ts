import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer } from '../../src/index.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

const BUCKET = { intervalUs: 500, burst: 50 }

/** Makes Redis forget, over and over, until it is stopped. */
function flush(url: string, command: 'SCRIPT' | 'FUNCTION', everyMs: number) {
  const admin = adminOf(url)
  let stopped = false
  let flushes = 0
  const run = async () => {
    while (!stopped) {
      await admin.call(command, 'FLUSH')
      flushes += 1
      await sleep(everyMs)
    }
  }
  const running = run()
  const stop = async () => {
    stopped = true
    await running
    return flushes
  }
  onTestFinished(() => stop().then(() => {}))
  return stop
}

// Fault table, row 18. A library is loaded in about 15 ms.
test.each([
  ['functions', 'FUNCTION', 'auto', 25],
  ['scripts', 'SCRIPT', 'never', 2],
] as const)(
  '%s forgotten every few milliseconds: adds, bulks, flows and workers lose and fail nothing',
  async (what, command, functions, everyMs) => {
    const service = await startOwnRedis()
    const connection = quickConnection(service.url)
    const fleet = new Fleet()
    const queue = fleet.queue('mail', { connection, functions, shape: { rate: '2000/s', burst: 50, capacity: 5000 } })
    await queue.waitUntilReady()
    const flows = new ShapedFlowProducer({ connection, functions })
    onTestFinished(() => flows.close())
    for (let i = 0; i < 2; i++) fleet.worker('mail', { connection, functions, concurrency: 20 })

    const stop = flush(service.url, command, everyMs)
    const ids: string[] = []
    for (let round = 0; round < 20; round++) {
      const bulk = Array.from({ length: round % 10 === 0 ? 250 : 20 }, () => ({ name: 'bulk', data: {} }))
      const [flow, added, ...singles] = await Promise.all([
        flows.add({
          name: 'parent',
          queueName: 'mail',
          children: [1, 2, 3].map(() => ({ name: 'child', queueName: 'mail' })),
        }),
        queue.addBulk(bulk),
        ...[1, 2, 3].map(() => queue.add('single', {})),
        queue.add('delayed', {}, { delay: 5 }),
        queue.add('prioritized', {}, { priority: 3 }),
      ])
      ids.push(...idsOf([flow.job, ...(flow.children ?? []).map(({ job }) => job), ...added, ...singles]))
    }
    await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))

    const flushes = await stop()
    process.stdout.write(`${what} forgotten ${flushes} times, ${ids.length} jobs, ${fleet.departures.length} starts\n`)
    expect(flushes).toBeGreaterThan(10)
    expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
    expect(fleet.departures.map(({ jobId }) => jobId).toSorted()).toEqual(ids.toSorted())
    expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
    expect(await queue.getJobCounts('completed', 'failed', 'active', 'waiting', 'waiting-children', 'delayed')).toEqual(
      {
        completed: ids.length,
        failed: 0,
        active: 0,
        waiting: 0,
        'waiting-children': 0,
        delayed: 0,
      },
    )
  },
)
