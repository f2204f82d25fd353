// departure/: how jobs leave a queue: how they are fetched, finished and given back, and the scripts' replies. It must
// not know the worker's loop, which asks for jobs, or BullMQ's backend.

import { type Argument, type Client, runScript } from '../redis/commands.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type DepartureReply, readDeparture } from './reply.ts'

/** A worker's request for jobs. */
export interface DepartureRequest {
  /** Jobs that it has room for, at least 1. */
  readonly jobs: number
  /** How far ahead slots may lie, µs; 0: only jobs that may start now. */
  readonly horizonUs: number
  /** The longest horizon of a worker that is known here, µs. Default: that of this request. */
  readonly longestHorizonUs?: number
  readonly workerId: string
  readonly allowUnshaped: boolean
  /** Run times of its jobs, as in `RunTimes`. Default '': unknown, or measured by the scripts that finish them. */
  readonly ran?: string
}

/** A worker for which jobs are fetched and ended. */
export interface DepartingWorker {
  readonly id: string
  readonly allowUnshaped: boolean
}

/** A call of BullMQ's moveToFinished or moveToDelayed. */
export interface EndCall {
  readonly client: Client
  readonly script: string
  readonly args: Argument[]
  /** Number of keys among them. */
  readonly keys: number
  /** Whether the job is not kept. */
  readonly discarded: boolean
}

const MAX_RESTORES = 3
const DEFAULT_LOCK_MS = 30_000

/** Index of BullMQ's "fetch the next job" among the arguments of the two scripts that can do it. */
const FETCH_ARGUMENT: Readonly<Record<string, number>> = { moveToFinished: 5, moveToDelayed: 7 }

/** Whether an end is to fetch the next job. */
export function isFetching({ args, keys, script }: Pick<EndCall, 'args' | 'keys' | 'script'>): boolean {
  return String(args[keys + (FETCH_ARGUMENT[script] as number)]) === '1'
}

/** Calls of the scripts that start and end jobs of one queue, and what their replies say to all. */
export class Departures {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #id: string
  readonly #memoMs: number
  readonly #wallMs: () => number
  #calls = 0
  /** How far the local clock was ahead of Redis's at the last reply, ms. */
  #aheadMs = 0
  #worker: DepartingWorker | undefined

  /**
   * @param id of this backend: identifies repeated calls
   * @param wallMs the local clock, which BullMQ's code uses to wait for delayed jobs
   */
  constructor(
    scripts: ScriptSet,
    store: ShapeStore,
    id: string,
    lockDurationMs: number | undefined,
    wallMs: () => number = Date.now,
  ) {
    this.#scripts = scripts
    this.#store = store
    this.#id = id
    this.#memoMs = lockDurationMs ?? DEFAULT_LOCK_MS
    this.#wallMs = wallMs
  }

  /**
   * When a delayed job is due on the local clock (ms), which BullMQ's code compares with. In a queue with a shape,
   * delays count on Redis's clock.
   */
  dueLocallyMs(dueMs: number): number {
    return this.#store.memory.stored && dueMs > 0 ? dueMs + this.#aheadMs : dueMs
  }

  /** Jobs are fetched and ended for this worker from now on. */
  serve(worker: DepartingWorker): void {
    this.#worker = worker
  }

  /**
   * Postpones a job, or finishes one alone, and fetches the next one behind the gate.
   * @returns BullMQ's own tuple if such a job was fetched when the same call was first sent
   */
  end({ client, script, args, keys, discarded }: EndCall, horizonUs: number): Promise<readonly unknown[]> {
    const call = [this.#memoMs, horizonUs, this.#remembers, this.#nextCall()]
    const kept = script === 'moveToFinished' ? [discarded ? 1 : 0] : []
    const all = this.#splice(args, keys, [this.#store.memory.identityText, ...kept, ...call])
    return runScript<readonly unknown[]>(client, this.#scripts.command(script), all)
  }

  /** Ends jobs together. @param jobs as `lua/verbs/exchange.lua` gets them */
  exchange(
    client: Client,
    { horizonUs, reported }: { readonly horizonUs: number; readonly reported: number },
    jobs: readonly Argument[],
  ): Promise<readonly unknown[]> {
    const { identityText } = this.#store.memory
    const allows = this.#worker?.allowUnshaped ? '1' : '0'
    const args = [this.#store.key, identityText, horizonUs, this.#nextCall(), this.#memoMs, allows, reported, ...jobs]
    return runScript<readonly unknown[]>(client, this.#scripts.command('exchange'), args)
  }

  /** Whether the worker of these jobs is a ShapedWorker. */
  get isServing(): boolean {
    return this.#worker !== undefined
  }

  /** Whether Redis is to remember what a call granted, in case it is sent twice. */
  get #remembers(): number {
    return this.#worker || this.#store.memory.stored ? 1 : 0
  }

  /** @param args the arguments of BullMQ's moveToActive */
  async depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<DepartureReply> {
    const { jobs, horizonUs, longestHorizonUs = horizonUs, workerId, allowUnshaped, ran = '' } = request
    await this.#store.prepared()
    const call = this.#nextCall()
    for (let attempt = 0; ; attempt++) {
      const ours = [
        ...this.#store.memory.identity,
        jobs,
        horizonUs,
        call,
        workerId,
        allowUnshaped ? '1' : '0',
        this.#memoMs,
        ran,
        longestHorizonUs,
      ]
      const command = this.#scripts.command('moveToActive')
      const raw = (await runScript(client, command, this.#splice(args, keys, ours))) as unknown[]
      const reply = this.read(raw)
      if (!reply.lost || attempt === MAX_RESTORES) return reply
      await this.#store.restore()
    }
  }

  /** Reads a reply, and learns what it says of the shape. */
  read(raw: readonly unknown[]): DepartureReply {
    const reply = readDeparture(raw)
    this.#store.memory.learn(reply.news)
    if (reply.loss) this.#store.emit('stateLoss', reply.loss)
    if (reply.nowUs !== undefined) this.#aheadMs = this.#wallMs() - Math.floor(reply.nowUs / 1000)
    return { ...reply, delayedMs: this.dueLocallyMs(reply.delayedMs) }
  }

  #splice(args: readonly Argument[], keys: number, ours: readonly Argument[]): Argument[] {
    const all = args.slice(0, keys)
    all.push(this.#store.key)
    for (let i = keys; i < args.length; i++) all.push(args[i])
    all.push(...ours)
    return all
  }

  #nextCall(): string {
    this.#calls += 1
    return `${this.#worker?.id ?? this.#id}:${this.#calls}`
  }
}
