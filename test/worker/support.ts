import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { type Job, type Processor, QueueEvents } from 'bullmq'
import type { Redis } from 'ioredis'
import { afterEach } from 'vitest'
import type { DepartureRequest, Exchange } from '../../src/departure/exchange.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import {
  type Departure,
  ShapedQueue,
  type ShapedQueueOptions,
  ShapedWorker,
  type ShapedWorkerOptions,
} from '../../src/index.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import { PerTest } from '../support/concurrent.ts'
import type { TestRedis } from '../support/redis.ts'

// biome-ignore lint/suspicious/noExplicitAny: tests give jobs of any kind
type AnyJob = Job<any, any, string>
// biome-ignore lint/suspicious/noExplicitAny: as above
type AnyProcessor = Processor<any, any, string>

/** A departure as a test sees it. */
export interface Seen extends Departure {
  readonly id: string
  readonly name: string
  /** The wall clock when the processor was about to be called, ms. */
  readonly wallMs: number
}

/** Anything that has to be closed. */
interface Closing {
  close(): Promise<unknown>
}

/** Makes queues and workers for a test, and closes them after it: workers first, in the order they were made. */
export class Workshop {
  readonly #redis: TestRedis
  readonly #open = new PerTest<Closing>()
  #names = 0

  constructor(redis: TestRedis) {
    this.#redis = redis
    afterEach(() => this.close())
  }

  get connection(): TestRedis['connection'] {
    return this.#redis.connection
  }

  get prefix(): string {
    return this.#redis.prefix
  }

  /** A queue of a new name. */
  queue(shape?: ShapedQueueOptions['shape'], options: Partial<ShapedQueueOptions> = {}): ShapedQueue {
    this.#names += 1
    return this.queueNamed(`q${this.#names}`, shape, options)
  }

  queueNamed(
    name: string,
    shape?: ShapedQueueOptions['shape'],
    options: Partial<ShapedQueueOptions> = {},
  ): ShapedQueue {
    const { connection, prefix } = this.#redis
    return this.keep(new ShapedQueue(name, { connection, prefix, ...(shape ? { shape } : {}), ...options }))
  }

  /** A worker for that queue, which fails the test by an unhandled `error` event unless the test listens itself. */
  worker(
    queue: { name: string },
    processor: AnyProcessor | string | URL | null,
    options: Partial<ShapedWorkerOptions> = {},
  ): ShapedWorker {
    const { connection, prefix } = this.#redis
    return this.keep(new ShapedWorker(queue.name, processor, { connection, prefix, ...options }))
  }

  /**
   * The events of that queue from its first one on. Without `lastEventId` some are never heard: it begins to read after
   * it says that it is ready.
   */
  queueEvents(queue: { name: string }): QueueEvents {
    const { connection, prefix } = this.#redis
    return this.keep(new QueueEvents(queue.name, { connection, prefix, lastEventId: '0' }))
  }

  /** Closes what the test leaves open. */
  keep<T extends Closing>(thing: T): T {
    this.#open.list.unshift(thing)
    return thing
  }

  async close(): Promise<void> {
    const open = this.#open.list.splice(0)
    const queues = open.filter((thing) => thing instanceof ShapedQueue)
    await Promise.all(open.filter((thing) => !queues.includes(thing as ShapedQueue)).map((thing) => thing.close()))
    await Promise.all(queues.map((queue) => queue.close()))
  }
}

/** Collects what happens and lets a test wait for it. */
export class Record<T> {
  readonly all: T[] = []
  readonly #emitter = new EventEmitter()

  add(item: T): void {
    this.all.push(item)
    this.#emitter.emit('added')
  }

  /** Resolves once so many were seen. */
  async reach(count: number): Promise<T[]> {
    return this.until((all) => all.length >= count)
  }

