import { expect, onTestFailed, test } from 'vitest'
import { useRedis } from '../../support/redis.ts'
import { gate, jobs, Workshop } from '../../worker/support.ts'
import { CallerFleet, PROCESSES } from './support/caller-fleet.ts'
import { expectOnce, expectPausesKept, expectTimesKept } from './support/checks.ts'
import { dialects } from './support/dialects.ts'
import { useLimitedServer } from './support/limited-server.ts'
import type { Run } from './support/run.ts'

const JOBS = 200

/** The name of a queue's event, or what its feedback changed. */
function kindOf(fields: readonly string[]): string {
  const [, event = '', name, value = ''] = fields
  return event === 'feedback' && name === 'change' ? JSON.parse(value).kind : event
}

const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)
const server = useLimitedServer()
const fleet = new CallerFleet(redis)

test('without a rate a hard pause holds all three processes too, and then one job goes first', async () => {
  const queue = shop.queue()
  const opened = gate<Run>()
  // Whether the queue waits for its probe while what comes after the pause is answered.
  const probes: unknown[] = []
  const beforeAnswer = async () => {
    const { pauses, changes } = await opened.opened
    const [pause] = pauses
    if (!pause || Date.now() < pause.untilMs || changes.some(({ kind }) => kind === 'resumed')) return
    probes.push((await queue.meter()).feedback?.probing)
  }
  const dialect = dialects.find(({ name }) => name === 'Retry-After in seconds')!
  const limit = { perSecond: 1000, burst: 1000, drainedAt: 40, processes: PROCESSES, beforeAnswer }
  const api = server.open(dialect, limit)
  const ids = (await queue.addBulk(jobs(JOBS))).map(({ id }) => id as string)
  const task = { kind: 'http', url: api.url, form: 'response' } as const
  const run = await fleet.open({ queue: queue.name, task, profile: 'http', concurrency: 4, allowUnshaped: true })
  opened.open(run)
  // It waits for both: which of them did not come cannot be told by the time-out alone.
  onTestFailed(() => {
    process.stderr.write(`${run.ends.length} ends; ${JSON.stringify(run.changes)}; ${run.errors}\n`)
  })
  // The last job may end before its processes hear that the queue goes on.
  await run.until(() => run.ends.length >= JOBS && run.changes.some(({ kind }) => kind === 'resumed'))
  await fleet.close(queue.name)

  // In the order of Redis: where nothing holds a job, its slot is its process's estimate of the time, which may be early.
  const events = (await client.xrange(queue.toKey('events'), '-', '+')).map(([, fields]) => kindOf(fields))
  const resumed = events.indexOf('resumed')
  const sinceThePause = events.slice(events.lastIndexOf('pause', resumed), resumed)
  expect(sinceThePause.filter((event) => event === 'active')).toHaveLength(1)
  // Others are answered before this process hears that the queue goes on.
  expect(probes.filter(Boolean)).toEqual([true])
  expect(new Set(run.starts.map(({ pid }) => pid)).size).toBe(PROCESSES)
  expectPausesKept(run)
  expectTimesKept(api.requests, run)
  expectOnce(ids, api.requests, run)
  expect(await queue.meter()).toMatchObject({ cause: 'unpaced', pausedUntil: undefined })
})
