import { EventEmitter } from 'node:events'
import { checkQueueName } from '../call-options.ts'
import { ShardCountError } from '../errors.ts'
import type { FeedbackChange } from '../feedback/request.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { failureKind } from '../redis/failures.ts'
import { warnUnhandled } from '../redis/unhandled-errors.ts'
import { MAX_HORIZON, type ShapedProcessor, type ShapedWorkerListener } from '../worker/options.ts'
import { ShapedWorker } from '../worker/worker.ts'
import { Coordinator } from './coordinator.ts'
import { ShardNumber } from './number.ts'
import { checkShardedWorker, type ShardedWorkerOptions } from './options.ts'
import { enlist, openHead, partOf, shardOptions } from './parts.ts'
import { MAX_HORIZON_MS } from './shapes.ts'

/** Events of the shards' workers, which the sharded worker emits as its own. */
const RELAYED = [
  ...['active', 'completed', 'failed', 'progress', 'stalled', 'error', 'departed', 'late', 'expired', 'feedback'],
  ...['verdict', 'foreignWorker', 'clockStep', 'overloaded', 'relieved', 'lockRenewalFailed', 'stateLoss'],
] as const

/** How often the places of this process are divided again, ms. */
const REBALANCE_MS = 50

type Listeners<D, R> = {
  [E in (typeof RELAYED)[number]]: Parameters<ShapedWorkerListener<D, R, string>[E]>
}

/** A worker of all shards of a queue: one ShapedWorker for each, which share its places. */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Worker
export class ShardedWorker<DataType = any, ResultType = any> extends EventEmitter<Listeners<DataType, ResultType>> {
  readonly name: string
  readonly #processor: ShapedProcessor<DataType, ResultType, string>
  readonly #options: Omit<ShardedWorkerOptions, 'shards'>
  readonly #number: ShardNumber
  readonly #head: ShapedQueue
  readonly #workers: ShapedWorker<DataType, ResultType>[] = []
  readonly #permits: Permits
  readonly #coordinator: Coordinator
  readonly #rebalancing: NodeJS.Timeout
  #paused = false
  #closing: Promise<void> | undefined

  /** @throws InvalidInputError, InvalidShapeError, InvalidRateError, UnsupportedOptionError */
  constructor(name: string, processor: ShapedProcessor<DataType, ResultType, string>, options: ShardedWorkerOptions) {
    super()
    checkQueueName(name)
    checkShardedWorker(name, processor, options)
    const { shards, ...opts } = options
    this.#permits = new Permits(options.concurrency)
    this.name = name
    this.#processor = processor
    this.#options = opts
    const { connection, prefix, declarer } = opts
    const queueOptions = { connection, ...(prefix === undefined ? {} : { prefix }), ...(declarer ? { declarer } : {}) }
    this.#head = openHead(name, queueOptions, opts.shape, shards)
    this.#head.on('error', (error) => this.#emit('error', error))
    const enlistHere = () => enlist(this.#head, name, prefix, shards)
    this.#head.on('stateLoss', enlistHere)
    this.#number = new ShardNumber(name, this.#head.backend.store, shards, opts.shape !== undefined, enlistHere)
    this.#coordinator = new Coordinator({
      shards,
      head: partOf(this.#head.backend.store),
      agree: () => this.#agree(),
      check: (stored) => this.#number.check(stored),
      parts: () => this.#workers.map((worker) => partOf(worker.backend.store)),
      onError: (error) => this.#fails(error),
    })
    this.#rebalancing = setInterval(() => this.#permits.rebalance(), REBALANCE_MS)
    this.#rebalancing.unref()
  }

  /** The worker of each shard; empty until the head of the queue has confirmed the number of shards. */
  get workers(): readonly ShapedWorker<DataType, ResultType>[] {
    return this.#workers
  }