  /** Resolves once what was seen is as wanted. */
  async until(wanted: (all: readonly T[]) => boolean): Promise<T[]> {
    while (!wanted(this.all)) await once(this.#emitter, 'added')
    return this.all
  }
}

/** The departures of some workers, in the order they happened. */
export function departuresOf(...workers: ShapedWorker[]): Record<Seen> {
  const record = new Record<Seen>()
  for (const worker of workers) {
    worker.on('departed', (job, departure) =>
      record.add({ ...departure, id: job.id as string, name: job.name, wallMs: Date.now() }),
    )
  }
  return record
}

/** What a worker emits under a name: the first argument of each. */
export function eventsOf<T = AnyJob>(event: string, ...workers: EventEmitter[]): Record<T> {
  const record = new Record<T>()
  for (const worker of workers) worker.on(event, (first: T) => record.add(first))
  return record
}

/** One call for jobs: what was asked and what came. */
export interface Asked {
  readonly request: DepartureRequest
  readonly reply: DepartureReply
}

/** Watches a worker ask for jobs. */
export function callsOf(worker: ShapedWorker): Record<Asked> {
  const record = new Record<Asked>()
  const exchange = worker.getBackend().exchange as Exchange
  const ask = exchange.ask.bind(exchange)
  exchange.ask = async (request) => {
    const reply = await ask(request)
    // Seen once the worker has taken the answer in.
    setImmediate(() => setImmediate(() => record.add({ request, reply })))
    return reply
  }
  return record
}

/** Calls `seen` for each script that a worker sends from now on, once it is answered. */
export async function watchScripts(
  worker: ShapedWorker,
  seen: (name: string, args: readonly unknown[], reply: unknown) => void,
): Promise<void> {
  const client = await worker.getBackend().client
  const sender = client as unknown as { runCommand(name: string, args: unknown[]): Promise<unknown> }
  const run = sender.runCommand.bind(sender)
  sender.runCommand = async (name, args) => {
    const reply = await run(name, args)
    seen(name, args, reply)
    return reply
  }
}

/** A worker that was told of an answer before it goes on: resolves when its next call for jobs is answered so. */
export async function asksUntil(calls: Record<Asked>, stop: DepartureReply['stop']): Promise<void> {
  await calls.until((all) => all.at(-1)?.reply.stop === stop)
}

const QUIET_MS = 60

/** Resolves once these workers hear what is published for their queue and have stopped asking: they sleep until there is news. */
export async function settled(queue: ShapedQueue, client: Redis, ...calls: Record<Asked>[]): Promise<void> {
  const channel = wakeChannel(queue.toKey(''))
  while ((await client.publish(channel, '')) === 0);
  await quiet(client, ...calls)
}

/** Resolves once these workers have stopped asking. */
export async function quiet(client: Redis, ...calls: Record<Asked>[]): Promise<void> {
  const count = () => calls.reduce((sum, { all }) => sum + all.length, 0)
  let before: number
  do {
    before = count()
    await delay(QUIET_MS)
    // Where Redis is kept waiting, quiet is only what follows its answers.
    await client.ping()
    await delay(QUIET_MS)
  } while (count() > before)
}

/** By how many units the times (µs) exceed the bucket b + T/I in their worst window; 0 or less: the bound holds. */
export function excess(timesUs: readonly number[], intervalUs: number, burst = 1, jitterUs = 0): number {
  const sorted = [...timesUs].sort((a, b) => a - b)
  const origin = sorted[0] ?? 0
  let worst = Number.NEGATIVE_INFINITY
  let best = Number.POSITIVE_INFINITY
  sorted.forEach((time, i) => {
    const level = i - (time - origin) / intervalUs
    best = Math.min(best, level)
    worst = Math.max(worst, level - best + 1 - burst - jitterUs / intervalUs)
  })
  return worst
}

/** Slots are told in whole µs: a window may seem shorter by so much of a unit. */
export function rounding(intervalUs: number): number {
  return 1 / intervalUs + 1e-9
}

/** A promise that a test resolves. */
export function gate<T = void>(): { readonly open: (value: T) => void; readonly opened: Promise<T> } {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { open, opened }
}

export function jobs(count: number, opts: object = {}): { name: string; data: { i: number }; opts: object }[] {
  return Array.from({ length: count }, (_, i) => ({ name: `job${i}`, data: { i }, opts }))
}
