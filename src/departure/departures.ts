// departure/: how jobs leave a queue: how they are fetched, finished and given back, and the scripts' replies. It must
// not know the worker's loop, which asks for jobs, or BullMQ's backend.

import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { FINISH_ONLY, FINISH_OPEN, type ScriptSet } from '../redis/scripts.ts'
import type { ShapeStore } from '../shape/store.ts'
import { type DepartureReply, type FetchedJob, type FetchedTuple, readDeparture, stockTuple } from './reply.ts'
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

/** A worker for which jobs are fetched and ended. */
export interface DepartingWorker {
  readonly id: string
  readonly allowUnshaped: boolean
}

/** Who ends jobs. */
export interface Ender {
  /** How far ahead the slots of the next jobs may lie, µs; 0 where no job is held until a slot. */
  readonly horizonUs: number
  /** Its monotonic clock, ms. */
  readonly nowMs: number
}

/** A job that ended: its fields for `lua/verbs/finish-batch.lua`, and whether to fetch another in its place. */
export interface FinishedJob {
  readonly fields: readonly Argument[]
  readonly fetches: boolean
}

/** For each finished job: BullMQ's code, the text of an error, or the job that came in its place. */
export type EndResult = number | string | FetchedJob

/** What the ends of jobs brought. */
export interface EndsReply {
  readonly results: readonly EndResult[]
  /** What else the scripts reported; nothing if a job came for each that was to be fetched. */
  readonly replies: readonly DepartureReply[]
  /** When the first call was sent, by the clock of who ended the jobs, ms. */
  readonly sentMs: number
}

/** The reply of a script to the ends of many jobs. */
interface BatchPart {
  readonly results: readonly (EndResult | null)[]
  readonly replies: readonly DepartureReply[]
}

/** Departures that a short script was to count. */
interface Counted {
  /** How many, besides its own; -1: none. */
  readonly reported: number
  /** Whether it counted them, now or when it was first sent. */
  readonly isCounted: boolean
}

const UNCOUNTED: Counted = { reported: NOT_NOW, isCounted: false }

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

const NO_REPLIES: readonly DepartureReply[] = []

