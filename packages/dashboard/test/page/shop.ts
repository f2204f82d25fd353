import { setTimeout as delay } from 'node:timers/promises'
import type { ConnectionOptions } from 'bullmq'
import { QueueFullError, type Shape, ShapedQueue, ShapedWorker } from '../../../../src/index.ts'

/** A queue of the shop: how its jobs come, and what becomes of them. */
interface Trade {
  readonly name: string
  readonly shape: Shape
  /** Jobs a second, at a part of the run from 0 to 1. */
  readonly arrivals: (part: number) => number
  readonly job: string
  readonly jobMs: number
  /** Workers, and the jobs that each runs at once. */
  readonly workers: number
  readonly concurrency: number
  readonly deadLetter?: string
  /** Of so many jobs one fails for good. */
  readonly failsOneOf?: number
}

const wave = (mean: number, swing: number, turns: number) => (part: number) =>
  mean + swing * Math.sin(part * turns * 2 * Math.PI)
const steady = (perSecond: number) => () => perSecond

const TRADES: readonly Trade[] = [
  {
    name: 'emails',
    shape: { rate: '50/s', burst: 10, capacity: 900 },
    arrivals: (part) => wave(44, 14, 5)(part) + (part > 0.77 && part < 0.9 ? 40 : 0),
    job: 'order-confirmation',
    ...{ jobMs: 70, workers: 2, concurrency: 10, deadLetter: 'emails-dead', failsOneOf: 150 },
  },
  {
    name: 'payments',
    shape: { rate: '25/s', limits: [{ name: 'per-minute', rate: '1200/min', burst: 60 }], capacity: 5000 },
    arrivals: wave(19, 5, 3),
    ...{ job: 'capture', jobMs: 90, workers: 1, concurrency: 10 },
  },
  {
    name: 'db-writes',
    shape: { rate: '120/s', concurrency: 4, capacity: 20_000 },
    arrivals: wave(26, 9, 4),
    ...{ job: 'insert-row', jobMs: 60, workers: 2, concurrency: 4 },
  },
  {
    name: 'report-exports',
    shape: { rate: '2/s', capacity: 60 },
    arrivals: steady(2.6),
    ...{ job: 'export', jobMs: 200, workers: 1, concurrency: 4 },
  },
  {
    name: 'sms',
    shape: { rate: '10/s', mode: 'shadow', capacity: 500 },
    arrivals: wave(9, 3, 6),
    ...{ job: 'text', jobMs: 40, workers: 1, concurrency: 8 },
  },
  {
    name: 'webhooks',
    shape: { rate: '600/min', burst: 20, capacity: 2000 },
    arrivals: steady(3),
    ...{ job: 'deliver', jobMs: 80, workers: 1, concurrency: 6 },
  },
  {
    name: 'search-index',
    shape: { rate: '30/s', capacity: 1000 },
    arrivals: wave(12, 6, 2),
    ...{ job: 'reindex', jobMs: 30, workers: 1, concurrency: 6 },
  },
]

const TICK_MS = 250
const MOST_MS = 2 * TICK_MS

/** Real jobs that flow through real queues, with what happens in a shop's day, for pictures of it. */
export class Shop {
  readonly #queues: readonly ShapedQueue[]
  readonly #workers: readonly ShapedWorker[]
  /** What the mail provider answers while it is busy. */
  #isBusy = false

  constructor(connection: ConnectionOptions, prefix: string) {
    this.#queues = TRADES.map(({ name, shape }) => new ShapedQueue(name, { connection, prefix, shape }))
    this.#workers = TRADES.flatMap((trade) =>
      Array.from({ length: trade.workers }, () => this.#worker(trade, { connection, prefix })),
    )
  }

  /** Lets jobs come for a while. */
  async open(forMs: number): Promise<void> {
    const events = this.#events(forMs)
    const begun = performance.now()
    let seen = begun
    const owed = TRADES.map(() => 0)
    for (let part = 0; part < 1; part = (performance.now() - begun) / forMs) {
      while (events[0] && events[0].at <= part) await events.shift()?.happen()
      // Where this machine was busy with something else, what was missed does not come at once.
      const seconds = Math.min(MOST_MS, performance.now() - seen) / 1000
      seen = performance.now()
      await Promise.all(
        TRADES.map(async ({ arrivals, job }, i) => {
          owed[i] = (owed[i] ?? 0) + Math.max(0, arrivals(part)) * seconds
          const due = Math.floor(owed[i] ?? 0)
          owed[i] = (owed[i] ?? 0) - due
          await Promise.all(Array.from({ length: due }, () => this.#offer(i, job)))
        }),
      )
      await delay(Math.max(0, TICK_MS - ((performance.now() - begun) % TICK_MS)))
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.close(true)))
    await Promise.all(this.#queues.map((queue) => queue.close()))
  }

  async #offer(i: number, job: string): Promise<void> {
    const options = { removeOnComplete: { count: 200 }, removeOnFail: { count: 200 } }
    await this.#queues[i]?.add(job, {}, options).catch((error) => {
      if (!(error instanceof QueueFullError)) throw error
    })
  }

  #worker(trade: Trade, at: { connection: ConnectionOptions; prefix: string }): ShapedWorker {
    const { name, jobMs, concurrency, deadLetter, failsOneOf = Number.POSITIVE_INFINITY } = trade
    let done = 0
    const options = { ...at, concurrency, ...(deadLetter === undefined ? {} : { deadLetter }) }
    return new ShapedWorker(
      name,
      async (job) => {
        await delay(jobMs * (0.7 + Math.random() * 0.6))
        done += 1
        if (name === 'emails' && this.#isBusy) {
          this.#isBusy = false
          const rate = { limit: 32, period: 1000 }
          await job.feedback({ kind: 'slow', rate, ttlMs: 45_000, reason: '454 4.7.0 Throttling: too many messages' })
        }
        if (done % failsOneOf === 0) throw new Error('550 5.1.1 mailbox not found')
      },
      options,
    )
  }

  #queue(name: string): ShapedQueue {
    return this.#queues.find((queue) => queue.name === name) as ShapedQueue
  }

  /** What happens when, in parts of the run. */
  #events(forMs: number): { at: number; happen: () => Promise<void> | void }[] {
    const emails = this.#queue('emails')
    const until = (part: number) => Date.now() + part * forMs
    return [
      {
        at: 0.16,
        happen: () =>
          emails.setShape({ rate: '30/s' }, { by: 'mara', reason: 'provider incident 4711', ttlMs: forMs * 0.14 }),
      },
      { at: 0.42, happen: () => emails.pauseUntil(until(0.04), { by: 'jonas', reason: 'credentials are rotated' }) },
      {
        at: 0.5,
        happen: () => this.#queue('payments').setShape({ rate: '22/s' }, { by: 'mara', reason: 'fewer declines' }),
      },
      {
        at: 0.62,
        happen: () => {
          this.#isBusy = true
        },
      },
      {
        at: 0.7,
        happen: () => this.#queue('webhooks').pauseUntil(until(1), { by: 'jonas', reason: 'the receiver moves' }),
      },
    ]
  }
}
