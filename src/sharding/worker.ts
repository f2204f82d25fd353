import { EventEmitter } from 'node:events'
import { InvalidInputError } from '../errors.ts'
import type { FeedbackChange } from '../feedback/request.ts'
import { ShapedQueue } from '../queue/queue.ts'
import type { ShapedProcessor, ShapedWorkerListener } from '../worker/options.ts'
import { MAX_HORIZON } from '../worker/options.ts'
import { ShapedWorker } from '../worker/worker.ts'
import { Coordinator } from './coordinator.ts'
import { checkConcurrency, checkShards, type ShardedWorkerOptions } from './options.ts'
import { openHead, partOf, shardOptions } from './parts.ts'
import { Permits } from './permits.ts'
import type { Shards } from './placement.ts'
import { MAX_HORIZON_MS } from './shapes.ts'

/** Events of the shards' workers, which the sharded worker emits as its own. */
const RELAYED = [
  ...['active', 'completed', 'failed', 'progress', 'stalled', 'error', 'departed', 'late', 'expired', 'feedback'],
  ...['verdict', 'foreignWorker', 'clockStep', 'overloaded', 'relieved', 'lockRenewalFailed', 'stateLoss'],
] as const

/** How often the places of this process are divided anew, ms. */
const REBALANCE_MS = 50

type Listeners<D, R> = {
  [E in keyof ShapedWorkerListener<D, R, string>]: Parameters<ShapedWorkerListener<D, R, string>[E]>
}

/** A worker of all shards of a queue: one ShapedWorker for each, which share its places. */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Worker
export class ShardedWorker<DataType = any, ResultType = any> extends EventEmitter<Listeners<DataType, ResultType>> {
  readonly name: string
  readonly #processor: ShapedProcessor<DataType, ResultType, string>
  readonly #options: Omit<ShardedWorkerOptions, 'shards'>
  readonly #declared: number
  readonly #head: ShapedQueue
  readonly #workers: ShapedWorker<DataType, ResultType>[] = []
  /** Shards without a worker here, because this process has fewer places than there are shards. */
  readonly #spare = new Map<number, ShapedQueue>()
  readonly #permits: Permits
  readonly #coordinator: Coordinator
  readonly #rebalancing: NodeJS.Timeout
  #count: number
  #paused = false
  #told = false
  #closing: Promise<void> | undefined

  /** @throws InvalidInputError, InvalidShapeError, InvalidRateError, UnsupportedOptionError */
  constructor(name: string, processor: ShapedProcessor<DataType, ResultType, string>, options: ShardedWorkerOptions) {
    super()
    const { shards, ...opts } = options
    this.#declared = checkShards(shards)
    this.#count = this.#declared
    this.#permits = new Permits(checkConcurrency(options.concurrency, shards))
    this.name = name
    this.#processor = processor
    this.#options = opts
    const { connection, prefix, declarer } = opts
    const queueOptions = { connection, ...(prefix ? { prefix } : {}), ...(declarer ? { declarer } : {}) }
    this.#head = openHead(name, queueOptions, opts.shape, shards)
    this.#head.on('error', (error) => this.#emit('error', error))
    for (let shard = 0; shard < shards; shard++) this.#open(shard)
    this.#coordinator = new Coordinator(
      {
        head: partOf(this.#head.backend.store),
        parts: (count) => this.#parts(count),
        onShards: (found) => this.#follow(found),
        onError: (error) => this.#emit('error', error),
      },
      shards,
    )
    this.#rebalancing = setInterval(() => this.#rebalance(), REBALANCE_MS)
    this.#rebalancing.unref()
  }

  /** The worker of each shard. */
  get workers(): readonly ShapedWorker<DataType, ResultType>[] {
    return this.#workers
  }