/** BullMQ's own code, which waits for no slot. */
const STOCK: Ender = {
  horizonUs: 0,
  get nowMs() {
    return performance.now()
  },
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

  /** @param args the arguments of BullMQ's moveToActive */
  async depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<DepartureReply> {
    await this.#store.prepared()
    return this.#depart(client, args, keys, request)
  }

  /** For BullMQ's own code: one job, only if it may start now. @returns what BullMQ's loop expects */
  async departStock(client: Client, args: readonly Argument[], keys: number): Promise<unknown[]> {
    await this.#store.prepared()
    const workerId = this.#store.memory.stored ? this.#id : ''
    const request = { jobs: 1, horizonUs: 0, workerId, allowUnshaped: true }
    return stockTuple(await this.#depart(client, args, keys, request))
  }

  /**
   * Finishes several jobs, and fetches as many as they ask for, in one script.
   * @param active arguments of BullMQ's moveToActive, made with a token that locks the first job of a reply
   */
  async endTogether(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    ender: Ender,
  ): Promise<EndsReply> {
    const fetches = jobs.some((job) => job.fetches)
    const call = this.#nextCall()
    const sentMs = ender.nowMs
    const grouped = this.#store.memory.stored?.hasGroups
    const atGate = (left: readonly FinishedJob[], callId: string, counted?: Counted) =>
      this.#endBatchAtGate(client, active, left, ender, callId, counted)
    if (fetches && grouped && this.#onlyGroupsMayHold()) {
      const part = await this.#endGroupedBatch(client, active, jobs, call)
      // Under that id Redis remembers what was fetched: only if it was sent before, that is to be returned again.
      const rest = part.results.every((result) => result === null) ? call : this.#nextCall()
      return { ...(await this.#endLeft(jobs, part, (left) => atGate(left, rest))), sentMs }
    }
    if (grouped || (fetches && !this.#mayBeOpen())) {
      return { ...(await atGate(jobs, call)), sentMs } as EndsReply
    }
    const { part, ...counted } = await this.#endOpenBatch(client, active, jobs, fetches, ender)
    return { ...(await this.#endLeft(jobs, part, (left) => atGate(left, call, counted))), sentMs }
  }

  /** @param part of a short script; @param atGate finishes the ends that it left */
  async #endLeft(
    jobs: readonly FinishedJob[],
    part: BatchPart,
    endAtGate: (left: readonly FinishedJob[]) => Promise<BatchPart>,
  ): Promise<Omit<EndsReply, 'sentMs'>> {
    const { results } = part
    const left = jobs.filter((_, i) => results[i] === null)
    if (left.length === 0) return part as Omit<EndsReply, 'sentMs'>
    const atGate = endAtGate(left)
    if (left.length === jobs.length) return atGate as Promise<Omit<EndsReply, 'sentMs'>>
    // The other jobs have ended, and those that they fetched start.
    const failed = (error: Error): BatchPart => ({ results: left.map(() => error.message), replies: [] })
    const { results: others, replies } = await atGate.catch(failed)
    const rest = others.values()
    return {
      results: results.map((result) => result ?? (rest.next().value as EndResult)),
      replies: [...part.replies, ...replies],
    }
  }

  /** @returns null in place of each end that is left to the full script */
  async #endOpenBatch(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    fetches: boolean,
    ender: Ender,
  ): Promise<{ readonly part: BatchPart } & Counted> {
    const reported = this.#takeUnreported(fetches, ender)
    const call = [this.#memoMs, this.#allowsUnshaped, reported]
    const args = this.#batchArguments(active, call, jobs)
    const raw = await runScript<unknown[] | null>(client, this.#scripts.command('finish-batch-open'), args)
    if (fetches) this.#open.served(raw)
    if (!raw) return { part: { results: jobs.map(() => null), replies: [] }, reported, isCounted: false }
    const part = this.#readBatch(raw, jobs)
    this.#unreported.add(fetchedOf(part), reported)
    return { part, reported, isCounted: true }
  }

  /** @returns null in place of each end that is left to the full script */
  async #endGroupedBatch(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    call: string,
  ): Promise<BatchPart> {
    const args = this.#batchArguments(active, [this.#memoMs, call], jobs)
    const raw = await runScript<unknown[] | null>(client, this.#scripts.command('finish-batch-groups'), args)
    const part = raw ? this.#readBatch(raw, jobs) : { results: jobs.map(() => null), replies: [] }
    this.#grouped.served(fetchedOf(part) > 0 ? raw : null)
    return part
  }

  async #endBatchAtGate(
    client: Client,
    active: readonly Argument[],
    jobs: readonly FinishedJob[],
    { horizonUs }: Ender,
    callId: string,
    counted = UNCOUNTED,
  ): Promise<BatchPart> {
    const call = [horizonUs, callId, this.#memoMs, this.#allowsUnshaped]
    const args = this.#batchArguments(active, call, jobs)
    const raw = await runScript<unknown[]>(client, this.#scripts.command('finish-batch'), args)
    const part = this.#readBatch(raw, jobs)
    if (raw[0] === -1) await this.#store.restore()
    this.#recount(fetchedOf(part), counted)
    return part
  }

  /** @param call our arguments between the shape's identity and BullMQ's key prefix */
  #batchArguments(active: readonly Argument[], call: readonly Argument[], jobs: readonly FinishedJob[]): Argument[] {
    const args = [...active.slice(0, -3), this.#store.key, this.#store.memory.identityText, ...call, active.at(-3)]
    for (const { fields } of jobs) args.push(...fields)
    return args
  }

  #readBatch(raw: readonly unknown[], jobs: readonly FinishedJob[]): BatchPart {
    const reply = this.#read(raw)
    const results = (raw[2] as readonly (number | string | FetchedTuple | null)[]).map((result) =>
      typeof result === 'object' && result !== null ? fetchedJob(result, reply.nowUs) : result,
    )
    const handsOn = results.some((result) => result !== null && typeof result === 'object')
    const isComplete = handsOn && reply.stop === 'full' && reply.grants.length === 0 && reply.wakeUs === undefined
    return { results, replies: !isComplete && jobs.some((job) => job.fetches) ? [reply] : [] }
  }

  /** For BullMQ's own code. @returns what it expects of moveToFinished or moveToDelayed */
  async endStock(call: EndCall): Promise<unknown> {
    const { results, replies } = await this.end(call, STOCK)
    const [result] = results
    if (typeof result === 'object') return [result.fields, result.id, 0, 0]
    const [reply] = replies
    if (!reply || reply.lost) return result
    // Without a job, BullMQ's moveToDelayed reports nothing more; a closed bucket must be reported.
    const silent = this.#worker !== undefined || (call.script === 'moveToDelayed' && reply.stop !== 'closed')
    return reply.grants.length === 0 && silent ? 0 : stockTuple(reply)
  }

  /** Ends one job. */
  end(call: EndCall, ender: Ender): Promise<EndsReply> {
    const { script } = call
    const fetches = isFetching(call)
    if (script === 'moveToFinished' && !fetches && !this.#store.memory.stored?.hasGroups)
      return this.#finishOnly(call, ender)
    if (script === 'moveToFinished' && this.#mayBeOpen()) return this.#finishOpen(call, ender)
    return this.#endAtGate(call, fetches, ender)
  }

  #finishOnly(end: EndCall, ender: Ender): Promise<EndsReply> {
    const ours = [end.discarded ? this.#memoMs : '', this.#remembers]
    const sentMs = ender.nowMs
    return this.#runShort(FINISH_ONLY, end, ours, (code: number | null) =>
      code === null ? this.#endAtGate(end, false, ender) : { results: [code], replies: NO_REPLIES, sentMs },
    )
  }

  #finishOpen(end: EndCall, ender: Ender): Promise<EndsReply> {
    const reported = this.#takeUnreported(true, ender)
    const ours = [this.#store.memory.identityText, end.discarded ? this.#memoMs : '', reported]
    const sentMs = ender.nowMs
    return this.#runShort(FINISH_OPEN, end, ours, (raw: unknown[] | number | null) => {
      this.#open.served(raw)
      if (raw === null || typeof raw === 'number')
        return this.#endAtGate(end, true, ender, { reported, isCounted: raw === 0 })
      if (typeof raw[0] !== 'object') return this.#readEnd(raw, true, sentMs)
      this.#unreported.add(1, reported)
      return fetchedOne(raw as unknown as FetchedTuple, sentMs)
    })
  }

  /** Runs a short script, which makes BullMQ's keys by itself: each key that is sent costs time here and in Redis. */
  #runShort<T>(
    script: string,
    { client, args, keys }: EndCall,
    ours: readonly Argument[],
    read: (reply: T) => EndsReply | Promise<EndsReply>,
  ): Promise<EndsReply> {
    const all: Argument[] = [this.#store.key]
    for (let i = keys; i < args.length; i++) all.push(args[i])
    for (const argument of ours) all.push(argument)
    return runScript(client, this.#scripts.command(script), all, read)
  }

  /** Finishes or postpones a job, and fetches the next one behind the gate. */
  #endAtGate(
    { client, script, args, keys, discarded }: EndCall,
    fetches: boolean,
    ender: Ender,
    counted = UNCOUNTED,
  ): Promise<EndsReply> {
    const call = [this.#memoMs, ender.horizonUs, this.#remembers, this.#nextCall()]
    const kept = script === 'moveToFinished' ? [discarded ? 1 : 0] : []
    const all = this.#splice(args, keys, [this.#store.memory.identityText, ...kept, ...call])
    const sentMs = ender.nowMs
    return runScript(client, this.#scripts.command(script), all, (raw: unknown[]) => {
      const isFound = typeof raw[0] === 'object'
      this.#recount(isFound ? 1 : 0, counted)
      if (isFound) return fetchedOne(raw as unknown as FetchedTuple, sentMs)
      return this.#readEnd(raw, fetches, sentMs)
    })
  }

  async #readEnd(raw: readonly unknown[], fetches: boolean, sentMs: number): Promise<EndsReply> {
    const reply = this.#read(raw)
    if (reply.lost) await this.#store.restore()
    const { result } = reply
    return { results: [result], replies: result >= 0 && fetches ? [reply] : NO_REPLIES, sentMs }
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
    return this.#worker || this.#store.memory.stored ? 1 : 0
  }

  get #allowsUnshaped(): string {
    return this.#worker?.allowUnshaped ? '1' : '0'
  }

  /** Departures are counted outside the meter only if nothing holds the jobs. */
  #takeUnreported(fetches: boolean, { nowMs }: Ender): number {
    const { stored } = this.#store.memory
    return fetches && stored && !stored.isPaced ? this.#unreported.take(nowMs) : NOT_NOW
  }

  /** @param found number of jobs that a short script fetched when the call was first sent and its reply was lost */
  #recount(found: number, { reported, isCounted }: Counted): void {
    if (found > 0 && !this.#store.memory.stored?.isPaced) this.#unreported.add(found, reported)
    if (found === 0 && !isCounted && reported !== NOT_NOW) this.#unreported.add(reported, NOT_NOW)
  }

  async #depart(
    client: Client,
    args: readonly Argument[],
    keys: number,
    request: DepartureRequest,
  ): Promise<DepartureReply> {
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
      if (!reply.lost || attempt === MAX_RESTORES) return reply
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
    return `${this.#worker?.id ?? this.#id}:${this.#calls}`
  }
}

/** Whether an end is to fetch the next job. */
export function isFetching({ args, keys, script }: Pick<EndCall, 'args' | 'keys' | 'script'>): boolean {
  return String(args[keys + (FETCH_ARGUMENT[script] as number)]) === '1'
}

/** How many jobs came in the places of those that ended. */
function fetchedOf({ results }: BatchPart): number {
  return results.filter((result) => result !== null && typeof result === 'object').length
}

function fetchedJob([fields, id, , , score = '']: FetchedTuple, nowUs: number | undefined): FetchedJob {
  return { fields, id, score, nowUs }
}

/** @param tuple has Redis's time (s, µs) in place of BullMQ's delays if departures were reported */
function fetchedOne(tuple: FetchedTuple, sentMs: number): EndsReply {
  const [, , seconds, micros] = tuple
  const nowUs = seconds === 0 ? undefined : Number(seconds) * 1e6 + Number(micros)
  return { results: [fetchedJob(tuple, nowUs)], replies: NO_REPLIES, sentMs }
}
