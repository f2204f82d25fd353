import type { Redis } from 'ioredis'
import { NotReplicatedError, QueueUnavailableError, type ShapedQueueOptions } from '../../../src/index.ts'
import { expect } from '../../support/concurrent.ts'
import { audit, type Verdict } from '../../torture/audit.ts'
import { Fleet } from './fleet.ts'
import { Producer } from './producer.ts'

const QUEUE = 'mail'
const RATE = 300
const BURST = 5
const HORIZON_MS = 50
/** So that jobs wait at each fault, whatever the producers do: on a busy machine they add fewer than leave. */
const BACKLOG = 600
const FILLED_TOGETHER = 50
/** What has to leave after a fault until it is taken for over. */
const RESUMED = 150
/** Rates and places that every moment has. */
const TERMS = {
  burst: BURST,
  capacity: Number.POSITIVE_INFINITY,
  horizonMs: HORIZON_MS,
  rates: [{ perSecond: RATE, begunUs: 0, doneUs: 0 }],
  forgotten: new Set<string>(),
  setBack: new Set<string>(),
}

export interface TrafficOptions {
  readonly prefix: string
  /** A connection for each producer and for each worker. */
  readonly producers: readonly ShapedQueueOptions['connection'][]
  readonly workers: readonly ShapedQueueOptions['connection'][]
  readonly shape?: ShapedQueueOptions['shape']
}

/** For how long nothing started, and nothing was accepted. */
export interface Gap {
  readonly startsMs: number
  readonly acceptancesMs: number
  /** From the fault until starts, and acceptances, went on. */
  readonly resumedMs: number
  readonly acceptedMs: number
  /** From the fault until the new master was named; undefined where that was not watched. */
  readonly namedMs: number | undefined
}

/** The longest time without one of them since `begunMs`, and when it ended. */
function longestGap(times: readonly number[], begunMs: number): { readonly gapMs: number; readonly endedMs: number } {
  const since = times.filter((timeMs) => timeMs > begunMs).toSorted((a, b) => a - b)
  let longest = { gapMs: 0, endedMs: 0 }
  for (const [i, timeMs] of since.entries()) {
    const gapMs = Math.round(timeMs - (since[i - 1] ?? begunMs))
    if (gapMs > longest.gapMs) longest = { gapMs, endedMs: Math.round(timeMs - begunMs) }
  }
  return longest
}

/** What came of every job. */
export interface Account extends Verdict {
  /** Of the lost, those that a replica had. */
  readonly lostThoughReplicated: readonly string[]
  readonly losses: number
}

/** Producers and workers of one queue at 300 starts/s, and the account of every acceptance and every start. */
export class Traffic {
  readonly fleet = new Fleet()
  readonly #producers: readonly Producer[]
  readonly #queue: ReturnType<Fleet['queue']>
  readonly #notes: string[] = []
  readonly #filled: string[] = []
  #replicated = new Set<string>()

  private constructor(queue: ReturnType<Fleet['queue']>, fleet: Fleet, producers: readonly Producer[]) {
    this.#queue = queue
    this.fleet = fleet
    this.#producers = producers
  }

  static async start({ prefix, producers, workers, shape = {} }: TrafficOptions): Promise<Traffic> {
    const fleet = new Fleet()
    const terms = { rate: `${RATE}/s`, burst: BURST, horizonMs: HORIZON_MS, ...shape }
    const queues = producers.map((connection) =>
      fleet.queue(QUEUE, { connection, prefix, shape: terms, admitTimeoutMs: 1000 }),
    )
    const [queue] = queues as [(typeof queues)[number]]
    await Promise.all(queues.map((one) => one.waitUntilReady()))
    const traffic = new Traffic(
      queue,
      fleet,
      queues.map((one, i) => new Producer(one, { everyMs: 4, name: `p${i}-` })),
    )
    await traffic.#fill()
    for (const connection of workers) traffic.#addWorker(connection, prefix)
    await traffic.goOn()
    return traffic
  }