  /** @throws ShardCountError if the queue has another number of shards */
  async waitUntilReady(): Promise<void> {
    await this.#coordinator.started
    await Promise.all(this.#workers.map((worker) => worker.waitUntilReady()))
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
    // Until then leases are renewed, so that jobs of other processes continue.
    await this.#coordinator.close()
    await this.#head.close()
  }

  async #agree(): Promise<void> {
    await this.#number.agree()
    if (!this.#number.isStored || this.#closing) return
    for (let shard = this.#workers.length; shard < this.#number.count; shard++) this.#open(shard)
  }

  #fails(error: Error): void {
    // Until it is started again, with the current number of shards.
    if (error instanceof ShardCountError) void this.pause(true)
    // Workers of some shards close before those of others, whose leases are still renewed.
    if (this.#closing && failureKind(error)) return
    this.#emit('error', error)
  }

  #open(shard: number): void {
    const { shape, ...options } = this.#options
    const own = shardOptions(this.name, options, shape, shard, this.#number.count)
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

  /** A lease ends by Redis's clock: one that went back would let it last longer. */
  async #endLease({ backend }: ShapedWorker<DataType, ResultType>): Promise<void> {
    const { store } = backend
    if (!store.memory.stored?.overrides().rate) return
    const change = { rate: { clear: true } } as const
    await store.override(change, 'shards', "Redis's clock went back", undefined).catch(() => undefined)
    this.#coordinator.nudge()
  }

  /** A pause that the downstream asks for applies to the whole queue. */
  async #pauseOthers(one: ShapedWorker<DataType, ResultType>, change: FeedbackChange): Promise<void> {
    const { kind, scope, until, at, reason, by } = change
    if (kind !== 'pause' || scope !== 'queue' || !until) return
    const pause = { kind: 'for', ms: Math.max(1, until.getTime() - at.getTime()), reason, by } as const
    const others = this.#workers.filter((worker) => worker !== one)
    await Promise.allSettled(others.map((worker) => worker.backend.store.pause(pause)))
  }

  /** As BullMQ does: an error without a listener does not end the program. */
  #emit(event: string, ...args: unknown[]): void {
    if (event === 'error' && this.listenerCount('error') === 0) warnUnhandled(args[0])
    else this.emit(event as never, ...(args as never))
  }
}

/** A worker that takes a share of the places of a process. */
interface Sharer {
  concurrency: number
  /** Jobs that it runs, holds for their slots or has asked for. */
  placesTaken(): number
}

/**
 * Divides the places of a process among the workers of its shards, at least one for each. A worker's place goes to
 * another only once it is free, so the total of jobs in hand never exceeds the places.
 */
export class Permits {
  readonly #total: number
  readonly #sharers: Sharer[] = []

  constructor(total: number) {
    this.#total = total
  }

  /** Adds a worker that has one place. */
  add(sharer: Sharer): void {
    this.#sharers.push(sharer)
  }

  rebalance(): void {
    if (this.#sharers.length === 0) return
    const wanted = this.#wanted(this.#total)
    for (const [i, sharer] of this.#sharers.entries()) {
      const less = wanted[i] as number
      if (less < sharer.concurrency) sharer.concurrency = less
    }
    let free = this.#free()
    for (const [i, sharer] of this.#sharers.entries()) {
      const more = Math.min(free, (wanted[i] as number) - sharer.concurrency)
      if (more <= 0) continue
      sharer.concurrency += more
      free -= more
    }
  }

  #free(): number {
    const held = this.#sharers.map((sharer) => Math.max(sharer.concurrency, sharer.placesTaken()))
    return this.#total - held.reduce((sum, one) => sum + one, 0)
  }

  /**
   * A worker that uses all of its places wants as many as it can get, any other one more than it uses. All get as much,
   * if they want it.
   */
  #wanted(total: number): number[] {
    const wants = this.#sharers.map((sharer) => {
      const taken = sharer.placesTaken()
      return taken >= sharer.concurrency ? total : Math.max(1, taken + 1)
    })
    const given = wants.map(() => 0)
    let [left, open] = [total, wants.map((_, i) => i)]
    while (left > 0 && open.length > 0) {
      const even = Math.max(1, Math.floor(left / open.length))
      for (const i of open) {
        const more = Math.min(even, left, (wants[i] as number) - (given[i] as number))
        given[i] = (given[i] as number) + more
        left -= more
      }
      open = open.filter((i) => (given[i] as number) < (wants[i] as number))
    }
    // Unwanted places are spread, ready for the next jobs of any worker.
    for (let i = 0; left > 0; i = (i + 1) % given.length, left--) given[i] = (given[i] as number) + 1
    return given.map((n) => Math.max(1, n))
  }
}
