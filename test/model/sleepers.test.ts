import { Job } from 'bullmq'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { heldJobs } from '../../src/departure/held-job.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const heard = redis.client()
let held: HeldQueue
const messages: string[] = []

beforeAll(async () => {
  held = new HeldQueue(redis, client, 'asleep')
  heard.on('message', (_, message) => messages.push(message))
  await heard.subscribe(wakeChannel(held.base))
})

afterAll(() => held.close())

const HORIZON_US = 50_000
const PLACES = 100
const NEVER = Number.POSITIVE_INFINITY

/** A worker as its loop is asleep: until a time, or for the marker. */
interface Sleeper {
  readonly id: string
  /** Also while it sleeps until a time for which only groups hold the jobs. */
  isBlocked: boolean
  /** Its last call found every place of the global concurrency taken, or the queue paused. */
  isHalted: boolean
  /** While it is blocked, when the next delayed job is due, if that is known here. */
  askAtUs: number
}

/** The workers of a queue whose clock stands still between two events. */
class Fleet {
  readonly #workers: Sleeper[]
  readonly #running: { readonly id: string; readonly token: string; readonly worker: Sleeper }[] = []
  #asks = 0

  constructor(count: number) {
    this.#workers = Array.from({ length: count }, (_, i) => ({
      ...{ id: `w-${i}`, isBlocked: true, isHalted: false, askAtUs: NEVER },
    }))
  }

  /** Delivers what was published and marked, until all sleep again. */
  async settle(): Promise<void> {
    for (let turns = 0; ; turns++) {
      // Workers that wake each other without end would load Redis.
      expect(turns).toBeLessThan(100)
      const woken = (await published()).map((id) => this.#workers.find((one) => one.id === id) as Sleeper)
      const due = this.#workers.filter(({ askAtUs }) => askAtUs <= held.nowUs)
      const asking = new Set([...woken, ...due])
      const blocked = this.#workers.find((one) => one.isBlocked)
      if (asking.size === 0 && blocked) {
        const [marker, score] = await client.zpopmin(`${held.base}marker`)
        if (marker === '0') asking.add(blocked)
        else if (marker) blocked.askAtUs = Math.min(blocked.askAtUs, Number(score) * 1000)
      }
      if (asking.size === 0) return
      for (const worker of asking) await this.#ask(worker)
    }
  }

  /** One of the jobs that run ends. */
  async end(at: number): Promise<void> {
    const [ends] = this.#running.splice(at % Math.max(1, this.#running.length), 1)
    if (!ends) return
    const job = await Job.fromId(held.queue, ends.id)
    await job?.moveToCompleted('', ends.token, false)
    if (ends.worker.isHalted) await this.#ask(ends.worker)
  }

  /** When the first of those that sleep asks, µs; infinite if none does. */
  get firstUs(): number {
    return Math.min(...this.#workers.map(({ askAtUs }) => askAtUs))
  }

  /** The time goes on to the next moment at which a worker asks, or to a time before that. */
  async pass(us: number): Promise<void> {
    await held.advanceTo(Math.max(held.nowUs, Math.min(held.nowUs + us, this.firstUs)))
  }

  /** None is ever full: those that are hand on what they cannot take. */
  async #ask(worker: Sleeper): Promise<void> {
    this.#asks += 1
    const token = `${worker.id}:${this.#asks}`
    const reply = await held.backend.depart(token, undefined, {
      jobs: PLACES,
      horizonUs: HORIZON_US,
      longestHorizonUs: HORIZON_US,
      workerId: worker.id,
      allowUnshaped: false,
    })
    const { stop, wakeUs, nextUs, delayedMs, passable } = reply
    for (const job of heldJobs(reply, token)) this.#running.push({ id: job.id, token: job.token, worker })
    worker.isBlocked = stop !== 'closed' || passable
    worker.isHalted = stop === 'halted'
    worker.askAtUs = stop === 'closed' ? ((wakeUs ?? nextUs) as number) : delayedMs ? await nextDueUs() : NEVER
  }
}

/** When the next delayed job is due: replies say it by the clock of their caller, which goes on. */
async function nextDueUs(): Promise<number> {
  const [, score] = await client.zrange(`${held.base}delayed`, '0', '0', 'WITHSCORES')
  return score ? Math.floor(Number(score) / 4096) * 1000 : NEVER
}

/** The workers that were named since the last time. */
async function published(): Promise<string[]> {
  const fence = `fence ${Math.random()}`
  await client.publish(wakeChannel(held.base), fence)
  while (!messages.includes(fence)) await new Promise((resolve) => setImmediate(resolve))
  return messages.splice(0).filter((message) => message.startsWith('w-'))
}