  async waitUntilReady(): Promise<void> {
    await Promise.all([this.#coordinator.started, ...this.#workers.map((worker) => worker.waitUntilReady())])
  }

  /** Stops taking jobs; resolves once the running ones have ended. */
  async pause(doNotWaitActive?: boolean): Promise<void> {
    this.#paused = true
    await Promise.all(this.#workers.map((worker) => worker.pause(doNotWaitActive)))
  }

  async resume(): Promise<void> {
    this.#paused = false
    await Promise.all(this.#workers.map((worker) => worker.resume()))
  }

  /** Resolves once the running jobs have ended. */
  close(force = false): Promise<void> {
    this.#closing ??= this.#close(force)
    return this.#closing
  }

  async #close(force: boolean): Promise<void> {
    clearInterval(this.#rebalancing)
    await Promise.all(this.#workers.map((worker) => worker.close(force)))
    // Until then leases are renewed, so that jobs of other processes go on.
    await this.#coordinator.close()
    await Promise.all([...this.#spare.values(), this.#head].map((queue) => queue.close()))
  }

  #parts(count: number) {
    return Array.from({ length: count }, (_, shard) => {
      const worker = this.#workers[shard]
      return partOf((worker ?? this.#unserved(shard)).backend.store)
    })
  }

  #unserved(shard: number): ShapedQueue {
    const known = this.#spare.get(shard)
    if (known) return known
    const { connection, prefix, shape } = this.#options
    const options = { connection, ...(prefix ? { prefix } : {}) }
    const queue = new ShapedQueue(this.name, shardOptions(this.name, options, shape, shard, this.#declared))
    queue.on('error', (error) => this.#emit('error', error))
    this.#spare.set(shard, queue)
    return queue
  }

  #open(shard: number): void {
    const { shape, ...options } = this.#options
    const own = shardOptions(this.name, options, shape, shard, this.#declared)
    const worker = new ShapedWorker<DataType, ResultType>(this.name, this.#processor, {
      ...own,
      concurrency: 1,
      [MAX_HORIZON]: MAX_HORIZON_MS,
    } as never)
    for (const event of RELAYED)
      worker.on(event as never, ((...args: unknown[]) => this.#emit(event, ...args)) as never)
    worker.on('clockStep', () => void this.#endLease(worker))
    worker.on('feedback', (change) => void this.#pauseOthers(worker, change))
    if (this.#paused) void worker.pause(true)
    this.#workers.push(worker)
    this.#permits.add(worker)
  }

  /** A new shard is served as soon as a place is free for its worker. */
  #rebalance(): void {
    const waiting = this.#workers.length < this.#count
    if (waiting && this.#workers.length >= this.#options.concurrency) {
      this.#tell()
    } else if (waiting && this.#permits.hasFree && !this.#closing) {
      this.#open(this.#workers.length)
    }
    this.#permits.rebalance(this.#workers.length < Math.min(this.#count, this.#options.concurrency))
  }

  #tell(): void {
    if (this.#told) return
    this.#told = true
    const { concurrency } = this.#options
    this.#emit(
      'error',
      new InvalidInputError(
        `queue "${this.name}" has ${this.#count} shards now, and concurrency is ${concurrency}: ` +
          'this worker leaves the last ones to others; give it at least one place for each',
      ),
    )
  }

  // Workers of shards that left stay: a producer that does not know yet may add a job.
  #follow({ count }: Shards): void {
    this.#count = count
  }

  /** A lease ends by Redis's clock: one that went back would let it last longer. */
  async #endLease({ backend }: ShapedWorker<DataType, ResultType>): Promise<void> {
    const { store } = backend
    if (!store.memory.stored?.overrides().rate) return
    const change = { rate: { clear: true } } as const
    await store.override(change, 'shards', "Redis's clock went back", undefined).catch(() => undefined)
    this.#coordinator.nudge()
  }

  /** A pause that the downstream asks for is meant for the whole queue. */
  async #pauseOthers(one: ShapedWorker<DataType, ResultType>, change: FeedbackChange): Promise<void> {
    const { kind, scope, until, at, reason, by } = change
    if (kind !== 'pause' || scope !== 'queue' || !until) return
    const pause = { kind: 'for', ms: Math.max(1, until.getTime() - at.getTime()), reason, by } as const
    const others = this.#workers.filter((worker) => worker !== one)
    await Promise.allSettled(others.map((worker) => worker.backend.store.pause(pause)))
  }

  /** As BullMQ does: an error without a listener does not end the program. */
  #emit(event: string, ...args: unknown[]): void {
    if (event === 'error' && this.listenerCount('error') === 0) console.error(args[0])
    else this.emit(event as never, ...(args as never))
  }
}
