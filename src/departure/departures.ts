// departure/: how jobs leave a queue: how they are fetched, finished and given back, and the scripts' replies. It must
// not know the worker's loop, which asks for jobs, or BullMQ's backend.

import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { FINISH_ONLY, FINISH_OPEN, type ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { Dispatching } from './dispatching.ts'
import { type DepartureReply, type FetchedJob, readDeparture, stockTuple } from './reply.ts'
import { NOT_NOW, UnreportedDepartures } from './unreported.ts'

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

/** A job that ended: its fields for `lua/verbs/finish-batch.lua`, and whether to fetch another in its place. */
export interface FinishedJob {
  readonly fields: readonly Argument[]
  readonly fetches: boolean
}

/** For each finished job: BullMQ's code, the text of an error, or its tuple with the next job. */
export type BatchResult = number | string | FetchedJob

/** Result of a short script: null if it leaves the end of the job to the full one. */
type ShortResult = BatchResult | null

/** Departures that a short script was to count. */
interface Counted {
  /** How many, besides its own; -1: none. */
  readonly reported: number
  /** Whether it counted them, now or when it was first sent. */
  readonly isCounted: boolean
}

const UNCOUNTED: Counted = { reported: NOT_NOW, isCounted: false }

/** A call of BullMQ's moveToFinished or moveToDelayed. */
interface End {
  readonly client: Client
  readonly script: string
  readonly args: readonly Argument[]
  /** Number of keys among them. */
  readonly keys: number
  /** Whether the job is not kept. */
  readonly discarded: boolean
}

const MAX_RESTORES = 3
const DEFAULT_LOCK_MS = 30_000

/** Index of BullMQ's "fetch the next job" among the arguments of the two scripts that can do it. */
const FETCH_ARGUMENT: Readonly<Record<string, number>> = { moveToFinished: 5, moveToDelayed: 7 }

/** While a short script leaves its calls to the full one, at least every 65th call tries it. */
const MOST_PASSED = 64

/** Decides when to try a short script: less and less often while it keeps leaving its calls to the full one. */
class ShortTries {
  #passes = 0
  #left = 0

  take(): boolean {
    if (this.#left === 0) return true
    this.#left -= 1
    return false
  }

  /** @param reply of a short script; @returns whether it did what was asked */
  served(reply: unknown): boolean {
    const served = reply !== null
    this.#passes = served ? 0 : Math.min(MOST_PASSED, 2 * this.#passes || 1)
    this.#left = this.#passes
    return served
  }
}

/** Starts and finishes jobs of one queue through the meter. */
export class Departures {
  readonly #scripts: ScriptSet
  readonly #store: ShapeStore
  readonly #id: string
  readonly #memoMs: number
  readonly #wallMs: () => number
  readonly #unreported = new UnreportedDepartures()
  readonly #open = new ShortTries()
  readonly #grouped = new ShortTries()
  #calls = 0
  /** How far the local clock was ahead of Redis's at the last reply, ms. */
  #aheadMs = 0
  #dispatching: Dispatching | undefined

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

  /** From now on, granted jobs go straight to this worker, not through BullMQ's own loop. */
  dispatchTo(worker: Dispatching): void {
    this.#dispatching = worker
  }

  get dispatching(): Dispatching | undefined {
    return this.#dispatching
  }

  /** @param args the arguments of BullMQ's moveToActive */
  async depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<DepartureReply> {
    await this.#store.prepared()
    const [reply] = await this.#depart(client, args, keys, request)
    return reply
  }

  /** For BullMQ's own code: one job, only if it may start now. @returns what BullMQ's loop expects */
  async departStock(client: Client, args: readonly Argument[], keys: number): Promise<unknown[]> {
    await this.#store.prepared()
    const workerId = this.#store.memory.stored ? this.#id : ''
    const request = { jobs: 1, horizonUs: 0, workerId, allowUnshaped: true }
    const sentMs = this.#dispatching?.nowMs ?? 0
    const [reply, raw] = await this.#depart(client, args, keys, request)
    // After a job went back, BullMQ's code fetches the next one by itself.
    if (reply.grants.length > 0) this.#dispatching?.onDeparture(reply, sentMs)
    return stockTuple(reply, raw)
  }

  /**
   * Finishes several jobs, and fetches as many as they ask for, in one script.
   * @param active arguments of BullMQ's moveToActive, made with the token
   */
  async finishBatch(
    client: Client,
    active: readonly Argument[],
    token: string,
    jobs: readonly FinishedJob[],
  ): Promise<readonly BatchResult[]> {
    const fetches = jobs.some((job) => job.fetches)
    const call = this.#nextCall()
    const grouped = this.#store.memory.stored?.hasGroups
    if (fetches && grouped && this.#onlyGroupsMayHold()) {
      const results = await this.#finishGroupedBatch(client, active, jobs, call)
      // Under that id Redis remembers what was fetched: only if it was sent before, that is to be returned again.
      const rest = results.every((result) => result === null) ? call : this.#nextCall()
      return this.#finishLeft(jobs, results, (left) => this.#finishBatchAtGate(client, active, token, left, rest))
    }
    if (grouped || (fetches && !this.#mayBeOpen())) return this.#finishBatchAtGate(client, active, token, jobs, call)
    const { results, ...counted } = await this.#finishOpenBatch(client, active, jobs, fetches)
    return this.#finishLeft(jobs, results, (left) =>
      this.#finishBatchAtGate(client, active, token, left, call, counted),
    )
  }

  /** @param results of a short script, null for each end that it left; @param atGate finishes these */
  async #finishLeft(
    jobs: readonly FinishedJob[],
    results: readonly ShortResult[],
    finishAtGate: (left: readonly FinishedJob[]) => Promise<readonly BatchResult[]>,
  ): Promise<readonly BatchResult[]> {
    const left = jobs.filter((_, i) => results[i] === null)
    if (left.length === 0) return results as readonly BatchResult[]
    const atGate = finishAtGate(left)
    if (left.length === jobs.length) return atGate
    // The other jobs have ended, and those that they fetched start.
    const rest = (await atGate.catch((error: Error) => left.map(() => error.message))).values()
    return results.map((result) => result ?? (rest.next().value as BatchResult))
  }

  /** @returns null in place of each end that is left to the full script */
  async #finishOpenBatch(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    fetches: boolean,
  ): Promise<{ readonly results: readonly ShortResult[] } & Counted> {
    const worker = this.#dispatching as Dispatching
    const reported = this.#takeUnreported(fetches)
    const call = [this.#memoMs, worker.allowUnshaped ? '1' : '0', reported]
    const args = this.#batchArguments(active, call, jobs)
    const sentMs = worker.nowMs
    const raw = await runScript<unknown[] | null>(client, this.#scripts.command('finish-batch-open'), args)
    if (fetches) this.#open.served(raw)
    if (!raw) return { results: jobs.map(() => null), reported, isCounted: false }
    const reply = this.#read(raw)
    const results = raw[2] as ShortResult[]
    const fetched = results.filter((result) => result !== null && typeof result === 'object')
    this.#unreported.add(fetched.length, reported)
    this.#tellBatch(reply, fetched, jobs, '', sentMs)
    return { results, reported, isCounted: true }
  }

  /** @returns null in place of each end that is left to the full script */
  async #finishGroupedBatch(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    call: string,
  ): Promise<readonly ShortResult[]> {
    const sentMs = (this.#dispatching as Dispatching).nowMs
    const args = this.#batchArguments(active, [this.#memoMs, call], jobs)
    const raw = await runScript<unknown[] | null>(client, this.#scripts.command('finish-batch-groups'), args)
    const results = (raw?.[2] as ShortResult[] | undefined) ?? jobs.map(() => null)
    const fetched = results.filter((result) => result !== null && typeof result === 'object')
    this.#grouped.served(fetched.length > 0 ? raw : null)
    if (raw) this.#tellBatch(this.#read(raw), fetched, jobs, '', sentMs)
    return results
  }

  async #finishBatchAtGate(
    client: Client,
    active: readonly Argument[],
    token: string,
    jobs: readonly FinishedJob[],
    callId: string,
    counted = UNCOUNTED,
  ): Promise<readonly BatchResult[]> {
    const worker = this.#dispatching as Dispatching
    const { horizonUs, allowUnshaped } = worker
    const call = [horizonUs, callId, this.#memoMs, allowUnshaped ? '1' : '0']
    const args = this.#batchArguments(active, call, jobs)
    const sentMs = worker.nowMs
    const raw = await runScript<unknown[]>(client, this.#scripts.command('finish-batch'), args)
    const reply = this.#read(raw)
    if (reply.lost) await this.#store.restore()
    const results = raw[2] as BatchResult[]
    const fetched = results.filter((result) => typeof result === 'object')
    this.#recount(fetched.length, counted)
    this.#tellBatch(reply, fetched, jobs, token, sentMs)
    return results
  }

  /** @param call our arguments between the shape's identity and BullMQ's key prefix */
  #batchArguments(active: readonly Argument[], call: readonly Argument[], jobs: readonly FinishedJob[]): Argument[] {
    const args = [...active.slice(0, -3), this.#store.key, this.#store.memory.identityText, ...call, active.at(-3)]
    for (const { fields } of jobs) args.push(...fields)
    return args
  }

  /** @param token locks the jobs that the reply grants besides the fetched ones */
  #tellBatch(
    reply: DepartureReply,
    fetched: readonly FetchedJob[],
    jobs: readonly FinishedJob[],
    token: string,
    sentMs: number,
  ): void {
    const worker = this.#dispatching as Dispatching
    const handsOn = fetched.length > 0
    if (handsOn) worker.onFetched(fetched, reply.nowUs, sentMs)
    const isComplete = handsOn && reply.stop === 'full' && reply.grants.length === 0 && reply.wakeUs === undefined
    if (!isComplete && jobs.some((job) => job.fetches)) worker.onBatch(reply, token, sentMs, handsOn)
  }

  /** @param script moveToFinished or moveToDelayed; @returns what BullMQ's code expects of it */
  finish(
    client: Client,
    script: string,
    args: readonly Argument[],
    keys: number,
    discarded: boolean,
  ): Promise<unknown> {
    const end = { client, script, args, keys, discarded }
    const fetches = String(args[keys + (FETCH_ARGUMENT[script] as number)]) === '1'
    if (script === 'moveToFinished' && !fetches && !this.#store.memory.stored?.hasGroups) return this.#finishOnly(end)
    if (script === 'moveToFinished' && this.#mayBeOpen()) return this.#finishOpen(end)
    return this.#endAtGate(end, fetches)
  }

  #finishOnly(end: End): Promise<unknown> {
    const ours = [end.discarded ? this.#memoMs : '', this.#remembers]
    return this.#runShort(FINISH_ONLY, end, ours, (code: unknown) =>
      code === null ? this.#endAtGate(end, false) : code,
    )
  }

  #finishOpen(end: End): Promise<unknown> {
    const reported = this.#takeUnreported(true)
    const ours = [this.#store.memory.identityText, end.discarded ? this.#memoMs : '', reported]
    const sentMs = this.#dispatching?.nowMs ?? 0
    return this.#runShort(FINISH_OPEN, end, ours, (raw: unknown[] | number | null) => {
      this.#open.served(raw)
      if (raw === null || typeof raw === 'number') return this.#endAtGate(end, true, { reported, isCounted: raw === 0 })
      if (typeof raw[0] === 'object') return this.#fetched(raw as unknown as FetchedJob, reported, sentMs)
      return this.#finished(raw, end.script, true, sentMs)
    })
  }

  /** Runs a short script, which makes BullMQ's keys by itself: each key that is sent costs time here and in Redis. */
  #runShort<T>(
    script: string,
    { client, args, keys }: End,
    ours: readonly Argument[],
    read: (reply: T) => unknown,
  ): Promise<unknown> {
    const all: Argument[] = [this.#store.key]
    for (let i = keys; i < args.length; i++) all.push(args[i])
    for (const argument of ours) all.push(argument)
    return runScript(client, this.#scripts.command(script), all, read)
  }

  /** Finishes or postpones a job, and fetches the next one behind the gate. */
  #endAtGate({ client, script, args, keys, discarded }: End, fetches: boolean, counted = UNCOUNTED): Promise<unknown> {
    const horizonUs = this.#dispatching?.horizonUs ?? 0
    const call = [this.#memoMs, horizonUs, this.#remembers, this.#nextCall()]
    const kept = script === 'moveToFinished' ? [discarded ? 1 : 0] : []
    const all = this.#splice(args, keys, [this.#store.memory.identityText, ...kept, ...call])
    const sentMs = this.#dispatching?.nowMs ?? 0
    return runScript(client, this.#scripts.command(script), all, (raw: unknown[]) => {
      const isFound = typeof raw[0] === 'object'
      this.#recount(isFound ? 1 : 0, counted)
      if (isFound) return this.#handOnOne(raw as unknown as FetchedJob, sentMs)
      return this.#finished(raw, script, fetches, sentMs)
    })
  }

  /** Whether the next job may be fetched without the gate, as far as known here. */
  #mayBeOpen(): boolean {
    const { stored } = this.#store.memory
    return !stored?.isPaced && !stored?.ages && this.#open.take()
  }

  /** Whether jobs of groups may be fetched without the gate, as far as known here. */
  #onlyGroupsMayHold(): boolean {
    const { stored } = this.#store.memory
    return stored?.isPaced === true && stored.pacedIntervalUs === undefined && !stored.ages && this.#grouped.take()
  }

  /** Whether Redis is to remember what a call granted, in case it is sent twice. */
  get #remembers(): number {
    return this.#dispatching || this.#store.memory.stored ? 1 : 0
  }

  /** Departures are counted outside the meter only if nothing holds the jobs. */
  #takeUnreported(fetches: boolean): number {
    const { stored } = this.#store.memory
    return fetches && stored && !stored.isPaced ? this.#unreported.take(this.#dispatching?.nowMs) : NOT_NOW
  }

  /** @param found number of jobs that a short script fetched when the call was first sent and its reply was lost */
  #recount(found: number, { reported, isCounted }: Counted): void {
    if (found > 0 && !this.#store.memory.stored?.isPaced) this.#unreported.add(found, reported)
    if (found === 0 && !isCounted && reported !== NOT_NOW) this.#unreported.add(reported, NOT_NOW)
  }

  #fetched(job: FetchedJob, reported: number, sentMs: number): FetchedJob {
    this.#unreported.add(1, reported)
    return this.#handOnOne(job, sentMs)
  }

  /** @param job has Redis's time if departures were reported; BullMQ's code would mistake it for delays */
  #handOnOne(job: FetchedJob, sentMs: number): FetchedJob {
    const [, , seconds, micros] = job
    job[2] = 0
    job[3] = 0
    this.#dispatching?.onFetched([job], seconds === 0 ? undefined : Number(seconds) * 1e6 + Number(micros), sentMs)
    return job
  }

  async #finished(raw: unknown[], script: string, fetches: boolean, sentMs: number): Promise<unknown> {
    const worker = this.#dispatching
    const reply = this.#read(raw)
    if (reply.lost) await this.#store.restore()
    if (reply.result < 0 || !fetches) return reply.result
    worker?.onDeparture(reply, sentMs)
    // Without a job, BullMQ's moveToDelayed reports nothing more; a closed bucket must be reported.
    const silent = worker !== undefined || (script === 'moveToDelayed' && reply.stop !== 'closed')
    return reply.lost || (reply.grants.length === 0 && silent) ? 0 : stockTuple(reply, raw)
  }

  async #depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<[DepartureReply, readonly unknown[]]> {
    const { jobs, horizonUs, longestHorizonUs = horizonUs, workerId, allowUnshaped, ran = '' } = request
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
      const reply = this.#read(raw)
      if (!reply.lost || attempt === MAX_RESTORES) return [reply, raw]
      await this.#store.restore()
    }
  }

  #read(raw: readonly unknown[]): DepartureReply {
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
    return `${this.#dispatching?.workerId ?? this.#id}:${this.#calls}`
  }
}
