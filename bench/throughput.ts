import type { JobsOptions, Queue } from 'bullmq'
import type { QueueLimit, Shape } from 'sluice'
import { createMetrics } from 'sluice-metrics'
import { type Asked, atLeast, atMost, compared, rounds } from './harness/compare.ts'
import { type Bench, connectionTo, type Figure, inTurn, type Row } from './harness/figure.ts'
import {
  addInFlight,
  addJobs,
  amongGroups,
  makeQueue,
  OPEN_GROUPS,
  OPEN_METER,
  type OptionsOf,
  removeQueue,
  type System,
} from './harness/queues.ts'
import { type Cost, costOf } from './harness/redis.ts'
import { type Drained, drainOnce } from './harness/workers.ts'

const MEASURES = {
  throughput: ({ perSecond }: Cost) => perSecond,
  'client CPU per job': ({ clientUs }: Cost) => clientUs,
  'Redis CPU per job': ({ redisUs }: Cost) => redisUs,
  'time in scripts per job': ({ scriptUs }: Cost) => scriptUs,
  'scripts per job': ({ calls }: Cost) => calls,
} as const

/** A ratio of two ways. */
interface Compared {
  readonly ours: string
  readonly over: string
  /** Default: throughput. */
  readonly of?: keyof typeof MEASURES
  readonly asked?: Asked
}

/** What is done in several ways, and how these compare. */
interface Case<Way> {
  readonly what: string
  readonly ways: Readonly<Record<string, Way>>
  readonly rows: readonly Compared[]
}

async function rowsOf<Way>(bench: Bench, one: Case<Way>, measure: (way: Way) => Promise<Cost>): Promise<Row[]> {
  const { what, ways, rows } = one
  const measured = await rounds(bench.quick, Object.keys(ways), (name) => measure(ways[name] as Way))
  return rows.map(({ of = 'throughput', ours, over, asked }) =>
    compared(`${what}: ${of}, ${ours} over ${over}`, measured, { ours, over: [over], of: MEASURES[of], asked }),
  )
}

interface Way extends Partial<Drained> {
  /** Default: Sluice. */
  readonly system?: System
  /** One scrape of the metrics per second, a high frequency in practice. */
  readonly isScraped?: true
}

interface DrainCase extends Case<Way> {
  readonly drained: Pick<Drained, 'concurrency' | 'jobs'> & Partial<Drained>
}

async function drainWay(bench: Bench, drained: DrainCase['drained'], way: Way): Promise<Cost> {
  const { system = 'sluice', isScraped, ...how } = way
  if (!isScraped) return drainOnce(bench, system, { ...drained, ...how })
  const metrics = createMetrics({ connection: connectionTo(bench.redis) })
  const timer = setInterval(() => void metrics.text(), 1000)
  try {
    return await drainOnce(bench, system, { ...drained, ...how })
  } finally {
    clearInterval(timer)
    await metrics.close()
  }
}

/**
 * V8 compiles the code of a worker during its first thousands of jobs, and a worker runs for days: each process drains
 * this many before it is measured, one at a time and many.
 */
const WARM_UP_JOBS = 20_000
const METHOD = 'median of interleaved rounds, the first discarded, and their spread'

function drains(name: string, what: string, beside: string, cases: readonly DrainCase[]): Figure {
  return {
    name,
    title: `Drain of a backlog by one worker with an empty processor, ${what}: ${METHOD}`,
    headings: ['', 'asked', 'reached', 'ok', beside],
    run: async (bench) => {
      for (const way of Object.values(cases[0]?.ways ?? {}))
        for (const concurrency of [1, 50]) await drainWay(bench, { concurrency, jobs: WARM_UP_JOBS }, way)
      return inTurn(cases, (one) =>
        rowsOf(bench, { ...one, what: `${one.what}, ${one.drained.concurrency} at once` }, (way) =>
          drainWay(bench, one.drained, way),
        ),
      )
    },
  }
}

const SYSTEMS = { bullmq: { system: 'bullmq' }, sluice: { system: 'sluice' } } as const
const OVER_BULLMQ = { ours: 'sluice', over: 'bullmq' } as const

/** What is asked of throughput, where jobs are kept and where they are removed, and of the client's CPU time. */
const PLAIN = [
  { concurrency: 1, jobs: 4000, kept: 0.95, removed: 0.95, cpu: 1.1 },
  { concurrency: 10, jobs: 10_000, kept: 1, removed: 1 },
  { concurrency: 50, jobs: 15_000, kept: 1.15, removed: 1.1, cpu: 0.8 },
  { concurrency: 200, jobs: 20_000, kept: 1.3, removed: 1.25 },
] as const
const REMOVED = {
  'removeOnComplete: true': { opts: { removeOnComplete: true } },
  "the worker's removeOnComplete: { count: 0 }": { removeOnComplete: { count: 0 } },
}

