import { randomUUID } from 'node:crypto'
import {
  defaultRepeatStrategy,
  ErrorCode,
  isNotConnectionError,
  type Job,
  type JobJson,
  type JobSchedulerJobOptions,
  type ParentKeyOpts,
  type QueueBaseOptions,
  QueueKeys,
  type RedisConnection,
  RedisQueueBackend,
  raw2NextJobData,
  type WorkerOptions,
} from 'bullmq'
import type { Cluster, Redis } from 'ioredis'
import { type AddCall, AddCalls, addedJob, type JobToAdd, sendingCalls } from '../admission/add-call.ts'
import { Admission } from '../admission/admission.ts'
import { FirstAnswer, ReplicaConfirmation } from '../admission/confirmation.ts'
import { FlowAdmission, type FlowEntries, type FlowResult, parentReleases } from '../admission/flows.ts'
import { checkPriority } from '../admission/job-options.ts'
import { type DepartingWorker, Departures, Exchange } from '../departure/exchange.ts'
import { finishedEnd, postponedEnd } from '../departure/job-end.ts'
import { StockDepartures } from '../departure/stock.ts'
import { InvalidInputError } from '../errors.ts'
import {
  type Argument,
  type Client,
  type ClientOrTransaction,
  isTransaction,
  runScript,
  untilKnown,
} from '../redis/commands.ts'
import { reopenConnection, watchConnection } from '../redis/connection-watch.ts'
import { isPassing } from '../redis/failures.ts'
import { checkFunctionsOption, type FunctionsOption, untilSentAgain } from '../redis/functions.ts'
import { mastersOf } from '../redis/libraries.ts'
import { isPrepared, type ScriptSet } from '../redis/scripts.ts'
import { removeOwnKeys } from '../redis/shaped-queues.ts'
import { untilMoved, untilServed } from '../redis/until-served.ts'
import { type Declaration, ShapeStore, type ShapeView } from '../shape/store.ts'
import { isCancelFailure } from './cancellation.ts'
import { closeInTime } from './closing.ts'
import {
  clientOf,
  cutConnection,
  endReconnecting,
  hasOpened,
  leaveCluster,
  leaveSentinels,
  openUntilServed,
  returnToCluster,
} from './connections.ts'
import { deadLetterId, deadLetterJob, deadLetterOf } from './dead-letters.ts'
import { drainQueue, isGone, OBLITERATED_TOGETHER } from './removal.ts'

type AddJobsEntries = Parameters<RedisQueueBackend['addJobs']>[0]
type KeepRule = Parameters<RedisQueueBackend['moveToCompleted']>[2]
type KeysMap = ReturnType<QueueKeys['getKeys']>

/**
 * If the clocks agree to within this, ms, BullMQ's own result is kept; part of the difference is the round trip to
 * Redis.
 */
const AGREEING_MS = 1000

/** If fewer finished jobs are kept, a job may be evicted before its finish call is repeated. */
const FEW_KEPT = 100

/** BullMQ's scripts that start jobs, and those that end them and may fetch the next one. */
const START = 'moveToActive'
const FINISH = 'moveToFinished'
const POSTPONE = 'moveToDelayed'
/** The index of the time among the arguments of moveToFinished. */
const FINISHED_ON = 1

/** Other scripts that end a run, and the index of the job's id among their arguments. */
const ENDS: Readonly<Record<string, number>> = {
  retryJob: 3,
  moveToWaitingChildren: 3,
  moveJobFromActiveToWait: 0,
}

/** A worker whose loop starts jobs and ends them. */
export interface LoopingWorker extends DepartingWorker {
  /** Whether BullMQ's code ends a job that its loop has started, with this lock token. */
  isEnding(jobId: string, token: string): boolean
  /**
   * Keeps renewing the lock of a job whose end is not stored yet.
   * @returns a function that stops it; undefined if no such job runs here
   */
  keepLock(jobId: string): (() => void) | undefined
}

/** What Sluice's own classes need of their backend beyond plain BullMQ. */
export interface ShapedBackendOptions {
  /** The declaration of this process, stored before it admits or fetches anything. */
  readonly declaration?: Declaration
  /** BullMQ's `rateLimit` becomes a pause of the meter even if no shape is stored yet. */
  readonly alwaysShaped?: boolean
  /** The queue that keeps finally failed jobs. */
  readonly deadLetter?: string | undefined
}

