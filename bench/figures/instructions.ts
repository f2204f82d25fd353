import type { JobsOptions, Queue } from 'bullmq'
import type { Shape } from 'sluice'
import type { Figure, Row } from '../figure.ts'
import type { GroupSpec, RedisAddress, System } from '../fleet/protocol.ts'
import { CountedRedis } from '../measure/counted-redis.ts'
import { type Pair, rounds } from '../measure/interleaved.ts'
import { atMost, describeRatio, ratioOf } from '../measure/ratio.ts'
import { median } from '../measure/statistics.ts'
import {
  addInFlight,
  addJobs,
  amongGroups,
  makeQueue,
  makeWorker,
  OPEN_GROUPS,
  OPEN_METER,
  type OptionsOf,
  removeQueue,
} from '../queues.ts'

/** The first is not counted: it sends and loads the scripts. */
const ROUNDS = 4

const QUICK_SHARE = 5
/** A busy machine has to add so many within `admitTimeoutMs`. */
const BULK = 100

/** What is counted, on a queue that stays open from round to round. */
interface Counted {
  /** Before each round, and not counted. */
  prepare(jobs: number): Promise<void>
  run(jobs: number): Promise<void>
  close(): Promise<void>
}

interface Case {
  readonly what: string
  readonly jobs: number
  /** At most, over BullMQ's. Undefined: the row only informs. */
  readonly asked?: number
  /** Of Sluice's queue; BullMQ's has none. */
  readonly shape?: Shape
  open(queue: Queue, redis: RedisAddress, system: System): Counted
}

interface Drained extends Pick<Case, 'jobs' | 'asked' | 'shape'>, Pick<GroupSpec, 'concurrency' | 'removeOnComplete'> {
  readonly opts?: JobsOptions
  /** Among how many Sluice's jobs are divided. Default: none. */
  readonly groups?: number
}

/** A backlog that one worker drains. */
function drain(what: string, drained: Drained): Case {
  const { concurrency, removeOnComplete, opts = {}, groups, ...rest } = drained
  return {
    ...rest,
    what: `drain, ${what}, ${concurrency} at once`,
    open: (queue, redis, system) => {
      // What a worker reports, it reports by the clock.
      const keep = removeOnComplete === undefined ? {} : { removeOnComplete }
      const worker = makeWorker({ redis }, system, queue.name, { concurrency, ...keep, report: false })
      const optionsOf: OptionsOf = groups !== undefined && system === 'sluice' ? amongGroups(groups) : opts
      return {
        prepare: async (jobs) => {
          await queue.pause()
          await addJobs(queue, jobs, optionsOf, BULK)
        },
        run: async (jobs) => {
          const completed = new Promise<void>((resolve) => {
            let left = jobs
            worker.on('completed', function count() {
              left -= 1
              if (left > 0) return
              worker.off('completed', count)
              resolve()
            })
          })
          await queue.resume()
          await completed
        },
        close: () => worker.close(),
      }
    },
  }
}

function adds(what: string, jobs: number, asked: number, run: (queue: Queue, jobs: number) => Promise<void>): Case {
  const nothing = async () => {}
  return { what, jobs, asked, open: (queue) => ({ prepare: nothing, run: (jobs) => run(queue, jobs), close: nothing }) }
}

const REMOVED = { opts: { removeOnComplete: true } } as const
const NONE_KEPT = { removeOnComplete: { count: 0 } } as const

/** Redis is so slow that jobs with a slot would be late, and go back. */
const NEVER_LATE = { maxLatenessMs: 3_600_000 } as const
const METERED = { ...OPEN_METER, ...NEVER_LATE }
const GROUPED = { shape: { groups: {}, ...NEVER_LATE }, groups: 100 } as const
const LIMITED = { shape: { groups: OPEN_GROUPS, ...NEVER_LATE }, groups: 100 } as const

