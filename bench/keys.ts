import { setTimeout as sleep } from 'node:timers/promises'
import type { JobsOptions, Queue } from 'bullmq'
import type { Shape } from 'sluice'
import { departuresOf, pausedQueue, ratesRow } from './groups.ts'
import { atMost, compared, rounds } from './harness/compare.ts'
import { ALONE, type Bench, type Figure, type Row } from './harness/figure.ts'
import { addJobs, OPEN_GROUPS } from './harness/queues.ts'
import { costOf } from './harness/redis.ts'
import { drainOnce, Team } from './harness/workers.ts'

type Limits = NonNullable<Shape['limits']>

/** So wide that no job is held. */
const OPEN = { rate: '1000000/s', burst: 1_000_000 } as const
const BY = ['model', 'host', 'plan', ['model', 'plan']] as const
const openLimits = (count: number): Limits => BY.slice(0, count).map((by, i) => ({ name: `l${i}`, by, ...OPEN }))

/** Jobs of 100 groups, each with three keys of `values` values. */
const keyed =
  (values: number) =>
  (i: number): JobsOptions => {
    const [model, host, plan] = [`m${i % values}`, `h${(i * 7) % values}`, `p${(i * 13) % values}`]
    return { group: { id: `g${i % 100}` }, keys: { model, host, plan } } as JobsOptions
  }

const DRAIN = { concurrency: 50, jobs: 15_000, opts: keyed(100) } as const
const scriptUs = ({ scriptUs }: { scriptUs: number }) => scriptUs
const inScripts = ({ scriptUs, calls }: { scriptUs: number; calls: number }) =>
  `${scriptUs.toFixed(1)} µs in scripts, ${calls.toFixed(2)} calls`

/** Redis's time for a departure with limits by keys, none of which holds a job, over groups with a rate. */
async function departures(bench: Bench): Promise<Row[]> {
  const shapes: Readonly<Record<string, Shape>> = {
    groups: { groups: OPEN_GROUPS },
    two: { groups: OPEN_GROUPS, limits: openLimits(2) },
    four: { groups: OPEN_GROUPS, limits: openLimits(4) },
  }
  const measured = await rounds(bench.quick, Object.keys(shapes), (way) =>
    drainOnce(bench, 'sluice', { ...DRAIN, shape: shapes[way] as Shape }),
  )
  const row = (ours: string, asked: number) =>
    compared(`Redis time per job, ${ours} limits by keys, over groups with a rate`, measured, {
      ours,
      over: ['groups'],
      of: scriptUs,
      asked: atMost(asked),
      describe: inScripts,
    })
  return [row('two', 1.25), row('four', 1.5)]
}

/** The same, where each departure waits for its key: 50 values at 20/s each, beside 50 groups at 20/s each. */
async function contended(bench: Bench): Promise<Row> {
  const values = (i: number): JobsOptions =>
    ({ group: { id: `g${i % 50}` }, keys: { model: `m${i % 50}` } }) as JobsOptions
  const shapes = {
    groups: { groups: { rate: '20/s' } },
    keys: { groups: {}, limits: [{ name: 'rpm', by: 'model', rate: '20/s' }] },
  } as const satisfies Record<string, Shape>
  const measured = await rounds(bench.quick, ['groups', 'keys'] as const, (way) =>
    drainOnce(bench, 'sluice', { concurrency: 50, jobs: 10_000, opts: values, shape: shapes[way] }),
  )
  return compared('Redis time per job, each departure waits for its key, over groups with a rate', measured, {
    ours: 'keys',
    over: ['groups'],
    of: scriptUs,
    asked: atMost(1.4),
    describe: inScripts,
  })
}

/** Redis's time for a departure by the number of values, with equal numbers of jobs. */
async function cardinality(bench: Bench): Promise<Row> {
  const jobs = bench.quick ? 100_000 : 1_000_000
  const ways = ['few', 'many'] as const
  const measured = await rounds(
    bench.quick,
    ways,
    (way) =>
      drainOnce(bench, 'sluice', {
        concurrency: 50,
        jobs,
        opts: keyed(way === 'few' ? 100 : jobs),
        shape: { groups: {}, limits: openLimits(2) },
      }),
    1,
  )
  return compared(`Redis time per job, ${jobs.toLocaleString('en')} keys over 100`, measured, {
    ours: 'many',
    over: ['few'],
    of: scriptUs,
    asked: atMost(1.2),
    describe: inScripts,
  })
}

/** Jobs have ids `<key>-<number>`. */
async function addOf(queue: Queue, count: number, keysOf: (i: number) => Record<string, string>): Promise<void> {
  await addJobs(queue, count, (i) => {
    const keys = keysOf(i)
    return { jobId: `${keys.model}-${i}`, keys } as JobsOptions
  })
}

async function rates(bench: Bench): Promise<Row> {
  const seconds = bench.quick ? 4 : 12
  const [count, intervalUs] = [100, 200_000]
  const limits: Limits = [
    { name: 'rpm', by: 'model', rate: '5/s' },
    { name: 'pair', by: ['model', 'host'], rate: '1000/s', burst: 100 },
    { name: 'hosts', by: 'host', rate: '2000/s', burst: 100 },
  ]
  const queue = await pausedQueue(bench, 'keys-rate', { rate: '1000/s', limits, audit: 20_000 })
  await addOf(queue, count * 5 * (seconds + 3), (i) => ({ model: `m${i % count}`, host: `h${i % 3}` }))
  const left = await departuresOf(bench, queue, 4, count * 5 * seconds)
  const setup = `rate of each of 100 keys of 5/s, three limits a job, at a queue of 1000/s, 4 workers, over ${seconds} s`
  const names = Array.from({ length: count }, (_, key) => `m${key}`)
  return ratesRow(setup, left, names, intervalUs)
}

/** What workers ask of Redis while all lanes wait for long. */
async function held(bench: Bench): Promise<Row> {
  const lanes = bench.quick ? 1000 : 10_000
  const queue = await pausedQueue(bench, 'keys-held', { limits: [{ name: 'daily', by: 'model', rate: '1/day' }] })
  await addOf(queue, 2 * lanes, (i) => ({ model: `m${i % lanes}` }))
  const team = await Team.open(bench, queue, { processes: 4, concurrency: 50, jobMs: 1 })
  await queue.resume()
  while ((await queue.getPrioritizedCount()) > lanes) await sleep(200)
  await sleep(2000)
  const seconds = bench.quick ? 5 : 15
  const { calls } = await costOf(bench.client, async () => {
    await sleep(seconds * 1000)
    return { units: seconds }
  })
  await team.close()
  await queue.obliterate({ force: true })
  await queue.close()
  return {
    setup: `calls of scripts a second, ${lanes.toLocaleString('en')} lanes that are held, 4 workers`,
    asked: '< 20',
    reached: calls.toFixed(1),
    ok: calls < 20,
    values: { calls },
  }
}

function figure(part: string, title: string, run: (bench: Bench) => Promise<Row | Row[]>): Figure {
  return {
    name: `keys-${part}`,
    title: `Keys: ${title}`,
    headings: ALONE,
    run: async (bench) => [await run(bench)].flat(),
  }
}

export const keys: readonly Figure[] = [
  figure('departures', "Redis's time by number of limits", departures),
  figure('contended', "Redis's time where each job waits for its key", contended),
  figure('cardinality', "Redis's time by number of keys", cardinality),
  figure('rates', 'rates', rates),
  figure('held', 'lanes that are held', held),
]
