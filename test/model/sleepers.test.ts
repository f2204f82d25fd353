import { Job } from 'bullmq'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { heldJobs } from '../../src/departure/held-job.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { someOf } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const heard = redis.client()
let held: HeldQueue
let other: HeldQueue
const messages: string[] = []

beforeAll(async () => {
  held = new HeldQueue(redis, client, 'asleep')
  other = new HeldQueue(redis, client, 'copy')
  heard.on('message', (_, message) => messages.push(message))
  await heard.subscribe(wakeChannel(held.base))
})

afterAll(() => Promise.all([held.close(), other.close()]))

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

  /** One of the jobs that run ends. Returns whether one did. */
  async end(at: number, fails: boolean): Promise<boolean> {
    const [ends] = this.#running.splice(at % Math.max(1, this.#running.length), 1)
    const job = ends && (await Job.fromId(held.queue, ends.id))
    if (!job) return false
    if (fails) await job.moveToFailed(new Error('failed'), ends.token, false)
    else await job.moveToCompleted('', ends.token, false)
    if (ends.worker.isHalted) await this.#ask(ends.worker)
    return true
  }

  /** One of the jobs that run cost nothing after all. */
  async settleCost(at: number): Promise<boolean> {
    const running = this.#running[at % Math.max(1, this.#running.length)]
    if (!running) return false
    const job = await Job.fromId(held.queue, running.id)
    // A unit that no limit counts is none of the shape's.
    for (const unit of ['', 'tokens']) {
      const args = [running.id, job?.attemptsStarted ?? 1, JSON.stringify({ [unit]: 0 }), 60_000]
      await held.backend.store.run('settle-cost', args)
    }
    return true
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
    const reply = await held.departAs(worker.id, { jobs: PLACES, horizonUs: HORIZON_US })
    const { stop, wakeUs, nextUs, delayedMs, passable } = reply
    for (const job of heldJobs(reply)) this.#running.push({ id: job.id, token: job.token, worker })
    worker.isBlocked = stop !== 'closed' || passable
    worker.isHalted = stop === 'halted'
    worker.askAtUs = stop === 'closed' ? ((wakeUs ?? nextUs) as number) : delayedMs ? await nextDueUs(held) : NEVER
  }
}

/** When a job starts if a stock worker asks at each time until `by`; infinite if none does. */
async function nextStartUs(by: number): Promise<number> {
  await other.copy(held)
  try {
    for (;;) {
      const { grants, stop, nextUs } = await other.depart(1)
      if (grants.length > 0) return other.nowUs
      const at = Math.min(stop === 'closed' ? (nextUs as number) : NEVER, await nextDueUs(other))
      if (at > by || at === NEVER) return NEVER
      expect(at).toBeGreaterThan(other.nowUs)
      await other.advanceTo(at)
    }
  } finally {
    await held.advanceTo(held.nowUs)
  }
}

/** When the next delayed job is due: replies say it by the clock of their caller, which goes on. */
async function nextDueUs(queue: HeldQueue): Promise<number> {
  const [, score] = await client.zrange(`${queue.base}delayed`, '0', '0', 'WITHSCORES')
  return score ? Math.floor(Number(score) / 4096) * 1000 : NEVER
}

/** The workers that were named since the last time. */
async function published(): Promise<string[]> {
  const fence = `fence ${Math.random()}`
  await client.publish(wakeChannel(held.base), fence)
  while (!messages.includes(fence)) await new Promise((resolve) => setImmediate(resolve))
  return messages.splice(0).filter((message) => message.startsWith('w-'))
}

const AT = ['remove', 'first', 'last', 'promote', 'sooner', 'end', 'fail', 'retry', 'settle'] as const
const PLAIN = ['drain', 'ask', 'pause', 'resume'] as const
const GROUP = ['pauseGroup', 'resumeGroup', 'slowGroup', 'freeGroup'] as const