const CASES: readonly Case[] = [
  drain('jobs kept', { concurrency: 1, jobs: 200, asked: 1.03 }),
  drain('jobs kept', { concurrency: 10, jobs: 500, asked: 0.97 }),
  drain('jobs kept', { concurrency: 50, jobs: 1000, asked: 0.86 }),
  drain('removeOnComplete: true', { concurrency: 1, jobs: 200, ...REMOVED }),
  drain('removeOnComplete: true', { concurrency: 10, jobs: 500, ...REMOVED }),
  drain('removeOnComplete: true', { concurrency: 50, jobs: 1000, ...REMOVED }),
  drain("the worker's removeOnComplete: { count: 0 }", { concurrency: 1, jobs: 200, ...NONE_KEPT }),
  drain('open meter', { concurrency: 1, jobs: 200, shape: METERED, asked: 1.8 }),
  drain('open meter', { concurrency: 50, jobs: 1000, shape: METERED }),
  drain('100 groups', { concurrency: 1, jobs: 200, ...GROUPED }),
  drain('100 groups', { concurrency: 50, jobs: 1000, ...GROUPED }),
  drain('100 groups with a rate and a concurrency', { concurrency: 50, jobs: 1000, ...LIMITED }),
  adds('add, one after another', 1500, 1.15, (queue, jobs) => addInFlight(queue, jobs, 1)),
  adds('add, 50 in flight', 3000, 0.82, (queue, jobs) => addInFlight(queue, jobs, 50)),
  adds('addBulk of 100', 5000, 0.73, (queue, jobs) => addJobs(queue, jobs, {}, BULK)),
]

type Servers = Readonly<Record<System, CountedRedis>>

/** Instructions for each job, in thousands, round by round. */
async function countsOf(servers: Servers, quick: boolean, one: Case): Promise<Pair<number>[]> {
  const jobs = quick ? one.jobs / QUICK_SHARE : one.jobs
  const open = async (system: System) => {
    const { redis } = servers[system]
    const queue = await makeQueue({ redis }, system, 'instructions', one.shape)
    return { queue, counted: one.open(queue, redis, system) }
  }
  const opened = { bullmq: await open('bullmq'), sluice: await open('sluice') }
  const count = async (system: System) => {
    const { counted } = opened[system]
    await counted.prepare(jobs)
    const before = await servers[system].instructions()
    await counted.run(jobs)
    return ((await servers[system].instructions()) - before) / jobs / 1000
  }
  const counts = await rounds(quick, ['bullmq', 'sluice'], count, ROUNDS)
  for (const { queue, counted } of Object.values(opened)) {
    await counted.close()
    await removeQueue(queue)
  }
  return counts
}

async function rowOf(servers: Servers, quick: boolean, one: Case): Promise<Row> {
  const counts = await countsOf(servers, quick, one)
  const ratio = ratioOf(counts.map(({ sluice, bullmq }) => sluice / bullmq))
  const of = (system: System) => `${median(counts.map((round) => round[system])).toFixed(1)} k`
  return {
    setup: one.what,
    ...(one.asked === undefined ? {} : atMost(ratio, one.asked)),
    reached: `${describeRatio(ratio, 3)}, ${of('sluice')}`,
    beside: of('bullmq'),
    values: { ratio, counts },
  }
}

/** What Redis does, however busy the machine is. */
export const instructions: Figure = {
  name: 'instructions',
  title:
    "Instructions of Redis for each job over BullMQ's, counted by Valgrind: median of interleaved rounds, the first discarded",
  // Seven on a quiet machine.
  mostMinutes: 40,
  run: async ({ quick }) => {
    // One for each: Lua collects the garbage of all scripts of a server, and the more there are, the longer it takes.
    const [bullmq, sluice] = [await CountedRedis.start(), await CountedRedis.start()]
    if (typeof bullmq === 'string' || typeof sluice === 'string')
      return [{ setup: 'not counted', reached: String(bullmq), values: {} }]
    try {
      const rows: Row[] = []
      for (const one of CASES) rows.push(await rowOf({ bullmq, sluice }, quick, one))
      return rows
    } finally {
      await Promise.all([bullmq.stop(), sluice.stop()])
    }
  },
}