const drain = drains('drain', "over BullMQ's Worker", "BullMQ's own", [
  ...PLAIN.map(({ concurrency, jobs, kept, ...more }): DrainCase => {
    const throughput = { ...OVER_BULLMQ, asked: atLeast(kept) }
    const cpu = 'cpu' in more && ({ ...OVER_BULLMQ, of: 'client CPU per job', asked: atMost(more.cpu) } as const)
    const rows = cpu ? [throughput, cpu] : [throughput]
    return { what: 'jobs kept', ways: SYSTEMS, drained: { concurrency, jobs }, rows }
  }),
  ...Object.entries(REMOVED).flatMap(([what, how]) =>
    PLAIN.map(({ concurrency, jobs, removed }): DrainCase => {
      const rows = [{ ...OVER_BULLMQ, asked: atLeast(removed) }]
      return { what, ways: SYSTEMS, drained: { concurrency, jobs, ...how }, rows }
    }),
  ),
  {
    what: 'open meter',
    ways: SYSTEMS,
    drained: { concurrency: 50, jobs: 15_000, shape: OPEN_METER },
    rows: [{ ...OVER_BULLMQ, asked: atLeast(1) }],
  },
])

const FIFTY = { concurrency: 50, jobs: 15_000 }
const watched = drains('watched', 'with everything on: reports, the audit stream, and scrapes', 'with nothing on', [
  {
    what: 'through the meter, each departure audited',
    drained: FIFTY,
    ways: {
      plain: { shape: OPEN_METER, report: false },
      watched: { shape: { ...OPEN_METER, audit: true }, isScraped: true },
    },
    rows: [{ ours: 'watched', over: 'plain', asked: atLeast(0.95) }],
  },
  {
    what: 'no rate',
    drained: FIFTY,
    ways: { plain: { report: false }, watched: { isScraped: true } },
    rows: [{ ours: 'watched', over: 'plain', asked: atLeast(0.95) }],
  },
])

const BATCHES = [
  { concurrency: 1, jobs: 10_000, asked: 2, calls: 0.1 },
  { concurrency: 10, jobs: 20_000, asked: 1, calls: 0.5 },
]
/** What a batch saves where the processor does nothing: the rest is what it is for. */
const batches = drains(
  'batches',
  'in batches of 50 over single jobs',
  'single jobs',
  BATCHES.map(({ asked, calls, ...drained }) => ({
    what: 'no rate',
    drained,
    ways: { single: {}, batches: { batch: { size: 50 } } },
    rows: [
      { ours: 'batches', over: 'single', asked: atLeast(asked) },
      { ours: 'batches', over: 'single', of: 'scripts per job', asked: atMost(calls) },
    ],
  })),
)

/** So many that no limit holds a job. */
const MANY = 10_000_000
const LIMITS = [
  { name: 'per-second', algorithm: 'gcra', rate: { limit: MANY, period: 1000 }, burst: MANY },
  { name: 'per-hour', algorithm: 'sliding-window-counter', rate: { limit: MANY, period: 3_600_000 } },
  { name: 'per-day', algorithm: 'fixed-window', rate: { limit: MANY, period: 86_400_000 } },
] as unknown as readonly QueueLimit[]

const limits = drains(
  'limits-departures',
  'under gcra per second, a sliding counter per hour and a fixed window per day',
  'without limits',
  [FIFTY, { concurrency: 200, jobs: 20_000 }].map((drained) => ({
    what: 'three limits',
    drained,
    ways: { none: {}, limited: { shape: { limits: LIMITS } } },
    rows: [{ ours: 'limited', over: 'none', asked: atLeast(0.9) }],
  })),
)

const groups = drains('groups-drain', 'of 100 groups', 'without groups', [
  {
    what: 'no rate',
    drained: FIFTY,
    ways: {
      bullmq: { system: 'bullmq' },
      none: {},
      groups: { shape: { groups: {} }, opts: amongGroups(100) },
      'with a rate and a concurrency': { shape: { groups: OPEN_GROUPS }, opts: amongGroups(100) },
    },
    rows: [
      { ours: 'groups', over: 'bullmq', asked: atLeast(0.85) },
      { ours: 'with a rate and a concurrency', over: 'bullmq', asked: atLeast(0.7) },
      { ours: 'groups', over: 'none', asked: atLeast(0.75) },
      { ours: 'with a rate and a concurrency', over: 'none', asked: atLeast(0.65) },
    ],
  },
])

