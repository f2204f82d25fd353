import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Queue } from 'bullmq'
import type { Shape } from 'sluice'
import { holdLifeline } from '../workers/services/exit-hook.ts'
import { findProgram } from '../workers/services/find-program.ts'
import { startRedis } from '../workers/services/redis.ts'
import { runCommand } from '../workers/services/run-command.ts'
import { atMost, compared, rounds } from './harness/compare.ts'
import { type Figure, inTurn, type RedisAddress, type Row, withClient } from './harness/figure.ts'
import {
  addInFlight,
  addJobs,
  amongGroups,
  completions,
  makeQueue,
  makeWorker,
  OPEN_GROUPS,
  OPEN_METER,
  type OptionsOf,
  removeQueue,
  type System,
  type WorkerSpec,
} from './harness/queues.ts'
import { infoOf } from './harness/redis.ts'
import { sum } from './harness/statistics.ts'

const SYSTEMS = ['bullmq', 'sluice'] as const
/** The first is not counted: it sends and loads the scripts. */
const ROUNDS = 4
const QUICK_SHARE = 5
/** A busy machine has to add so many within `admitTimeoutMs`. */
const BULK = 100
/** What Redis does by itself is 0.1 million instructions a second then. */
const SELDOM = ['--hz', '1']

interface CountedRedis {
  readonly redis: RedisAddress
  /** How many it has executed since its start, in all of its threads. */
  instructions(): Promise<number>
}

/** Starts a Redis whose instructions are counted by Valgrind, under which it runs about fifty times slower. */
async function withCountedRedis(use: (counted: CountedRedis) => Promise<Row[]>): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-counted-'))
  const cutLifeline = holdLifeline(['rm', '-rf', folder])
  const prefix = `--vgdb-prefix=${join(folder, 'vgdb')}`
  const files = [`--callgrind-out-file=${join(folder, 'callgrind.%p')}`, prefix]
  const launcher = ['valgrind', '--tool=callgrind', '--trace-children=yes', ...files]
  const redis = await startRedis({ ignoreGiven: true, dir: join(folder, 'redis'), launcher, args: SELDOM })
  const instructions = async () => {
    const printed = await runCommand('callgrind_control', [prefix, '-e', 'Ir', String(redis.pid)])
    const threads = [...printed.matchAll(/^ *Th \d+ +([\d,]+)/gm)]
    if (threads.length > 0) return sum(threads.map(([, count = '']) => Number(count.replaceAll(',', ''))))
    throw new Error(`expected the instructions of each thread, callgrind_control printed ${printed}`)
  }
  try {
    if (redis.pid === undefined) return notCounted(`valgrind cannot run a Redis that is ${redis.source}`)
    return await use({ redis, instructions })
  } finally {
    await redis.kill()
    await redis.stop()
    await rm(folder, { recursive: true, force: true })
    cutLifeline()
  }
}

const notCounted = (reason: string): Row[] => [{ setup: 'not counted', reached: reason, values: {} }]

