import { afterAll, beforeAll, expect, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { useRedis } from '../../support/redis.ts'
import { jobs } from '../../worker/support.ts'
import { CallerFleet, PROCESSES } from './support/caller-fleet.ts'
import { expectOnce, expectPausesKept, expectTimesKept, HORIZON_MS } from './support/checks.ts'
import { type Dialect, dialects } from './support/dialects.ts'
import { useLimitedServer } from './support/limited-server.ts'

const JOBS = 60
/** What the server allows, and what the queue is configured to. */
const LIMIT = { perSecond: 40, burst: 20, drainedAt: 12, processes: PROCESSES }
const SHAPE = { rate: '120/s', horizonMs: HORIZON_MS }

const redis = useRedis(import.meta.url)
const server = useLimitedServer()
const fleet = new CallerFleet(redis)

/** Sends all jobs of a queue by three processes to one API, until it has let all of them in. */
async function send(dialect: Dialect, i: number) {
  const { profile, form } = dialect
  const api = server.open(dialect, LIMIT)
  const { connection, prefix } = redis
  const queue = new ShapedQueue(`q${i}`, { connection, prefix, shape: SHAPE })
  try {
    const ids = (await queue.addBulk(jobs(JOBS))).map(({ id }) => id as string)
    const task = { kind: 'http', url: api.url, form } as const
    const run = await fleet.open({ queue: queue.name, task, profile, concurrency: 4 })
    await run.until(() => run.ends.length >= JOBS)
    await fleet.close(queue.name)
    return { api, ids, run, counts: await queue.getJobCounts() }
  } finally {
    await queue.close()
  }
}

const sent = new Map<string, ReturnType<typeof send>>()

// All at the same time: most of it is waiting. The first test waits for the start of all processes too.
beforeAll(() => {
  for (const [i, dialect] of dialects.entries()) sent.set(dialect.name, send(dialect, i))
  // What failed is told by the test that waits for it.
  for (const sending of sent.values()) sending.catch(() => {})
})
afterAll(() => Promise.allSettled(sent.values()))

// Fault table, row 30.
test.each(dialects)('$name: a refusal holds three processes, and nothing is lost or sent twice', async ({ name }) => {
  const { api, ids, run, counts } = await sent.get(name)!
  const refused = api.requests.filter(({ allowed }) => !allowed)
  process.stdout.write(`${name}: ${JOBS} jobs, ${api.requests.length} requests, ${refused.length} of them refused\n`)
  expect(refused.length).toBeGreaterThan(0)
  expect(new Set(api.requests.map(({ process }) => process)).size).toBe(PROCESSES)
  // Without a time a few refusals are their own jobs' business.
  const isNamed = refused.some(({ notBeforeMs }) => notBeforeMs !== undefined)
  if (isNamed) expect(run.pauses.length).toBeGreaterThan(0)
  expectPausesKept(run)
  expectTimesKept(api.requests, run)
  expectOnce(ids, api.requests, run)
  expect(counts).toMatchObject({ completed: JOBS, failed: 0, waiting: 0, active: 0, delayed: 0 })
})
