import type { Shape, ShapedQueue } from '../src/index.ts'
import type { Bench } from './figure.ts'
import type { WorkerProcess } from './fleet/fleet.ts'
import type { Start } from './fleet/protocol.ts'
import { redisTimeUs } from './fleet/redis-offset.ts'
import { addJobs, makeQueue, removeQueue } from './queues.ts'

const PROCESSES = 4
const ROUND_TRIPS = 50

/** Workers of several processes on one shaped queue with a backlog: what the figures about changes of a shape act on. */
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
    return new Crew(bench, queue, team)
  }

  /** The starts since the last time it was asked, in order. */
  async takeStarts(): Promise<Start[]> {
    const reports = await Promise.all(this.#team.map((process) => process.call('takeStarts', this.queue.name)))
    return reports.flatMap(({ starts }) => starts).sort((a, b) => a.startedUs - b.startedUs)
  }

  /** Changes something. @returns a time before Redis committed it, by less than a round trip: µs on its clock */
  async change(make: () => Promise<void>): Promise<number> {
    const beforeUs = await redisTimeUs(this.#bench.client)
    await make()
    return beforeUs
  }

  /** The longest of many round trips, ms. */
  async roundTripMs(): Promise<number> {
    let longest = 0
    for (let i = 0; i < ROUND_TRIPS; i++) {
      const sentMs = performance.now()
      await this.#bench.client.ping()
      longest = Math.max(longest, performance.now() - sentMs)
    }
    return longest
  }

  async stop(): Promise<void> {
    await Promise.all(this.#team.map((process) => process.call('close', this.queue.name)))
    await removeQueue(this.queue)
  }
}