/** Shared by all backends over one connection: a FlowProducer has one for each queue of a flow. */
interface Family {
  readonly scripts: ScriptSet
  readonly stores: Map<string, ShapeStore>
  readonly options: ShapedBackendOptions
  /** The connection runs blocking commands, like that of QueueEvents. */
  readonly blocks?: boolean
}

/**
 * BullMQ's Redis backend with admission and the meter inside its scripts: any BullMQ class that uses it follows the
 * shape stored for the queue. Without a stored shape it behaves like plain BullMQ.
 */
export class ShapedBackend extends RedisQueueBackend {
  /**
   * The shape of this queue.
   * @internal
   */
  readonly store: ShapeStore
  readonly #family: Family
  readonly #addCalls: AddCalls
  readonly #admission: Admission
  readonly #departures: Departures
  readonly #stock: StockDepartures
  #worker: LoopingWorker | undefined
  /**
   * The result of {@link exchangeFor}.
   * @internal
   */
  exchange: Exchange | undefined
  readonly #confirmation: ReplicaConfirmation
  readonly #watches: (() => void)[] = []
  #leavesBlocking = false
  /**
   * While the blocking connection opens, which BullMQ's code awaits before it ends a job: resolves once it is open, or
   * was abandoned.
   * @internal
   */
  opening: Promise<void> | undefined
  #isClosing = false
  #isCut = false

  /** @internal */
  constructor(
    connection: RedisConnection,
    name: string,
    keys: KeysMap,
    toKey: (type: string) => string,
    opts: QueueBaseOptions,
    blockingConnection: RedisConnection | undefined,
    ownsConnection: boolean,
    family: Family,
  ) {
    super(connection, name, keys, toKey, opts, blockingConnection, ownsConnection)
    this.#family = family
    this.store = this.#storeOf(this.toKey(''))
    this.#addCalls = new AddCalls(this, super.addJobToTransaction, this.store)
    this.#admission = new Admission(family.scripts, this.store, name)
    this.#confirmation = new ReplicaConfirmation(name, (type) => this.toKey(type))
    const { lockDuration, functions } = opts as { lockDuration?: number; functions?: FunctionsOption }
    checkFunctionsOption(functions)
    this.#departures = new Departures(
      family.scripts,
      this.store,
      () => this.queue.client,
      (jobIds, send) => this.untilStored(jobIds, send),
      lockDuration,
    )
    this.#stock = new StockDepartures(this.#departures, this.store, randomUUID())
    if (family.options.declaration && ownsConnection) this.store.declare(family.options.declaration)
    if (ownsConnection) this.#watchConnections()
    if (ownsConnection) openUntilServed(connection, () => this.#isCut)
    if (ownsConnection) this.#openBlocking()
    // Before anything else awaits the client: a pipeline only has the commands defined before it was created.
    if (ownsConnection) connection.client.then((client) => family.scripts.define(client, functions)).catch(() => {})
  }

  override forQueue(queueName: string, prefix?: string): ShapedBackend {
    const resolved = prefix ?? this.redisPrefix
    const keys = new QueueKeys(resolved)
    const toKey = (type: string) => keys.toKey(queueName, type)
    const opts = { ...this.queue.opts, prefix: resolved } as QueueBaseOptions
    const { connection, blockingConnection } = this
    return new ShapedBackend(
      connection,
      queueName,
      keys.getKeys(queueName),
      toKey,
      opts,
      blockingConnection,
      false,
      this.#family,
    )
  }