  #addWorker(connection: ShapedQueueOptions['connection'], prefix: string): void {
    const locks = { lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 1000 }
    const worker = this.fleet.worker(QUEUE, { connection, prefix, concurrency: 20, ...locks }, async ({ id }) => {
      this.#notes.push(`ended ${id}`)
    })
    worker.on('departed', (job, { departureTimeUs, latenessUs }) => {
      this.#notes.push(`started ${job.id} ${departureTimeUs} ${latenessUs} ${job.stalledCounter}`)
    })
  }

  get accepted(): string[] {
    return [...this.#filled, ...this.#producers.flatMap(({ accepted }) => accepted)]
  }

  async #fill(): Promise<void> {
    const missing = BACKLOG - (await this.#queue.getWaitingCount())
    for (let left = missing; left > 0; left -= FILLED_TOGETHER) {
      const ids = Array.from({ length: FILLED_TOGETHER }, (_, i) => `b${this.#filled.length + i}-`)
      const jobs = ids.map((jobId) => ({ name: 'job', data: {}, opts: { jobId } }))
      // On a busy machine a bulk may be late, and added again; without a replica that has it, it is in as well.
      const isIn = () =>
        this.#queue.addBulk(jobs).then(
          () => true,
          (error: unknown) => error instanceof NotReplicatedError,
        )
      await expect.poll(isIn).toBe(true)
      this.#filled.push(...ids)
    }
  }

  /** Resolves once jobs have started, and others were accepted, after now. */
  async goOn(): Promise<void> {
    const [starts, accepted] = [this.fleet.departures.length, this.accepted.length]
    await this.fleet.until(() => this.fleet.departures.length >= starts + RESUMED)
    await expect.poll(() => this.accepted.length, { timeout: 60_000 }).toBeGreaterThan(accepted + 20)
  }

  /**
   * A fault, while it is noted what the replicas of the master have: of the acceptances before it Redis may lose none.
   * @param master of the queue, and a key of the same slot
   * @param named resolves once a new master is named
   * @returns for how long nothing went on, until all goes on
   */
  async through(
    [master, key]: readonly [Redis, string],
    fault: () => Promise<unknown>,
    named?: () => Promise<unknown>,
  ): Promise<Gap> {
    const watch = this.#watchReplication(master, key)
    await this.goOn()
    await this.#fill()
    const begunMs = performance.now()
    const isOver = fault()
    const naming = named?.().then(() => Math.round(performance.now() - begunMs))
    watch.stop()
    await isOver
    const namedMs = await naming
    await this.goOn()
    const starts = longestGap(
      this.fleet.departures.map(({ startedMs }) => startedMs),
      begunMs,
    )
    const acceptances = longestGap(
      this.#producers.flatMap(({ acceptedMs }) => acceptedMs),
      begunMs,
    )
    return {
      startsMs: starts.gapMs,
      acceptancesMs: acceptances.gapMs,
      resumedMs: starts.endedMs,
      acceptedMs: acceptances.endedMs,
      namedMs,
    }
  }

  #watchReplication(master: Redis, key: string): { stop(): void } {
    let isOver = false
    const isGone = new Promise<number>((resolve) => master.once('close', () => resolve(0)))
    // What an earlier fault has lost no replica has.
    const before = new Set(this.accepted)
    const watch = async () => {
      const replicas = Number(/connected_slaves:(\d+)/.exec(await master.info('replication'))?.[1])
      while (!isOver) {
        const known = this.accepted
        await master.set(key, '')
        const reached = await Promise.race([master.wait(replicas, 1000), isGone])
        if (reached < replicas || isOver) continue
        for (const id of known) if (!before.has(id)) this.#replicated.add(id)
      }
    }
    // It ends with its master.
    watch().catch(() => {})
    return {
      stop: () => {
        isOver = true
      },
    }
  }

  /** Stops the producers, lets what is left run, and accounts for all. */
  async end(): Promise<Account> {
    for (const producer of this.#producers) await producer.stop()
    const left = () => this.#queue.getJobCountByTypes('wait', 'active', 'delayed', 'prioritized').catch(() => -1)
    await expect.poll(left, { timeout: 60_000, interval: 100 }).toBe(0)
    const unavailable = this.#producers.flatMap(({ refused }) => refused)
    expect(unavailable.filter(({ error }) => !(error instanceof QueueUnavailableError))).toEqual([])
    const told = [
      ...this.accepted.flatMap((id) => [`tried ${id}`, `accepted ${id} 0`]),
      ...unavailable.flatMap(({ jobId, error }) =>
        (error as QueueUnavailableError).mayBeStored ? [`tried ${jobId}`] : [`tried ${jobId}`, `refused ${jobId}`],
      ),
      ...this.fleet.failed.map((id) => `failed ${id}`),
    ]
    const verdict = audit([...told, ...this.#notes], TERMS)
    return {
      ...verdict,
      lostThoughReplicated: verdict.lost.filter((id) => this.#replicated.has(id)),
      losses: this.fleet.losses.length,
    }
  }
}

/** When all went on after each of some faults, and how much of that is ours. */
export function course(gaps: readonly Gap[]): string {
  return gaps
    .map(({ namedMs, resumedMs, acceptedMs }) => {
      const ours = (ms: number) => (namedMs === undefined ? '' : ` (${ms - namedMs} after the new master was named)`)
      return `  starts went on after ${resumedMs} ms${ours(resumedMs)}, acceptances after ${acceptedMs} ms${ours(acceptedMs)}\n`
    })
    .join('')
}

/** One line for people. */
export function summary(what: string, account: Account, gap?: Pick<Gap, 'startsMs' | 'acceptancesMs'>): string {
  const { accepted, lost, duplicated, unexpected, recovered, worst, losses } = account
  const pause = gap ? `no start for ${gap.startsMs} ms, no acceptance for ${gap.acceptancesMs} ms; ` : ''
  return (
    `${what}: ${pause}${accepted} accepted, lost ${lost.length}, duplicated ${duplicated.length}, ` +
    `unexpected ${unexpected.length}, recovered ${recovered.length}; above by ${Math.max(0, worst.excess).toFixed(2)}, ` +
    `losses reported ${losses}\n`
  )
}