type Event =
  | { readonly kind: 'add'; readonly opts: ShapedJobsOptions }
  | { readonly kind: 'bulk'; readonly opts: readonly ShapedJobsOptions[] }
  | { readonly kind: 'remove' | 'first' | 'last' | 'promote' | 'end'; readonly at: number }
  | { readonly kind: 'drain' }
  | { readonly kind: 'pass'; readonly us: number }

const opts: fc.Arbitrary<ShapedJobsOptions> = fc
  .record({
    priority: fc.constantFrom(0, 0, 1, 5, 9),
    cost: fc.integer({ min: 1, max: 10 }),
    costs: fc.option(fc.record({ tokens: fc.constantFrom(0, 1, 10) }), { nil: undefined }),
    lifo: fc.boolean(),
    delay: fc.constantFrom(0, 0, 0, 600_000),
    group: fc.constantFrom(undefined, 'a', 'b', 'c'),
  })
  .map(({ priority, costs, lifo, delay, cost, group }) => ({
    cost,
    ...(costs ? { costs } : {}),
    ...(group ? { group: { id: group, ...(priority ? { priority } : {}) } } : priority ? { priority } : { lifo }),
    ...(delay ? { delay } : {}),
  }))

const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('add' as const), opts }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('bulk' as const), opts: fc.array(opts, { minLength: 2, maxLength: 4 }) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom('remove' as const, 'first' as const, 'last' as const, 'promote' as const, 'end' as const),
      at: fc.nat(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('drain' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('pass' as const), us: fc.integer({ min: 1000, max: 200_000_000 }) }),
  },
)

const TOKENS = { name: 'tokens', algorithm: 'token-bucket', rate: '60/h', burst: 10, unit: 'tokens' } as const
const SHAPES: readonly Shape[] = [
  { rate: '60/min', burst: 10 },
  { limits: [TOKENS] },
  { rate: '600/min', burst: 10, limits: [TOKENS] },
  { rate: '60/min', burst: 10, priorityAgeingMs: 60_000 },
  { concurrency: 2 },
  { rate: '60/min', burst: 10, concurrency: 3 },
  { limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 12 }] },
  { groups: { concurrency: 1 }, concurrency: 3 },
]

/** Without groups in the shape, no job is given one. */
function optsFor(shape: Shape, { group, ...others }: ShapedJobsOptions): ShapedJobsOptions {
  return shape.groups && group ? { ...others, group } : others
}

async function apply(shape: Shape, fleet: Fleet, happens: Event): Promise<void> {
  if (happens.kind === 'add') await held.add(optsFor(shape, happens.opts))
  if (happens.kind === 'bulk') {
    await held.queue.addBulk(happens.opts.map((one) => ({ name: 'job', data: {}, opts: optsFor(shape, one) })))
  }
  if (happens.kind === 'end') await fleet.end(happens.at)
  if (happens.kind === 'drain') await held.queue.drain()
  if (happens.kind === 'promote') await (await jobAt('delayed', happens.at))?.promote()
  if (happens.kind === 'remove') await (await jobAt('waiting', happens.at))?.remove()
  if (happens.kind === 'first') await (await jobAt('waiting', happens.at))?.changePriority({ priority: 1 })
  if (happens.kind === 'last') await (await jobAt('waiting', happens.at))?.changePriority({ priority: 10 })
}

async function jobAt(state: 'waiting' | 'delayed', at: number) {
  const jobs = await held.queue.getJobs(state === 'waiting' ? ['wait', 'prioritized'] : ['delayed'], 0, -1, true)
  return jobs[at % Math.max(1, jobs.length)]
}

test('whatever happens, the first of the sleeping workers asks by the slot of the next job', async () => {
  const history = fc.array(event, { minLength: 5, maxLength: 25 })
  const workers = fc.integer({ min: 1, max: 16 })
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...SHAPES), workers, history, async (shape, count, events) => {
      await held.reset(shape)
      messages.splice(0)
      const fleet = new Fleet(count)
      await fleet.settle()
      for (const happens of events) {
        if (happens.kind === 'pass') await fleet.pass(happens.us)
        else await apply(shape, fleet, happens)
        await fleet.settle()
        // A stock worker that asks now changes nothing unless a job may start.
        const { grants, stop, nextUs } = await held.depart(1)
        expect(grants.length).toBe(0)
        if (stop === 'closed') expect(fleet.firstUs).toBeLessThanOrEqual(nextUs as number)
      }
    }),
    { numRuns: 60 },
  )
})