const BY = ['model', 'host', 'plan', ['model', 'plan']] as const
const byKeys = (count: number): Shape => ({
  groups: OPEN_GROUPS,
  limits: BY.slice(0, count).map((by, i) => ({ name: `l${i}`, by, rate: '1000000/s', burst: 1_000_000 })),
})

/** Jobs of 100 groups, each with three keys of so many values. */
const keyed =
  (values: number) =>
  (i: number): JobsOptions => {
    const keys = { model: `m${i % values}`, host: `h${(i * 7) % values}`, plan: `p${(i * 13) % values}` }
    return { group: { id: `g${i % 100}` }, keys } as JobsOptions
  }

const inScripts = (ours: string, over: string, most: number): Compared => {
  return { ours, over, of: 'time in scripts per job', asked: atMost(most) }
}

const keys = drains('keys-departures', 'with limits by keys', 'groups with a rate, or few keys', [
  {
    what: 'limits that hold nothing',
    drained: { ...FIFTY, opts: keyed(100) },
    ways: { groups: { shape: { groups: OPEN_GROUPS } }, two: { shape: byKeys(2) }, four: { shape: byKeys(4) } },
    rows: [inScripts('two', 'groups', 1.25), inScripts('four', 'groups', 1.5)],
  },
  {
    what: 'each departure waits for its key, 50 values at 20/s',
    drained: {
      concurrency: 50,
      jobs: 10_000,
      opts: (i) => ({ ...amongGroups(50)(i), keys: { model: `m${i % 50}` } }) as JobsOptions,
    },
    ways: {
      groups: { shape: { groups: { rate: '20/s' } } },
      keys: { shape: { groups: {}, limits: [{ name: 'rpm', by: 'model', rate: '20/s' }] } },
    },
    rows: [inScripts('keys', 'groups', 1.4)],
  },
  {
    what: '100,000 values over 100',
    drained: { concurrency: 50, jobs: 100_000, shape: byKeys(2) },
    ways: { few: { opts: keyed(100) }, many: { opts: keyed(100_000) } },
    rows: [inScripts('many', 'few', 1.2)],
  },
])

interface AddWay {
  readonly system: System
  readonly shape?: Shape
  readonly opts?: OptionsOf
}

interface AddCase extends Case<AddWay> {
  readonly jobs: number
  run(queue: Queue, jobs: number, opts?: OptionsOf): Promise<void>
}

const inBulks = (bulk: number) => (queue: Queue, jobs: number, opts?: OptionsOf) => addJobs(queue, jobs, opts, bulk)
const over = (asked: number) => [{ ...OVER_BULLMQ, asked: atLeast(asked) }]
const ADDS: readonly AddCase[] = [
  { what: 'add, one after another', ways: SYSTEMS, jobs: 3000, rows: over(0.95), run: (q, n) => addInFlight(q, n, 1) },
  { what: 'add, 50 in flight', ways: SYSTEMS, jobs: 6000, rows: over(1), run: (q, n) => addInFlight(q, n, 50) },
  { what: 'addBulk of 100', ways: SYSTEMS, jobs: 10_000, rows: over(1.3), run: inBulks(100) },
  { what: 'addBulk of 1000', ways: SYSTEMS, jobs: 20_000, rows: over(1.3), run: inBulks(1000) },
  {
    what: 'addBulk of 100 in 100 groups',
    ways: { none: SYSTEMS.sluice, groups: { ...SYSTEMS.sluice, shape: { groups: {} }, opts: amongGroups(100) } },
    jobs: 20_000,
    rows: [{ ours: 'groups', over: 'none', asked: atLeast(0.8) }],
    run: inBulks(100),
  },
]
const QUICK_SHARE = 5
const WARM_UP_ADDS = 100

async function addOnce(bench: Bench, { run, ...one }: AddCase, { system, shape, opts }: AddWay): Promise<Cost> {
  const jobs = bench.quick ? one.jobs / QUICK_SHARE : one.jobs
  const queue = await makeQueue(bench, system, 'add', shape)
  await addJobs(queue, WARM_UP_ADDS, opts)
  const cost = await costOf(bench.client, () => run(queue, jobs, opts).then(() => ({ units: jobs })))
  await removeQueue(queue)
  return cost
}

const add: Figure = {
  name: 'add',
  title: `add and addBulk with a capacity set, over BullMQ's Queue or over no groups: ${METHOD}`,
  run: (bench) => inTurn(ADDS, (one) => rowsOf(bench, one, (way) => addOnce(bench, one, way))),
}

export const throughput: readonly Figure[] = [drain, add, watched, batches, limits, groups, keys]