type Event =
  | { readonly kind: 'add'; readonly opts: ShapedJobsOptions }
  | { readonly kind: 'bulk'; readonly opts: readonly ShapedJobsOptions[] }
  | { readonly kind: (typeof AT)[number]; readonly at: number }
  | { readonly kind: (typeof PLAIN)[number] }
  | { readonly kind: (typeof GROUP)[number]; readonly group: string }
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
  { weight: 7, arbitrary: fc.record({ kind: fc.constantFrom(...AT), at: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom(...PLAIN) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom(...GROUP), group: fc.constantFrom('a', 'b') }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('pass' as const), us: fc.integer({ min: 1000, max: 200_000_000 }) }),
  },
)

const TOKENS = { name: 'tokens', algorithm: 'token-bucket', rate: '60/h', burst: 10, unit: 'tokens' } as const
const OWN = { ...TOKENS, name: 'own', rate: '600/h', by: 'group' } as const
const PLACES_LIMIT = { name: 'places', algorithm: 'concurrency', concurrency: 12 } as const
const SLOW = { rate: '60/min', burst: 10 } as const
const FAST = { rate: '600/min', burst: 10 } as const
const SHAPES: readonly Shape[] = [
  SLOW,
  { limits: [TOKENS] },
  { ...FAST, limits: [TOKENS] },
  { ...SLOW, priorityAgeingMs: 60_000 },
  { concurrency: 2 },
  { ...SLOW, concurrency: 3 },
  { limits: [PLACES_LIMIT] },
  { groups: { concurrency: 1 }, concurrency: 3 },
  { groups: SLOW },
  { groups: SLOW, ...FAST },
  { groups: {}, ...SLOW },
  { groups: {}, limits: [TOKENS] },
  { groups: { ungrouped: 'first' }, limits: [TOKENS] },
  { groups: {}, limits: [OWN] },
  { groups: {}, ...FAST, limits: [TOKENS, OWN] },
  { groups: { concurrency: 1 }, ...SLOW },
  { groups: { concurrency: 2, ...SLOW }, limits: [TOKENS] },
  { groups: {}, ...FAST, limits: [TOKENS], priorityAgeingMs: 60_000 },
  { groups: SLOW, priorityAgeingMs: 60_000 },
  { groups: SLOW, limits: [PLACES_LIMIT] },
]

/** Histories for each shape: `SLEEPERS_RUNS=300` for more. */
const RUNS = Number(process.env.SLEEPERS_RUNS ?? 2)

/** Without groups in the shape, no job is given one. */
function optsFor(shape: Shape, { group, ...others }: ShapedJobsOptions): ShapedJobsOptions {
  return shape.groups && group ? { ...others, group } : others
}

/** Does it, and returns whether there was something to do it to. */
async function apply(shape: Shape, fleet: Fleet, happens: Event): Promise<boolean> {
  const { kind } = happens
  if (kind === 'add') return Boolean(await held.add(optsFor(shape, happens.opts)))
  if (kind === 'bulk') {
    await held.queue.addBulk(happens.opts.map((one) => ({ name: 'job', data: {}, opts: optsFor(shape, one) })))
  } else if (kind === 'pass') await fleet.pass(happens.us)
  else if (kind === 'ask') await held.depart(1)
  else if (kind === 'drain' || kind === 'pause' || kind === 'resume') await held.queue[kind]()
  else if ('group' in happens) return changeGroup(shape, happens)
  else if (kind === 'end' || kind === 'fail') return fleet.end(happens.at, kind === 'fail')
  else if (kind === 'settle') return fleet.settleCost(happens.at)
  else return applyToJob(happens as { kind: keyof typeof ON_JOB; at: number })
  return true
}

const GROUP_CHANGES: Record<(typeof GROUP)[number], readonly [object, number?]> = {
  pauseGroup: [{ paused: true }, 30_000],
  resumeGroup: [{ paused: { clear: true } }],
  slowGroup: [{ rate: [1, 60_000], burst: 10 }, 90_000],
  freeGroup: [{ rate: null }],
}

async function changeGroup(shape: Shape, { kind, group }: Extract<Event, { readonly group: string }>) {
  if (!shape.groups) return false
  const [change, ttlMs] = GROUP_CHANGES[kind]
  await held.backend.store.changeGroup(group, change, { by: 'test', reason: 'test' }, ttlMs)
  return true
}

