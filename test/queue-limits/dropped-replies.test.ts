import { expect, onTestFinished, test } from 'vitest'
import type { QueueLimit, ShapedJob, ShapedQueue } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { quickConnection } from '../faults/support/own-redis.ts'
import { asks, ends, runs } from '../faults/support/scripts.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const { prefix } = redis

/** A job that is late for its slot goes back and is charged again: what a busy machine does is not looked at here. */
const PATIENT = { maxLatenessMs: 60_000 }

type Worker = Parameters<Fleet['worker']>

interface Scenario {
  readonly script: string | ((command: readonly string[]) => boolean)
  readonly jobs: number
  readonly options?: object
  readonly opts?: object
  readonly process?: Worker[2]
  /** Tokens that all of it costs. Default: 2 for each job. */
  readonly tokens?: number
  readonly attempts?: number
  /** Of the queue, beside the limits. */
  readonly shape?: object
}

const onceAgain = () => {
  let attempts = 0
  return async () => {
    attempts += 1
    if (attempts === 1) throw new Error('once')
  }
}

const SCENARIOS: Record<string, Scenario> = {
  'a grant of several jobs': { script: asks, jobs: 4 },
  'a grant with a rate': { script: asks, jobs: 4, shape: { rate: '200/s', burst: 4 } },
  'the end of a job, which fetches the next': { script: ends, jobs: 5, options: { concurrency: 1 } },
  'the end of a job that is not kept, which fetches the next': {
    ...{ script: ends, jobs: 5 },
    options: { concurrency: 1, removeOnComplete: { count: 0 } },
  },
  'a batch of jobs that end together': { script: ends, jobs: 150, options: { concurrency: 50 } },
  'a retry with a backoff, which fetches the next': {
    ...{ script: ends, jobs: 3, options: { concurrency: 1 }, opts: { attempts: 2, backoff: 30 } },
    ...{ process: onceAgain(), attempts: 4, tokens: 8 },
  },
  'a job that settles its cost': {
    ...{ script: 'settle-cost', jobs: 1, tokens: 7 },
    process: async (job) => (job as ShapedJob).settleCost({ tokens: 7 }),
  },
}

async function start({ shape }: Scenario) {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const rule = { algorithm: 'token-bucket', rate: '1/day', burst: 1000 } as const
  const [requests, tokens] = ['requests', 'tokens'].map((name) =>
    createLimiter(client, { name, prefix, timeoutMs: 10_000, ...rule }),
  ) as [ReturnType<typeof createLimiter>, ReturnType<typeof createLimiter>]
  await Promise.all([requests.reset(), tokens.reset()])
  const limits: QueueLimit[] = [
    { name: 'requests', shared: true, prefix, ...rule },
    { name: 'tokens', shared: true, prefix, unit: 'tokens', ...rule },
  ]
  const fleet = new Fleet()
  const queue: ShapedQueue = fleet.queue('dropped', { connection, prefix, shape: { ...PATIENT, ...shape, limits } })
  await queue.obliterate({ force: true })
  const charged = async () => [1000 - (await requests.peek()).remaining, 1000 - (await tokens.peek()).remaining]
  return { proxy, connection, fleet, queue, charged }
}

test.each(Object.entries(SCENARIOS))(
  'the reply is lost once, and the limits are charged once: %s',
  async (_name, scenario) => {
    const { script, jobs, options = {}, opts = {}, attempts = jobs, tokens = 2 * attempts, process } = scenario
    const { proxy, connection, fleet, queue, charged } = await start(scenario)
    await queue.addBulk(
      Array.from({ length: jobs }, (_, i) => ({ name: 'job', data: { i }, opts: { ...opts, costs: { tokens: 2 } } })),
    )
    const dropped = proxy.dropReplyOf(typeof script === 'string' ? runs(script) : script)
    const worker = fleet.worker('dropped', { connection, prefix, concurrency: 5, ...options }, process)
    await fleet.until(() => fleet.completed.length === jobs)
    await dropped
    await worker.close()
    expect(fleet.errors).toEqual([])
    expect(new Set(fleet.completed).size).toBe(jobs)
    expect(fleet.departures).toHaveLength(attempts)
    expect(await charged()).toEqual([attempts, tokens])
  },
)
