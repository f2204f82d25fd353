import { setTimeout as sleep } from 'node:timers/promises'
import type { Shape, ShapedQueue } from 'sluice'
import type { Bench } from './figure.ts'
import type { WorkerProcess } from './fleet/fleet.ts'
import type { Start } from './fleet/protocol.ts'
import { redisTimeUs } from './fleet/redis-offset.ts'
import { addJobs, makeQueue, removeQueue } from './queues.ts'

const PROCESSES = 4
/** By then, every worker has noticed that there are others. */
const SETTLE_MS = 1000

/** A change was committed between these two times: µs on Redis's clock, a round trip apart. */
export interface Commit {
  readonly afterUs: number
  readonly beforeUs: number
}

/** Workers in several processes on one shaped queue with a backlog: used by the figures about changes of a shape. */
export class Crew {
  readonly queue: ShapedQueue
  readonly #bench: Bench
  readonly #team: readonly WorkerProcess[]

  private constructor(bench: Bench, queue: ShapedQueue, team: readonly WorkerProcess[]) {
    this.#bench = bench
    this.queue = queue
    this.#team = team
  }

  static async start(
    bench: Bench,
    shape: Shape,
    { jobs, ...work }: { jobs: number; workers: number; concurrency: number; jobMs: number },
  ): Promise<Crew> {
    const queue = await makeQueue(bench, 'sluice', 'changes', shape)
    await addJobs(queue, jobs)
    const team = bench.fleet.team(PROCESSES)
    const spec = { system: 'sluice', queue: queue.name, redis: bench.redis, ...work } as const
    await Promise.all(team.map((process) => process.call('open', spec)))
    await sleep(SETTLE_MS)
    return new Crew(bench, queue, team)
  }

  /** The starts since the last call, in order. */
  async takeStarts(): Promise<Start[]> {
    const reports = await Promise.all(this.#team.map((process) => process.call('takeStarts', this.queue.name)))
    return reports.flatMap(({ starts }) => starts).sort((a, b) => a.startedUs - b.startedUs)
  }

  /** Makes a change, and returns the two times on Redis's clock between which it was committed. */
  async change(make: () => Promise<void>): Promise<Commit> {
    const afterUs = await redisTimeUs(this.#bench.client)
    await make()
    return { afterUs, beforeUs: await redisTimeUs(this.#bench.client) }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#team.map((process) => process.call('close', this.queue.name)))
    await removeQueue(this.queue)
  }
}
