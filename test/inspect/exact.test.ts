import fc from 'fast-check'
import { fastify } from 'fastify'
import { expect, test } from 'vitest'
import { dashboard } from '../../packages/dashboard/src/index.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import type { Shape, ShapedQueue } from '../../src/index.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import type { RateInput } from '../../src/rate.ts'
import { Schedule } from '../model/schedule.ts'
import { many, Taker } from '../queue/support.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000
const JOBS = 12
const RUNS = caseCount(30, 'EXACT_RUNS')
const SLOW = { limit: 1, period: 40_000 }
const FASTER = { rate: '60/min', burst: 2 }
const JOB = { cost: 1, runsUs: 0 }

const LIMITS: readonly QueueLimit[] = [
  { name: 'window', algorithm: 'fixed-window', rate: '4/h', align: 'first' },
  { name: 'epoch', algorithm: 'fixed-window', rate: '5/day', align: 'epoch' },
  { name: 'log', algorithm: 'sliding-window-log', rate: '3/min' },
  { name: 'counter', algorithm: 'sliding-window-counter', rate: '6/h' },
  { name: 'gcra', algorithm: 'gcra', rate: '12/min', burst: 2 },
  { name: 'token', algorithm: 'token-bucket', rate: '9/min', burst: 3 },
  { name: 'leaky', algorithm: 'leaky-bucket', rate: '20/min', burst: 1 },
]

/** A queue, and the schedule that has heard of all that happened to it. */
class Bench {
  readonly queue: ShapedQueue
  readonly schedule: Schedule
  readonly #taker: Taker
  #rate: RateInput
  #burst: number
  #isSlow = false

