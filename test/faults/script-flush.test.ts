import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer } from '../../src/index.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

/** Makes Redis forget every script, over and over, until it is stopped. */
function flushScripts(url: string) {
  const admin = adminOf(url)
  let stopped = false
  let flushes = 0
  const run = async () => {
    while (!stopped) {
      await admin.script('FLUSH')
      flushes += 1
      await sleep(2)
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

// Fault table, row 18.
test('scripts forgotten every few milliseconds: adds, bulks, flows and workers lose and fail nothing', async () => {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: { rate: '2000/s', burst: 50, capacity: 5000 } })
  await queue.waitUntilReady()
  const flows = new ShapedFlowProducer({ connection })
  onTestFinished(() => flows.close())
  for (let i = 0; i < 2; i++) fleet.worker('mail', { connection, concurrency: 20 })

  const stop = flushScripts(service.url)
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
  process.stdout.write(`scripts forgotten ${flushes} times, ${ids.length} jobs, ${fleet.departures.length} starts\n`)
  expect(flushes).toBeGreaterThan(10)
  expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
  expect(fleet.departures.map(({ jobId }) => jobId).toSorted()).toEqual(ids.toSorted())
  expect(await queue.getJobCounts('completed', 'failed', 'active', 'waiting', 'waiting-children', 'delayed')).toEqual({
    completed: ids.length,
    failed: 0,
    active: 0,
    waiting: 0,
    'waiting-children': 0,
    delayed: 0,
  })
})
