import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { type Shape, ShapedWorker } from 'sluice'
import { redisTimeUs, type Start, StartLog } from './clock.ts'
import { type Bench, connectionTo, type RedisAddress } from './figure.ts'
import { paceOf } from './pace.ts'
import { addJobs, completions, makeQueue, makeWorker, type OptionsOf, removeQueue, type WorkerSpec } from './queues.ts'
import { type Cost, connectedClients, costOf } from './redis.ts'
import { sum } from './statistics.ts'

/** Equal workers on one queue in one process. */
export interface GroupSpec extends WorkerSpec {
  /** Where Redis's clock is read, if that is nearer. Default: `redis`. */
  readonly clock?: RedisAddress
  /** Default: 1. */
  readonly workers?: number
  /** How long a job takes. Default: the processor returns at once. */
  readonly jobMs?: number
  /** Number of jobs to complete for `drained`; their starts are not recorded. */
  readonly expected?: number
}

/** From the first start to the last completion. */
interface Drain {
  readonly elapsedMs: number
  readonly clientUs: number
}

interface Group {
  readonly client: Redis
  readonly log: StartLog
  readonly workers: Worker[]
  drained?: Promise<Drain>
}

const groups = new Map<string, Group>()

function groupOf(queue: string): Group {
  const found = groups.get(queue)
  if (!found) throw new Error(`expected an open group for queue ${queue}; there are ${[...groups.keys()].join(', ')}`)
  return found
}

/** Records when each job starts, and its slot. */
function timedWorker(spec: GroupSpec, group: Group): Worker {
  const { jobMs = 0 } = spec
  const worker = makeWorker(spec, async (job) => {
    group.log.started(job.id as string)
    if (jobMs > 0) await sleep(jobMs)
  })
  if (worker instanceof ShapedWorker) group.log.watch(worker)
  return worker
}

function drainingWorker(spec: GroupSpec, group: Group, jobs: number): Worker {
  let first: { readonly atMs: number; readonly cpu: NodeJS.CpuUsage } | undefined
  const worker = makeWorker(spec, async () => {
    first ??= { atMs: performance.now(), cpu: process.cpuUsage() }
  })
  group.drained = completions(worker, jobs).then(() => {
    const { user, system } = process.cpuUsage(first?.cpu)
    return { elapsedMs: performance.now() - (first?.atMs ?? 0), clientUs: user + system }
  })
  return worker
}

/** In its process. Groups are named by their queue. */
export const methods = {
  /** Resolves when the workers of the group are connected and wait for jobs. */
  async open(spec: GroupSpec): Promise<void> {
    const { queue, redis, clock = redis, workers = 1, expected } = spec
    const client = new Redis(connectionTo(clock))
    const group: Group = { client, log: new StartLog(client), workers: [] }
    groups.set(queue, group)
    await group.log.sample()
    for (let i = 0; i < workers; i++)
      group.workers.push(expected === undefined ? timedWorker(spec, group) : drainingWorker(spec, group, expected))
    await Promise.all(group.workers.map((worker) => worker.waitUntilReady()))
  },
  /** Since the last call. */
  takeStarts: async (queue: string) => groupOf(queue).log.take(),
  /** Resolves when the expected number of jobs is completed. */
  drained: async (queue: string): Promise<Drain | undefined> => groupOf(queue).drained,
  async close(queue: string): Promise<void> {
    const { workers, client } = groupOf(queue)
    await Promise.all(workers.map((worker) => worker.close()))
    client.disconnect()
    groups.delete(queue)
  },
}

type Place = Pick<GroupSpec, 'system' | 'queue' | 'redis'>

/** What each of several processes runs on a queue: Sluice's workers, unless it says otherwise. */
export interface TeamSpec extends Omit<GroupSpec, keyof Place>, Partial<Omit<Place, 'queue'>> {
  readonly processes: number
}

/** The same workers in each of several processes. */
export class Team {
  readonly #queue: string
  readonly #all: ReturnType<typeof workerProcess>[]

  private constructor(queue: string, all: ReturnType<typeof workerProcess>[]) {
    this.#queue = queue
    this.#all = all
  }

  static async open(bench: Bench, queue: Queue, { processes, ...work }: TeamSpec, name = 'team'): Promise<Team> {
    const team = new Team(
      queue.name,
      Array.from({ length: processes }, (_, n) => workerProcess(bench, `${name} ${n}`)),
    )
    const spec: GroupSpec = { system: 'sluice', queue: queue.name, redis: bench.redis, ...work }
    await Promise.all(team.#all.map((process) => process.call('open', spec)))
    return team
  }

  /** Since the last call, in their order. */
  async takeStarts(): Promise<Awaited<ReturnType<StartLog['take']>>> {
    const reports = await Promise.all(this.#all.map((process) => process.call('takeStarts', this.#queue)))
    return {
      starts: reports.flatMap(({ starts }) => starts).sort((a, b) => a.startedUs - b.startedUs),
      wentBack: sum(reports.map(({ wentBack }) => wentBack)),
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((process) => process.call('close', this.#queue)))
  }
}

/** How the starts of workers are measured. */
export interface Work extends TeamSpec {
  readonly perSecond: number
  /** How long they run before. */
  readonly warmUpMs: number
}

/** The pace of the starts, and what each of them cost, while `during` is done with workers on a queue. */
export async function paced(
  bench: Bench,
  queue: Queue,
  { perSecond, warmUpMs, ...work }: Work,
  during: (team: Team) => Promise<unknown>,
) {
  const { client } = bench
  const before = await connectedClients(client)
  const team = await Team.open(bench, queue, { clock: bench.redis, ...work })
  await sleep(warmUpMs)
  // That the workers opened, and the bench for its own clock: one for each process.
  const connections = (await connectedClients(client)) - before
  const fromUs = await redisTimeUs(client)
  let report!: Awaited<ReturnType<Team['takeStarts']>>
  let steady: readonly Start[] = []
  const cost = await costOf(client, async () => {
    await during(team)
    report = await team.takeStarts()
    steady = report.starts.filter(({ startedUs }) => startedUs >= fromUs)
    return { units: steady.length }
  })
  await team.close()
  return { ...report, ...paceOf(steady, perSecond), connections, cost }
}

export function workerProcess({ processes }: Bench, name: string) {
  return processes.named<typeof methods>(name, new URL(import.meta.url))
}

/** How a backlog is drained. */
export interface Drained extends Pick<GroupSpec, 'report' | 'removeOnComplete' | 'concurrency' | 'batch'> {
  readonly jobs: number
  /** Of the jobs. */
  readonly opts?: OptionsOf
  /** Of Sluice's queue. */
  readonly shape?: Shape
}

const QUICK_SHARE = 5

/** Drains a backlog with one worker in another process. */
export async function drainOnce(bench: Bench, system: WorkerSpec['system'], drained: Drained): Promise<Cost> {
  const { shape, opts, jobs: full, ...worker } = drained
  const jobs = bench.quick ? full / QUICK_SHARE : full
  const queue = await makeQueue(bench, system, 'drain', shape)
  await queue.pause()
  await addJobs(queue, jobs, opts)
  const process = workerProcess(bench, `drain ${system}`)
  await process.call('open', { system, queue: queue.name, redis: bench.redis, expected: jobs, ...worker })
  const cost = await costOf(bench.client, async () => {
    await queue.resume()
    return { units: jobs, ...(await process.call('drained', queue.name)) }
  })
  await process.call('close', queue.name)
  await removeQueue(queue)
  return cost
}
