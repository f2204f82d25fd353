import type { Queue } from 'bullmq'
import type { FeedbackChange } from 'sluice'
import type { Bench } from '../figure.ts'
import type { Remote } from '../fleet/remote.ts'
import { sum } from '../measure/statistics.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import type { Contender, Seen, SenderMethods, SenderSpec, ServerMethods } from './protocol.ts'

const SERVER = new URL('server.ts', import.meta.url)
const SENDER = new URL('sender.ts', import.meta.url)

/** The configured rate, and the fleet that runs at it. */
export const FLEET = { perSecond: 200, processes: 4, concurrency: 20 } as const

/** The final counts of jobs, and the changes of the rate. */
export interface Outcome {
  readonly added: number
  readonly accepted: number
  /** Of those, how many the server accepted a second time. */
  readonly twice: number
  readonly waiting: number
  /** Neither accepted nor waiting. */
  readonly lost: number
  /** Of those, how many failed permanently. */
  readonly failed: number
  readonly changes: readonly FeedbackChange[]
}

async function makeBacklog(bench: Bench, contender: Contender, jobs: number): Promise<Queue | undefined> {
  if (contender === 'bottleneck') return undefined
  const ours = contender === 'adapting' || contender === 'pausing'
  const queue = await makeQueue(bench, ours ? 'sluice' : 'bullmq', 'feedback', { rate: `${FLEET.perSecond}/s` })
  await addJobs(queue, jobs)
  return queue
}

let outlets = 0

/** A server with a limit, and a fleet of processes that calls it for a backlog of jobs. All are started afresh. */
export class Outlet {
  readonly server: Remote<ServerMethods>
  readonly #senders: readonly Remote<SenderMethods>[]
  #queue: Queue | undefined
  #jobs = 0

  private constructor({ fleet }: Bench) {
    this.server = fleet.start<ServerMethods>(SERVER)
    this.#senders = Array.from({ length: FLEET.processes }, () => fleet.start<SenderMethods>(SENDER))
  }

  /** @param jobs number of waiting jobs at the start */
  static async open(bench: Bench, contender: Contender, jobs: number, observed = false): Promise<Outlet> {
    outlets += 1
    const outlet = new Outlet(bench)
    outlet.#jobs = jobs
    outlet.#queue = await makeBacklog(bench, contender, jobs)
    const queue = outlet.#queue?.name ?? `outlet-${outlets}`
    const url = await outlet.server.call('listen')
    const spec: SenderSpec = { contender, queue, redis: bench.redis, url, observed, ...FLEET }
    await Promise.all(outlet.#senders.map((sender) => sender.call('open', spec)))
    return outlet
  }

  /** What all processes recorded since the last call. */
  async seen(): Promise<Seen> {
    const seen = await Promise.all(this.#senders.map((sender) => sender.call('seen')))
    return {
      starts: seen.flatMap(({ starts }) => starts).sort((a, b) => a.startedUs - b.startedUs),
      pausesUs: seen.flatMap(({ pausesUs }) => pausesUs),
      roundTrips: seen.flatMap(({ roundTrips }) => roundTrips),
    }
  }

  /** Lets running calls finish, then stops everything. */
  async close(): Promise<Outcome> {
    const closed = await Promise.all(this.#senders.map((sender) => sender.call('close')))
    const { accepted, twice } = await this.server.call('jobs')
    const { completed: _done, failed = 0, ...waitingBy } = (await this.#queue?.getJobCounts()) ?? {}
    const waiting = sum(Object.values(waitingBy))
    if (this.#queue) await removeQueue(this.#queue)
    await Promise.all([...this.#senders, this.server].map((process) => process.stop()))
    const added = this.#queue ? this.#jobs : sum(closed.map(({ given }) => given))
    // Dates from another process are strings.
    const changes = closed
      .flatMap((one) => one.changes)
      .map((change) => ({ ...change, at: new Date(change.at) }))
      .sort((a, b) => Number(a.at) - Number(b.at))
    return { added, accepted, twice, waiting, lost: added - accepted - waiting, failed, changes }
  }
}
