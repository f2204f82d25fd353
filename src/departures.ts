import type { Dispatching } from './backend-options.ts'
import { type DepartureReply, readDeparture, stockTuple } from './departure-reply.ts'
import { type Argument, type Client, runScript } from './redis-commands.ts'
import type { ScriptSet } from './scripts.ts'
import type { ShapeStore } from './shape-store.ts'

/** What a worker asks for. */
export interface DepartureRequest {
  /** Jobs that it could take, at least 1. */
  readonly jobs: number
  /** How far ahead slots may lie, µs; 0: only what may start now. */
  readonly horizonUs: number
  readonly workerId: string
  readonly allowUnshaped: boolean
}

/** A job that ended: the fields that `lua/finish-batch.lua` takes of it, and whether its place is to be filled. */
export interface FinishedJob {
  readonly fields: readonly Argument[]
  readonly fetches: boolean
}

const MAX_RESTORES = 3
const DEFAULT_LOCK_MS = 30_000

/** Index of BullMQ's "fetch the next job" among the arguments of the two scripts that can. */
const FETCH_ARGUMENT: Readonly<Record<string, number>> = { moveToFinished: 5, moveToDelayed: 7 }

/** Starts and finishes jobs of one queue through the meter. */
export class Departures {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #id: string
  readonly #memoMs: number
  #calls = 0
  #dispatching: Dispatching | undefined

  /** @param id of this backend: a repeated call is recognised by it */
  constructor(scripts: ScriptSet, store: ShapeStore, id: string, lockDurationMs: number | undefined) {
    this.#scripts = scripts
    this.#store = store
    this.#id = id
    this.#memoMs = lockDurationMs ?? DEFAULT_LOCK_MS
  }

  /** From now on jobs go to this worker as they are granted, not through BullMQ's own loop. */
  dispatchTo(worker: Dispatching): void {
    this.#dispatching = worker
  }

  get dispatching(): Dispatching | undefined {
    return this.#dispatching
  }

  /** @param args those of BullMQ's moveToActive */
  async depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<DepartureReply> {
    const [reply] = await this.#depart(client, args, keys, request)
    return reply
  }

  /** For a stock worker: one job, only if it may start now. @returns what BullMQ's loop expects */
  async departStock(client: Client, args: readonly Argument[], keys: number): Promise<unknown[]> {
    const workerId = this.#store.memory.stored ? this.#id : ''
    const request = { jobs: 1, horizonUs: 0, workerId, allowUnshaped: true }
    const [reply, raw] = await this.#depart(client, args, keys, request)
    return stockTuple(reply, raw)
  }

  /**
   * Finishes several jobs, and fetches as many as they ask for, in one script.
   * @param active arguments of BullMQ's moveToActive, made with the token
   * @returns for each job BullMQ's code, or the text of an error
   */
  async finishBatch(
    client: Client,
    active: readonly Argument[],
    token: string,
    jobs: readonly FinishedJob[],
  ): Promise<readonly (number | string)[]> {
    const worker = this.#dispatching as Dispatching
    const keys = active.slice(0, -3)
    const wanted = jobs.filter(({ fetches }) => fetches).length
    const call = [
      wanted,
      worker.horizonUs,
      this.#nextCall(),
      worker.workerId,
      this.#memoMs,
      worker.allowUnshaped ? '1' : '0',
    ]
    const raw = (await runScript(client, this.#scripts.command('finish-batch'), [
      ...keys,
      this.#store.key,
      ...this.#store.memory.identity,
      ...call,
      ...active.slice(-3),
      ...jobs.flatMap(({ fields }) => fields),
    ])) as unknown[]
    const reply = readDeparture(raw)
    this.#note(reply)
    if (reply.lost) await this.#store.restore()
    if (wanted > 0) worker.onBatch(reply, token)
    return raw[2] as (number | string)[]
  }

  /** @param script moveToFinished or moveToDelayed; @returns what BullMQ's code expects of it */
  async finish(
    client: Client,
    script: string,
    args: readonly Argument[],
    keys: number,
    discarded: boolean,
  ): Promise<unknown> {
    const fetches = String(args[keys + (FETCH_ARGUMENT[script] as number)]) === '1'
    const worker = this.#dispatching
    const remembers = worker || this.#store.memory.stored ? 1 : 0
    const settings = `${worker?.horizonUs ?? 0} ${this.#memoMs} ${remembers} ${discarded ? 1 : 0}`
    const ours = [this.#store.memory.identityText, this.#nextCall(), settings]
    const raw = (await runScript(client, this.#scripts.command(script), this.#splice(args, keys, ours))) as unknown[]
    const reply = readDeparture(raw)
    this.#note(reply)
    if (reply.lost) await this.#store.restore()
    if (reply.result < 0 || !fetches) return reply.result
    worker?.onDeparture(reply)
    // Without a job, BullMQ's moveToDelayed says nothing more; a closed bucket has to.
    const silent = worker !== undefined || (script === 'moveToDelayed' && reply.stop !== 'closed')
    return reply.lost || (reply.grants.length === 0 && silent) ? 0 : stockTuple(reply, raw)
  }

  async #depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<[DepartureReply, readonly unknown[]]> {
    const { jobs, horizonUs, workerId, allowUnshaped } = request
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
      ]
      const command = this.#scripts.command('moveToActive')
      const raw = (await runScript(client, command, this.#splice(args, keys, ours))) as unknown[]
      const reply = readDeparture(raw)
      this.#note(reply)
      if (!reply.lost || attempt === MAX_RESTORES) return [reply, raw]
      await this.#store.restore()
    }
  }

  #note(reply: DepartureReply): void {
    this.#store.memory.learn(reply.news)
    if (reply.loss) this.#store.emit('stateLoss', reply.loss)
  }

  #splice(args: readonly Argument[], keys: number, ours: readonly Argument[]): Argument[] {
    return [...args.slice(0, keys), this.#store.key, ...args.slice(keys), ...ours]
  }

  #nextCall(): string {
    this.#calls += 1
    return `${this.#dispatching?.workerId ?? this.#id}:${this.#calls}`
  }
}