  private constructor(queue: ShapedQueue, shape: Shape, startUs: number) {
    this.queue = queue
    this.#taker = new Taker(shop, queue)
    this.#rate = shape.rate as RateInput
    this.#burst = shape.burst as number
    this.schedule = new Schedule({ ...shape, burst: this.#burst }, startUs)
  }

  static async open(shape: Shape): Promise<Bench> {
    const queue = shop.queue(shape)
    await queue.waitUntilReady()
    await queue.addBulk(many(JOBS))
    await redis.client().sadd(`${prefix}:shaped-queues`, queue.name)
    return new Bench(queue, shape, await changedUs(queue))
  }

  async take(): Promise<void> {
    const job = await this.#taker.tryTake()
    if (!job) return
    const slotUs = Number(await redis.client().hget(this.queue.toKey(job.id as string), 'departure'))
    this.schedule.moveTo(slotUs)
    expect(this.schedule.slotUs(JOB), 'the slot that was granted').toBeLessThanOrEqual(slotUs)
    this.schedule.depart(JOB, slotUs)
  }

  async pause(): Promise<void> {
    const untilMs = Date.now() + 90_000
    await this.queue.pauseUntil(untilMs, { reason: 'test' })
    this.schedule.apply({ atUs: 0, pausedUntilUs: untilMs * 1000 })
  }

  async override(): Promise<void> {
    await this.queue.setShape(FASTER, { by: 'ops', reason: 'test' })
    ;[this.#rate, this.#burst] = [FASTER.rate, FASTER.burst]
    await this.#reshape()
  }

  async slower(): Promise<void> {
    await this.#feed({ kind: 'slow', rate: SLOW })
    this.#isSlow = true
    await this.#reshape()
  }

  fewerAtOnce(): Promise<void> {
    return this.#feed({ kind: 'concurrency', limit: 1 })
  }

  async #feed(feedback: object): Promise<void> {
    const found = [{ feedback: { ...feedback, ttlMs: HOUR_MS, scope: 'queue', source: 'http', reason: '429' } }]
    const request = { found, sentUs: Date.now() * 1000, by: 'test', adapt: undefined, oks: 0 }
    await applyFeedback(this.queue.getBackend().store, encodeFeedbackRequest(request as never))
  }

  async #reshape(): Promise<void> {
    const rate = this.#isSlow ? SLOW : this.#rate
    this.schedule.apply({ atUs: await changedUs(this.queue), holds: { rate, burst: this.#burst } })
  }
}

async function changedUs(queue: ShapedQueue): Promise<number> {
  return Number(await redis.client().hget(queue.toKey('meta:shape'), 'changedAt'))
}

/** What the page tells of the next departure. */
async function pageNextMs(name: string): Promise<number> {
  const app = fastify()
  await app.register(dashboard({ connection, prefix }))
  const answer = await app.inject({ url: `/api/queues/${name}`, headers: { host: 'localhost' } })
  await app.close()
  return new Date(answer.json().status.nextDepartureAt).getTime()
}

/** Every view's word for the next start, and explain's for the start of a job behind it. */
async function expectExact({ queue, schedule }: Bench, place: number): Promise<void> {
  const inspector = inspectorOf(redis, shop)
  const before = await statusOf(inspector, queue.name)
  const meter = await queue.meter()
  const pageMs = await pageNextMs(queue.name)
  const ids = (await queue.getWaiting()).map(({ id }) => id as string)
  const [head, behind] = [ids[0], ids[Math.min(place, ids.length - 1)]]
  const first = await inspector.explain(queue.name, head as string)
  const other = await inspector.explain(queue.name, behind as string)
  const after = await statusOf(inspector, queue.name)
  schedule.moveTo(before.at.getTime() * 1000)
  const exactMs = Array.from({ length: (other?.ahead ?? 0) + 1 }, () => {
    return schedule.depart(JOB, schedule.slotUs(JOB)) / 1000
  })
  // What may leave now is told to leave when it is asked for.
  const tookMs = after.at.getTime() - before.at.getTime()
  const expectNear = (toldMs: number | undefined, ms: number | undefined, what: string) => {
    expect((toldMs ?? 0) - (ms ?? 0), what).toBeGreaterThanOrEqual(-1)
    expect((toldMs ?? 0) - (ms ?? 0), what).toBeLessThanOrEqual(tookMs + 1)
  }
  expectNear(before.nextDepartureAt?.getTime(), exactMs[0], 'status')
  expectNear(meter.nextDepartureAt?.getTime(), exactMs[0], 'the meter')
  expectNear(pageMs, exactMs[0], 'the dashboard')
  if (before.concurrency && before.active >= before.concurrency.inForce) {
    // It is not known when running jobs end.
    expect([first?.startsAt, other?.startsAt]).toEqual([undefined, undefined])
    return
  }
  // No worker has asked for a second: on a busy machine it may take so long to look.
  if (after.hold?.cause === 'workers' && !(first?.startsAt && other?.startsAt)) return
  expectNear(first?.startsAt?.getTime(), exactMs[0], 'explain, of the head')
  expectNear(other?.startsAt?.getTime(), exactMs.at(-1), `explain, of one behind ${other?.ahead}`)
}

const step = fc.constantFrom('take', 'take', 'take', 'pause', 'override', 'slower', 'fewerAtOnce' as const)
const state = fc.record({
  shape: fc.record({
    rate: fc.constantFrom('6/min', '30/min', '1000/s'),
    burst: fc.constantFrom(1, 3),
    limits: fc.subarray([...LIMITS], { maxLength: 3 }),
    concurrency: fc.constantFrom(undefined, 2, 9),
  }),
  steps: fc.array(step, { maxLength: 7 }),
  place: fc.nat(JOBS - 1),
})

test('status, the meter, the dashboard and explain tell the starts of the exact schedule', {
  timeout: 120_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(state, async ({ shape: { limits, concurrency, ...rest }, steps, place }) => {
      const limited = limits.length > 0 ? { limits } : {}
      const bench = await Bench.open({ ...rest, ...limited, ...(concurrency === undefined ? {} : { concurrency }) })
      for (const name of steps) await bench[name as 'take']()
      await expectExact(bench, place)
    }),
    { numRuns: RUNS, includeErrorInReport: true },
  )
})