const ON_JOB = {
  remove: ['waiting', (job: Job) => job.remove()],
  first: ['waiting', (job: Job) => job.changePriority({ priority: 1 })],
  last: ['waiting', (job: Job) => job.changePriority({ priority: 10 })],
  promote: ['delayed', (job: Job) => job.promote()],
  sooner: ['delayed', (job: Job) => job.changeDelay(1)],
  retry: ['failed', (job: Job) => job.retry('failed')],
} as const

const STATES = { waiting: ['wait', 'prioritized'], delayed: ['delayed'], failed: ['failed'] } as const

async function applyToJob({ kind, at }: { kind: keyof typeof ON_JOB; at: number }): Promise<boolean> {
  const [state, change] = ON_JOB[kind]
  const jobs = await held.queue.getJobs([...STATES[state]], 0, -1, true)
  const job = jobs[at % Math.max(1, jobs.length)]
  if (job) await change(job)
  return job !== undefined
}

/** One job takes all that it may, one waits behind it, one behind that is free, and one is delayed. */
const HELD: readonly Event[] = [
  { kind: 'add', opts: { cost: 10, costs: { tokens: 10 }, group: { id: 'a' } } },
  { kind: 'add', opts: { cost: 10, costs: { tokens: 10 }, group: { id: 'a' } } },
  { kind: 'add', opts: { cost: 1, costs: { tokens: 0 }, group: { id: 'b' } } },
  { kind: 'add', opts: { cost: 1, costs: { tokens: 0 }, delay: 600_000 } },
]

/** A job starts. */
const STARTED: readonly Event[] = [
  { kind: 'drain' },
  { kind: 'pass', us: 200_000_000 },
  { kind: 'pass', us: 200_000_000 },
  { kind: 'add', opts: { cost: 1, costs: { tokens: 0 } } },
]

const KINDS = ['add', 'bulk', ...AT, ...PLAIN, ...GROUP, 'pass'] as const

/** Each kind of event, while jobs wait, run and are delayed. */
const CROSS: readonly Event[] = KINDS.flatMap((kind): readonly Event[] => {
  if (kind === 'add') return [...HELD, { kind, opts: { costs: { tokens: 0 }, lifo: true } }]
  if (kind === 'bulk') return [...HELD, { kind, opts: [{}, { costs: { tokens: 0 }, group: { id: 'c' } }] }]
  if (kind === 'pass') return [{ kind, us: 1_000_000 }]
  const runs = kind === 'end' || kind === 'fail' || kind === 'settle'
  if (AT.includes(kind as never))
    return [...(runs ? STARTED : []), ...HELD.slice(1), { kind: kind as (typeof AT)[number], at: 0 }]
  if (GROUP.includes(kind as never)) return [...HELD.slice(2), { kind: kind as (typeof GROUP)[number], group: 'a' }]
  return [...HELD.slice(1), { kind: kind as (typeof PLAIN)[number] }]
})

test.each(someOf(SHAPES).map((shape) => [JSON.stringify(shape), shape] as const))(
  'whatever happens, the first of the sleeping workers asks by the start of the next job: %s',
  async (_, shape) => {
    const met = new Set<string>()
    const check = async (count: number, events: readonly Event[]) => {
      await held.reset(shape)
      messages.splice(0)
      const fleet = new Fleet(count)
      await fleet.settle()
      for (const happens of events) {
        if (await apply(shape, fleet, happens)) met.add(happens.kind)
        await fleet.settle()
        // A delayed job is due at a whole ms, and no worker asks again within one.
        expect(fleet.firstUs).toBeLessThanOrEqual((await nextStartUs(fleet.firstUs)) + 1000)
      }
    }
    const histories = fc.array(event, { minLength: 5, maxLength: 25 })
    await fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 16 }), histories, check), {
      numRuns: RUNS + 1,
      examples: [[2, [...CROSS]]],
    })
    const expected = KINDS.filter((kind) => shape.groups || !GROUP.includes(kind as never))
    expect([...met].sort()).toEqual([...expected].sort())
  },
)