/** What is counted, on a queue that stays open from round to round. */
interface Counted {
  /** Before each round, and not counted. */
  prepare?(jobs: number): Promise<void>
  run(jobs: number): Promise<void>
  close?(): Promise<void>
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

type DrainedHow = Pick<Case, 'jobs' | 'asked' | 'shape'> & Pick<WorkerSpec, 'concurrency' | 'removeOnComplete'>

/** A backlog that one worker drains. @param opts of the jobs: groups are Sluice's only */
function drain(what: string, how: DrainedHow, opts: OptionsOf = {}): Case {
  const { concurrency, removeOnComplete, ...rest } = how
  return {
    ...rest,
    what: `drain, ${what}, ${concurrency} at once`,
    open: (queue, redis, system) => {
      const kept = removeOnComplete && { removeOnComplete }
      // What a worker reports, it reports by the clock.
      const worker = makeWorker({ system, queue: queue.name, redis, concurrency, report: false, ...kept })
      return {
        prepare: async (jobs) => {
          await queue.pause()
          await addJobs(queue, jobs, how.shape?.groups && system === 'bullmq' ? {} : opts, BULK)
        },
        run: async (jobs) => {
          const completed = completions(worker, jobs)
          await queue.resume()
          await completed
        },
        close: () => worker.close(),
      }
    },
  }
}

function adds(what: string, jobs: number, asked: number, run: (queue: Queue, jobs: number) => Promise<void>): Case {
  return { what, jobs, asked, open: (queue) => ({ run: (jobs) => run(queue, jobs) }) }
}

/** Redis is so slow that jobs with a slot would be late, and go back. */
const NEVER_LATE = { maxLatenessMs: 3_600_000 } as const
const METERED = { ...OPEN_METER, ...NEVER_LATE }
const GROUPED = { groups: {}, ...NEVER_LATE }
const LIMITED = { groups: OPEN_GROUPS, ...NEVER_LATE }
const ONE = { concurrency: 1, jobs: 200 }
const TEN = { concurrency: 10, jobs: 500 }
const FIFTY = { concurrency: 50, jobs: 1000 }

const CASES: readonly Case[] = [
  drain('jobs kept', { ...ONE, asked: 1.03 }),
  drain('jobs kept', { ...TEN, asked: 0.97 }),
  drain('jobs kept', { ...FIFTY, asked: 0.86 }),
  ...[ONE, TEN, FIFTY].map((how) => drain('removeOnComplete: true', how, { removeOnComplete: true })),
  drain("the worker's removeOnComplete: { count: 0 }", { ...ONE, removeOnComplete: { count: 0 } }),
  drain('open meter', { ...ONE, shape: METERED, asked: 1.8 }),
  drain('open meter', { ...FIFTY, shape: METERED }),
  ...[ONE, FIFTY].map((how) => drain('100 groups', { ...how, shape: GROUPED }, amongGroups(100))),
  drain('100 groups with a rate and a concurrency', { ...FIFTY, shape: LIMITED }, amongGroups(100)),
  adds('add, one after another', 1500, 1.15, (queue, jobs) => addInFlight(queue, jobs, 1)),
  adds('add, 50 in flight', 3000, 0.82, (queue, jobs) => addInFlight(queue, jobs, 50)),
  adds('addBulk of 100', 5000, 0.73, (queue, jobs) => addJobs(queue, jobs, {}, BULK)),
]

type Servers = Readonly<Record<System, CountedRedis>>

async function countedRow(servers: Servers, quick: boolean, one: Case): Promise<Row> {
  const jobs = quick ? one.jobs / QUICK_SHARE : one.jobs
  const open = async (system: System) => {
    const { redis } = servers[system]
    const queue = await makeQueue({ redis }, system, 'instructions', one.shape)
    return { queue, ...one.open(queue, redis, system) }
  }
  const opened = { bullmq: await open('bullmq'), sluice: await open('sluice') }
  const count = async (system: System) => {
    const { prepare, run } = opened[system]
    await prepare?.(jobs)
    const before = await servers[system].instructions()
    await run(jobs)
    return { thousands: ((await servers[system].instructions()) - before) / jobs / 1000 }
  }
  const counts = await rounds(quick, SYSTEMS, count, ROUNDS)
  for (const { queue, close } of Object.values(opened)) {
    await close?.()
    await removeQueue(queue)
  }
  return compared(one.what, counts, {
    ...{ ours: 'sluice', over: ['bullmq'], of: ({ thousands }) => thousands },
    asked: one.asked === undefined ? undefined : atMost(one.asked),
    describe: ({ thousands }) => `${thousands.toFixed(1)} k`,
  })
}

const ASKED_MB = 2.5
/** A queue that holds nothing, one with a meter and one with groups. */
const QUEUES: readonly { readonly shape: Shape; readonly opts?: OptionsOf }[] = [
  { shape: {} },
  { shape: OPEN_METER },
  { shape: { groups: {} }, opts: amongGroups(10) },
]

/** Jobs are added in each way, and drained. */
async function smallRun(redis: RedisAddress, system: System): Promise<void> {
  for (const { shape, opts = {} } of QUEUES) {
    const queue = await makeQueue({ redis }, system, 'scripts', shape)
    for (const concurrency of [1, 50]) {
      await addInFlight(queue, BULK, 1)
      await addInFlight(queue, BULK, 50)
      await addJobs(queue, BULK, system === 'sluice' ? opts : {}, BULK)
      const worker = makeWorker({ system, queue: queue.name, redis, concurrency })
      await once(worker, 'drained')
      await worker.close()
    }
    await removeQueue(queue)
  }
}

/** On a Redis of its own, since scripts are never forgotten. */
async function scriptMemory(system: System) {
  const redis = await startRedis({ ignoreGiven: true })
  try {
    await smallRun(redis, system)
    const number = await withClient(redis, (client) => infoOf(client, 'memory'))
    const mbOf = (kind: string, rest: string) =>
      (number(`used_memory_vm_${kind}`) + number(`used_memory_${rest}`)) / 1e6
    const mb = mbOf('total', 'scripts')
    const scripts = `${number('number_of_cached_scripts')} scripts ${mbOf('eval', 'scripts_eval').toFixed(1)}`
    const functions = `${number('number_of_functions')} functions ${mbOf('functions', 'functions').toFixed(1)}`
    return { mb, words: `${mb.toFixed(1)} MB (${scripts}, ${functions})` }
  } finally {
    await redis.stop()
  }
}

/** What Redis does, however busy the machine is. */
export const instructions: readonly Figure[] = [
  {
    name: 'instructions',
    title:
      "Instructions of Redis for each job over BullMQ's, counted by Valgrind: median of interleaved rounds, the first discarded",
    // Seven on a quiet machine.
    mostMinutes: 40,
    run: async ({ quick }) => {
      if (!findProgram(['valgrind'], process.env)) return notCounted('valgrind is not on PATH')
      // One for each: Lua collects the garbage of all scripts of a server, and the more there are, the longer it takes.
      return withCountedRedis((bullmq) =>
        withCountedRedis((sluice) => inTurn(CASES, (one) => countedRow({ bullmq, sluice }, quick, one))),
      )
    },
  },
  {
    name: 'script-memory',
    title: 'Memory that scripts and functions take in Redis, with their garbage, as INFO says',
    run: async () => {
      const [sluice, bullmq] = [await scriptMemory('sluice'), await scriptMemory('bullmq')]
      const setup = 'after adds in each way and drains, without and with a meter or groups'
      const asked = { asked: `<= ${ASKED_MB} MB`, ok: sluice.mb <= ASKED_MB }
      return [{ setup, ...asked, reached: sluice.words, beside: bullmq.words, values: { sluice, bullmq } }]
    },
  },
]