  override async waitUntilReady(): Promise<void> {
    await super.waitUntilReady()
    // Other classes have nothing to store, and a QueueEvents connection gets no replies while it waits for events.
    if (this.#family.options.declaration) await this.store.prepared()
  }

  /** Sends the program's calls from before the close. */
  override async close(force?: boolean): Promise<void> {
    this.#isClosing = true
    await new Promise((resolve) => setImmediate(resolve))
    this.#admission.flush()
    try {
      await closeInTime(
        this.#beforeQuit(force).then(() => super.close(force)),
        () => this.cut(),
      )
    } finally {
      // Only now, so that calls in flight do not wait on a silent connection.
      this.#stopWatching()
      leaveSentinels(this.connection)
      if (this.blockingConnection) leaveSentinels(this.blockingConnection)
    }
  }

  /** Calls that found no functions are resent first, unless Redis cannot be reached now. */
  async #beforeQuit(force: boolean | undefined): Promise<void> {
    if (force || !this.ownsConnection || this.#family.blocks) return
    const client = clientOf(this.connection) as unknown as Redis | Cluster
    if (client?.status !== 'ready') return
    const servers = mastersOf(client).filter(({ status }) => status === 'ready')
    await untilSentAgain(client, servers).catch(() => {})
  }

  /**
   * Ends its connections at once: unanswered calls fail.
   * @internal
   */
  cut(): void {
    if (!this.ownsConnection) return
    this.#isCut = true
    cutConnection(this.connection)
    if (this.blockingConnection) cutConnection(this.blockingConnection)
  }

  /**
   * Its worker closes: a second connection that has never opened is ended, which BullMQ would do once it opens.
   * @internal
   */
  leaveOpening(): void {
    if (!this.blockingConnection || hasOpened(this.blockingConnection)) return
    this.#leavesBlocking = true
    cutConnection(this.blockingConnection)
  }

  override async disconnectBlocking(wait = true): Promise<void> {
    // The worker left before the connection opened.
    if (this.#leavesBlocking && this.blockingConnection && !hasOpened(this.blockingConnection)) return
    if (this.blockingConnection) {
      endReconnecting(this.blockingConnection)
      leaveCluster(this.blockingConnection)
    }
    this.#leavesBlocking = true
    return super.disconnectBlocking(wait)
  }

  /** After a pause. */
  override async reconnectBlocking(): Promise<void> {
    if (this.#isClosing) return
    this.#openBlocking()
    return super.reconnectBlocking()
  }

  #openBlocking(): void {
    this.#leavesBlocking = false
    if (!this.blockingConnection) return
    returnToCluster(this.blockingConnection)
    openUntilServed(this.blockingConnection, () => this.#leavesBlocking)
    const opened = () => {
      if (this.opening === opening) this.opening = undefined
    }
    const opening = this.blockingConnection.client.then(opened, opened)
    this.opening = opening
  }

  /**
   * The connection by which a worker waits for jobs; also before it is ready.
   * @internal
   */
  get waitingClient(): Client | undefined {
    return this.blockingConnection && clientOf(this.blockingConnection)
  }

  override async disconnect(): Promise<void> {
    this.#stopWatching()
    leaveCluster(this.connection)
    return super.disconnect()
  }

  override execCommand(client: ClientOrTransaction, script: string, args: Argument[]): unknown {
    const idAt = this.#worker ? ENDS[script] : undefined
    if (idAt === undefined) return this.#send(client, script, args)
    const jobId = String(this.#withoutKeys(script, args)[idAt])
    return this.untilStored([jobId], () => this.#send(client, script, args) as Promise<unknown>)
  }

  #send(client: ClientOrTransaction, script: string, args: Argument[]): unknown {
    switch (script) {
      case START:
        return this.#stock.start(this.#withoutKeys(script, args))
      case FINISH:
        return this.#stock.end(finishedEnd(this.#withoutKeys(script, args), '', false))
      case POSTPONE:
        return this.#stock.end(postponedEnd(this.#withoutKeys(script, args)))
      default:
        if (isPrepared(script)) return this.#runWhole(client as Client, script, args)
        if (isTransaction(client)) return super.execCommand(client, script, args)
        if (client.isCluster) return this.#runWhole(client, script, args)
        return untilKnown(async () => super.execCommand(client, script, args))
    }
  }

  #runWhole(client: Client, script: string, args: Argument[]): Promise<unknown> {
    return untilMoved(() => runScript(client, this.#family.scripts.command(script), args))
  }

  override async addJobToTransaction(
    client: ClientOrTransaction,
    job: JobJson,
    jobId: string,
    parentKeyOpts: ParentKeyOpts = {},
    keys: KeysMap = this.queue.keys,
  ): Promise<string> {
    // Its reply would come with the transaction's: as a refusal, or as MayHaveRun, which nothing would read.
    if (isTransaction(client)) {
      throw new InvalidInputError(
        'addJob: expected a connection, got a MULTI or a pipeline; an admission is answered by itself, and flows and addBulk add all or none',
      )
    }
    return this.#add(client as Client, { job, jobId, parentKeyOpts, keys })
  }

  override addJob(job: JobJson, jobId: string, parentKeyOpts: ParentKeyOpts = {}): Promise<string> {
    const add = (client: Client, first: FirstAnswer) => this.#add(client, { job, jobId, parentKeyOpts, first })
    return this.#confirmed(add, (id) => [id])
  }

  /** Adds jobs, and waits for the replicas that the shape requires. */
  async #confirmed<T>(
    add: (client: Client, first: FirstAnswer) => Promise<T>,
    idsOf: (added: T) => readonly string[],
  ): Promise<T> {
    const preparing = this.store.prepared()
    if (preparing) await preparing
    const client = await this.queue.client
    // Jobs that are added together may be sent in parts.
    const first = new FirstAnswer(client)
    const { keptMs } = this.#confirmation
    const added = await add(client, first)
    const durability = this.store.memory.stored?.durability
    if (durability) await this.#confirmation.confirm(client, durability, idsOf(added), keptMs, first)
    return added
  }

  /** @returns the id of the job */
  async #add(client: Client, added: JobToAdd): Promise<string> {
    const { call, making } = this.#addCalls.make(added)
    if (!call) return making
    const reply = await this.#admission.add(client, call)
    if (typeof reply !== 'number') return reply as string
    // BullMQ's negative code of an error.
    throw this.finishedErrors({ code: reply, parentKey: added.parentKeyOpts?.parentKey as string, command: 'addJob' })
  }

  override async addJobs(entries: AddJobsEntries): Promise<string[]> {
    if (entries.length === 0) return []
    const add = async (client: Client, first: FirstAnswer) => {
      const calls = await this.#addCalls.all(entries.map((entry) => ({ ...entry, first })))
      const refusal = await this.#missingParent(client, entries, calls)
      const replies = await this.#admission.bulk(client, calls, refusal)
      const code = replies.find((reply) => Number(reply) < 0)
      // BullMQ returns such a code as a job id; a shaped queue throws the error.
      if (code !== undefined && this.store.memory.stored)
        throw this.finishedErrors({ code: Number(code), command: 'addJob' })
      return replies as string[]
    }
    return this.#confirmed(add, (ids) => ids)
  }

  /**
   * BullMQ's script would detect a missing parent only after adding earlier jobs. A parent may be an earlier job of the
   * same bulk.
   */
  async #missingParent(client: Client, entries: AddJobsEntries, calls: readonly AddCall[]): Promise<Error | undefined> {
    const added = new Set<string>()
    const asked = new Set<string>()
    for (const [i, { parentKeyOpts }] of entries.entries()) {
      const { parentKey } = parentKeyOpts ?? {}
      if (parentKey && !added.has(parentKey)) asked.add(parentKey)
      added.add(this.toKey((calls[i] as AddCall).job.id))
    }
    if (!this.store.memory.stored) return undefined
    const keys = [...asked]
    const found = await Promise.all(keys.map((key) => client.hexists(key, 'name')))
    const parentKey = keys.find((_, i) => !found[i])
    if (parentKey === undefined) return undefined
    return this.finishedErrors({ code: ErrorCode.ParentJobNotExist, parentKey, command: 'addJob' })
  }

  override async addFlow(entries: FlowEntries): Promise<FlowResult[]> {
    const client = await this.queue.client
    const calls = await this.#addCalls.all(
      entries.map((entry) => ({
        job: entry.jobData,
        jobId: entry.jobId,
        // BullMQ's flow producer makes the others.
        hasNewId: entry.jobData.opts.jobId === undefined,
        parentKeyOpts: { ...entry.parentKeyOpts, deferParentRelease: true },
        keys: new QueueKeys(entry.prefix).getKeys(entry.queueName),
      })),
    )
    const flow = new FlowAdmission(this.#family.scripts, (base) => this.#storeOf(base))
    const { keptMs } = this.#confirmation
    const results = await flow.add(client, calls, parentReleases(entries))
    const durability = flow.durability(calls)
    const ids = results.map(([, id]) => id as string)
    if (durability) await this.#confirmation.confirm(client, durability, ids, keptMs)
    return results
  }

  override async addJobScheduler(
    ...call: Parameters<RedisQueueBackend['addJobScheduler']>
  ): ReturnType<RedisQueueBackend['addJobScheduler']> {
    const [schedulerId, nextMs, data, templateOpts, repeat, jobOpts, producerId] = call
    const add = async (client: Client) => {
      const [next, opts] = await this.#iterationOf(schedulerId, nextMs, jobOpts, producerId)
      const job = { ...addedJob({ opts: { ...opts, delay: 0 } } as JobJson, ''), schedulerId }
      const admitting = sendingCalls(this, (script, args) => this.#admission.add(client, { script, args, job }))
      return super.addJobScheduler.call(admitting, schedulerId, next, data, templateOpts, repeat, opts, producerId)
    }
    return this.#confirmed(add, ([id]) => [id])
  }

  override async updateJobSchedulerNextMillis(
    ...call: Parameters<RedisQueueBackend['updateJobSchedulerNextMillis']>
  ): ReturnType<RedisQueueBackend['updateJobSchedulerNextMillis']> {
    const [schedulerId, nextMs, data, jobOpts, producerId] = call
    const send = async () => {
      const [next, opts] = await this.#iterationOf(schedulerId, nextMs, jobOpts, producerId)
      return super.updateJobSchedulerNextMillis(schedulerId, next, data, opts, producerId)
    }
    // If this failed, BullMQ's worker would abandon the beginning job: active, with its lock no longer renewed.
    return producerId === undefined ? send() : this.untilStored([producerId], send)
  }

  override moveToCompleted(
    ...call: Parameters<RedisQueueBackend['moveToCompleted']>
  ): ReturnType<RedisQueueBackend['moveToCompleted']> {
    const [job, returnValue, removeOnComplete, token, fetchNext] = call
    const exchange = this.#exchangeOf(job.id, token)
    const fetches = exchange ? exchange.fetches : fetchNext
    const args = this.moveToCompletedArgs(job, JSON.stringify(returnValue), removeOnComplete, token, fetches)
    const discarded = this.#isDiscarded('completed', removeOnComplete)
    return this.#finish(job.id as string, token, args as Argument[], discarded, exchange)
  }

  /**
   * The queue where finally failing jobs leave a dead letter.
   * @internal
   */
  get deadLetter(): string | undefined {
    return this.#family.options.deadLetter
  }

  /** Every final failure of a job passes here; if dead letters are kept, it leaves one. */
  override async moveToFailed(
    ...call: Parameters<RedisQueueBackend['moveToFailed']>
  ): ReturnType<RedisQueueBackend['moveToFailed']> {
    const [job, reason, removeOnFail, token, fetchNext] = call
    // A redrive would run a cancelled job again.
    const isCancelled = isCancelFailure((job as Partial<Job>).deferredFailure)
    const deadLetter = isCancelled ? undefined : this.deadLetter
    // A manual retry, even by plain BullMQ, gets the whole time again.
    const fields = { ...call[5], throttled: 0 }
    const exchange = this.#exchangeOf(job.id, token)
    const fetches = (exchange ? exchange.fetches : fetchNext) && !deadLetter
    const args = this.moveToFailedArgs(job, reason, removeOnFail, token, fetches, fields) as Argument[]
    const discarded = this.#isDiscarded('failed', removeOnFail)
    if (deadLetter)
      return this.untilStored([job.id as string], () => this.#failWithLetter(deadLetter, job, reason, args, discarded))
    return this.#finish(job.id as string, token, args, discarded, exchange)
  }

  /** A retry with a backoff ends a run as well. */
  override async moveToDelayed(
    ...call: Parameters<RedisQueueBackend['moveToDelayed']>
  ): ReturnType<RedisQueueBackend['moveToDelayed']> {
    const [jobId, timestamp, delay, token = '', opts] = call
    const exchange = this.#exchangeOf(jobId, token)
    if (!exchange) return super.moveToDelayed(...call)
    const args = this.moveToDelayedArgs(jobId, timestamp, token, delay, { ...opts, fetchNext: exchange.fetches })
    const code = await exchange.end(postponedEnd(this.#withoutKeys(POSTPONE, args as Argument[])))
    if (code < 0) throw this.finishedErrors({ code, jobId, command: POSTPONE, state: 'active' })
    return undefined
  }

  /** The exchange for the end of a job that a worker's loop has started; undefined for any other job. */
  #exchangeOf(jobId: string | undefined, token: string): Exchange | undefined {
    return this.#worker?.isEnding(jobId as string, token) ? this.exchange : undefined
  }

  async #finish(
    id: string,
    token: string,
    args: Argument[],
    discarded: boolean,
    exchange: Exchange | undefined,
  ): ReturnType<RedisQueueBackend['moveToCompleted']> {
    const call = this.#withoutKeys(FINISH, args)
    const end = finishedEnd(call, token, discarded)
    const reply = await (exchange ? exchange.end(end) : this.#stock.end(end))
    if ((reply as number) < 0)
      throw this.finishedErrors({ code: reply as number, jobId: id, command: FINISH, state: 'active' })
    const result = typeof reply === 'object' ? raw2NextJobData(reply as unknown[]) : undefined
    return { result, finishedOn: call[FINISHED_ON] as number }
  }

  #withoutKeys(script: string, args: readonly Argument[]): readonly Argument[] {
    return args.slice(this.#family.scripts.command(script).keys)
  }

  /** Whether a job is removed too soon to recognise a repeated call by it. */
  #isDiscarded(target: 'completed' | 'failed', ofJob: KeepRule | undefined): boolean {
    const { removeOnComplete, removeOnFail } = this.queue.opts as WorkerOptions
    const ofWorker = target === 'completed' ? removeOnComplete : removeOnFail
    if (!(ofJob ?? ofWorker)) return false
    // -1 is BullMQ's code for all.
    const kept = this.getKeepJobs(ofJob, ofWorker)?.count ?? -1
    return kept >= 0 && kept < FEW_KEPT
  }

  async #failWithLetter(
    deadLetter: string,
    job: Parameters<RedisQueueBackend['moveToFailed']>[0],
    reason: string,
    args: Argument[],
    discarded: boolean,
  ): ReturnType<RedisQueueBackend['moveToFailed']> {
    const end = this.#withoutKeys(FINISH, args)
    const finishedOn = end[FINISHED_ON] as number
    const [throttled] = await (await this.queue.client).hmget(this.toKey(job.id as string), 'throttled')
    const letter = deadLetterOf(job, {
      ...{ prefix: this.redisPrefix, queueName: this.name, failedReason: reason, finishedOn },
      ...{ throttled: Number(throttled ?? 0), attemptsMade: job.attemptsMade + 1 },
    })
    const letters = this.forQueue(deadLetter)
    const added = await letters.callToAdd(deadLetterJob(letter), deadLetterId(letter))
    const { lockDuration } = this.queue.opts as WorkerOptions
    const call = [...end, ...added.args.slice(-3), discarded ? 1 : 0, lockDuration]
    const code = (await this.store.run('dead-letter', [letters.toKey('meta'), ...call])) as number
    if (code < 0) throw this.finishedErrors({ code, jobId: letter.id, command: FINISH, state: 'active' })
    return { result: undefined, finishedOn }
  }

  /**
   * The call of BullMQ's add script for a job, without sending it.
   * @internal
   */
  async callToAdd(job: JobJson, jobId: string): Promise<AddCall> {
    const [call] = await this.#addCalls.all([{ job, jobId, hasNewId: false }])
    return call as AddCall
  }

  /**
   * For a job of a group, the priority applies within its group.
   * @throws InvalidInputError
   */
  override async changePriority(jobId: string, priority = 0, lifo = false): Promise<void> {
    checkPriority(priority)
    return super.changePriority(jobId, priority, lifo)
  }

  /** A manual rate limit is a pause of the meter; the longest one wins. */
  override async setRateLimit(expireTimeMs: number): Promise<void> {
    if (!this.#family.options.alwaysShaped && !this.store.memory.stored) return super.setRateLimit(expireTimeMs)
    await this.store.pause({ kind: 'for', ms: expireTimeMs, reason: 'rateLimit' })
  }

  /** ms, including the rest of the meter's pause. */
  override async getRateLimitTtl(maxJobs?: number): Promise<number> {
    const limitedMs = await super.getRateLimitTtl(maxJobs)
    const { leftMs } = await this.store.readPause()
    return leftMs > 0 ? Math.max(limitedMs, leftMs) : limitedMs
  }

  override async removeRateLimitKey(): Promise<number> {
    const removed = await super.removeRateLimitKey()
    const { leftMs, reason } = await this.store.readPause()
    if (leftMs <= 0 || reason !== 'rateLimit') return removed
    await this.store.pause({ kind: 'clear' })
    return 1
  }

  override drain(delayed: boolean): Promise<void> {
    return drainQueue(this.store, delayed)
  }

  override async obliterate(opts: Parameters<RedisQueueBackend['obliterate']>[0]): Promise<number> {
    const client = await this.queue.client
    const count = Math.min(opts.count, OBLITERATED_TOGETHER)
    const left = await super.obliterate({ ...opts, count }).catch(async (error: Error) => {
      if (await isGone(error, client, (type) => this.toKey(type))) return 0
      throw error
    })
    if (left) return left
    await removeOwnKeys(client, this.toKey(''))
    this.store.forget()
    return left
  }

  override async waitForJob(timeoutS: number): ReturnType<RedisQueueBackend['waitForJob']> {
    const marker = await super.waitForJob(timeoutS)
    return marker && { ...marker, score: this.#departures.dueLocallyMs(marker.score) }
  }

  /**
   * The exchange of a worker's loop: from now on the ends of its jobs go there.
   * @internal
   */
  exchangeFor(worker: LoopingWorker): Exchange {
    this.#worker = worker
    this.#stock.byHand()
    this.exchange = new Exchange(this.#departures, this.store, worker)
    return this.exchange
  }

  /**
   * The work of these jobs is done: their end is resent until Redis accepts it, and their locks are renewed meanwhile.
   * @internal
   */
  untilStored<T>(jobIds: readonly string[], send: () => Promise<T>): Promise<T> {
    return send().then(undefined, async (error: Error) => {
      const releases = isPassing(error) ? jobIds.map((id) => this.#worker?.keepLock(id)) : []
      if (!releases.some(Boolean)) throw error
      try {
        return await untilServed(
          error,
          send,
          () => this.closing !== undefined || this.#isCut,
          // A lost connection reports itself, as in BullMQ's worker.
          () => isNotConnectionError(error) && this.emit('error', error),
        )
      } finally {
        for (const release of releases) release?.()
      }
    })
  }

  #watchConnections(): void {
    const client = clientOf(this.connection)
    const loaded = () => {
      // Redis does not notify blocked clients of keys that it loads: the wait is resent, as after a lost connection.
      if (this.waitingClient) reopenConnection(this.waitingClient)
      this.emit('loaded')
    }
    this.#watches.push(watchConnection(client, !this.#family.blocks, { loaded }))
    const blocking = this.waitingClient
    if (blocking) this.#watches.push(watchConnection(blocking, false, { other: client }))
  }

  #stopWatching(): void {
    for (const stop of this.#watches.splice(0)) stop()
  }

  #storeOf(base: string): ShapeStore {
    const { stores, scripts } = this.#family
    const store = stores.get(base) ?? new ShapeStore(base, () => this.queue.client, scripts)
    stores.set(base, store)
    return store
  }

  /**
   * The next time of a scheduler, and the options of its job. For a cron pattern it is computed on Redis's clock: if
   * the local one, which BullMQ uses, were ahead, each iteration would skip that much time. A custom repeat strategy
   * uses its own clock.
   * @param producerId job id of the iteration that creates it; '' for the first
   */
  async #iterationOf(
    schedulerId: string,
    nextMs: number,
    jobOpts: JobSchedulerJobOptions,
    producerId = '',
  ): Promise<[number, JobSchedulerJobOptions]> {
    const { settings } = this.queue.opts as WorkerOptions
    const { repeat } = jobOpts
    if (!repeat?.pattern || !this.store.memory.stored || settings?.repeatStrategy) return [nextMs, jobOpts]
    const view = await this.store.view<ShapeView>('shape')
    const [localMs, redisMs] = [Date.now(), Number(view?.at) / 1000]
    if (Math.abs(localMs - redisMs) < AGREEING_MS) return [nextMs, jobOpts]
    const lastMs = Number(producerId.slice(producerId.lastIndexOf(':') + 1)) || 0
    const byPattern = await defaultRepeatStrategy(Math.max(localMs, lastMs), repeat)
    // A time that does not match the pattern means "at once".
    const next = byPattern === nextMs ? await defaultRepeatStrategy(Math.max(redisMs, lastMs), repeat) : redisMs
    if (next === undefined) return [nextMs, jobOpts]
    const millis = Math.ceil(next)
    return [millis, { ...jobOpts, jobId: `repeat:${schedulerId}:${millis}`, prevMillis: millis }]
  }
}
