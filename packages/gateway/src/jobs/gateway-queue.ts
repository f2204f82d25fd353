import { type AdmissionEstimate, type CancelOutcome, type MeterState, ShapedQueue } from 'sluice'
import {
  AdmitTimeout,
  decodeDurability,
  ESTIMATE,
  encodeDurability,
  POSITION,
  STEM,
  type StoredShape,
  shardedQueuesKey,
} from 'sluice/internal'
import type { Identity } from '../middleware.ts'
import type { HeaderForm } from '../responses/rate-limit-fields.ts'
import { admissionConnection, eventsConnection, mayGiveUp, type WaitingTimes, waitingTimes } from './connection.ts'
import { FullMemory, FullResponses } from './full-memory.ts'
import { JobIds, type Once } from './job-id.ts'
import { JobItems, type NewJob } from './job-items.ts'
import { hasEnded, type JobPlace, type PlaceView, readPlace } from './job-place.ts'
import { LastMeter } from './last-meter.ts'
import { InvalidGatewayOptionError, type ResolvedOptions, type ResolvedRule } from './options.ts'
import { type Ending, ResultEvents } from './result-events.ts'

/** Maximum number of waiting jobs searched for a job's position: more would block Redis for other clients. */
const LOOKED_AT = 10_000

/** The admitted jobs. */
export interface Admitted {
  readonly ids: readonly string[]
  /** Of the first job, if known. */
  readonly position?: number | undefined
  readonly startsAt?: Date | undefined
  /** Whether an earlier request had already added them. */
  readonly replayed: boolean
}

/** The queue as it is currently open. */
interface Opened {
  readonly shaped: ShapedQueue
  readonly timeout: AdmitTimeout
}

/** One queue behind the gateway. Everything fails with QueueUnavailableError if Redis does not answer in time. */
export class GatewayQueue {
  readonly name: string
  readonly rule: ResolvedRule
  /** The path of its jobs. */
  readonly jobsPath: string
  readonly headerForms: readonly HeaderForm[]
  readonly items: JobItems
  readonly fullResponses = new FullResponses()
  readonly meterForFields: LastMeter
  readonly #ids = new JobIds(async (proposed) => String(await this.#run('caller-secret', [proposed])))
  readonly #options: ResolvedOptions
  /** How long the declared shape lets an admission wait for replicas. */
  readonly #replicasMs: number
  readonly #times: WaitingTimes
  readonly #results: ResultEvents
  /** Undefined if callers may set `priority` or `delay`: such a job may find a place where others do not. */
  readonly #full: FullMemory | undefined
  #opened: Opened | undefined

  /** @throws Error that says what is wrong with the schema of the rule; InvalidGatewayOptionError about its shape */
  constructor(name: string, options: ResolvedOptions) {
    this.name = name
    this.rule = options.queues[name] as ResolvedRule
    const durability = this.rule.shape?.durability
    this.#replicasMs = durability ? decodeDurability(encodeDurability(durability)).timeoutMs : 0
    this.#times = waitingTimes(options.connection, options.redisTimeoutMs, this.#replicasMs)
    if (mayGiveUp(this.#times, this.#replicasMs))
      throw new InvalidGatewayOptionError(this.#impatience(this.#replicasMs))
    this.jobsPath = `${options.basePath}/queues/${encodeURIComponent(name)}/jobs`
    this.headerForms = options.headers
    this.items = new JobItems(this.rule)
    this.#options = options
    this.meterForFields = new LastMeter(name, () => this.meter())
    const { allow } = this.rule
    this.#full = allow.includes('priority') || allow.includes('delay') ? undefined : new FullMemory()
    this.#results = new ResultEvents({
      queueName: name,
      options: { connection: eventsConnection(options.connection), prefix: options.prefix },
      now: async () => (await this.meter()).at,
      onError: (error) => options.onError(error, name),
    })
  }

  /** @throws InvalidGatewayOptionError for a sharded queue: no worker of its shards would take the jobs */
  async waitUntilReady(): Promise<void> {
    if (await this.#isSharded()) {
      throw new InvalidGatewayOptionError(
        `queues.${this.name} is a sharded queue, and a gateway adds to queues without shards: add to it in a route of ` +
          'your own, with ShardedQueue and refusalResponse',
      )
    }
    await this.#open().shaped.waitUntilReady()
  }

  /** Asked over a connection of its own: once the queue is open, its shape is declared. */
  async #isSharded(): Promise<boolean> {
    const { connection: given, prefix } = this.#options
    const connection = admissionConnection(given, this.#replicasMs)
    const asking = new ShapedQueue(this.name, { connection, prefix, skipMetasUpdate: true })
    asking.on('error', (error) => this.#options.onError(error, this.name))
    try {
      const client = await asking.backend.client
      return (await client.hexists(shardedQueuesKey(prefix), this.name)) === 1
    } finally {
      await close(asking)
    }
  }

  /**
   * Admits all jobs or none.
   * @throws QueueFullError, and whatever else `add` and `addOnce` throw
   */
  async admit(jobs: readonly NewJob[], caller: Identity | undefined, once: Once | undefined): Promise<Admitted> {
    try {
      const admitted = await (once ? this.#addOnce(jobs, caller, once) : this.#add(jobs, caller))
      if (admitted.replayed) return admitted
      this.#full?.admitted()
      this.meterForFields.admitted(jobs.length)
      return admitted
    } catch (error) {
      this.#full?.refused(error)
      throw error
    }
  }

  /** Refuses a request before its body is read, if the queue is known to be full. @throws QueueFullError */
  refuseIfFull(): void {
    const refusal = this.#full?.standing()
    if (refusal) throw refusal
  }

  /** Whether a caller added the job with this id. */
  isOf(caller: Identity | undefined, id: string): Promise<boolean> {
    return this.#ids.isOf(caller, id)
  }

  /** Where a job is; undefined if there is none. */
  async locate(id: string): Promise<JobPlace | undefined> {
    const { shaped, timeout } = this.#open()
    const asked = { id, searched: LOOKED_AT }
    return readPlace(await timeout.run(this.name, () => shaped.backend.store.view<PlaceView>('place', asked)))
  }

  /** Removes a waiting job, or has the run of one aborted. */
  cancel(id: string): Promise<CancelOutcome> {
    const { shaped, timeout } = this.#open()
    return timeout.run(this.name, () => shaped.cancelJob(id, { reason: 'deleted by its caller', remove: true }))
  }

  async meter(): Promise<MeterState> {
    return this.#open().shaped.meter()
  }

  /** How a job ended; undefined if it has not, or no longer exists. */
  async ending(id: string): Promise<Ending | undefined> {
    const { shaped, timeout } = this.#open()
    const job = await timeout.run(this.name, () => shaped.getJob(id))
    if (job?.finishedOn === undefined) return undefined
    const place = await this.locate(id)
    if (!place || !hasEnded(place.state)) return undefined
    if (place.state === 'failed') return { state: 'failed', failedReason: job.failedReason }
    return { state: 'completed', result: job.returnvalue }
  }

  /** How a job ends within `waitMs`; undefined if it does not, or if that cannot be known. */
  awaitEnding(id: string, waitMs: number, signal: AbortSignal): Promise<Ending | undefined> {
    return this.#results.ending(id, { waitMs, signal, look: () => this.ending(id) })
  }

  /** Ends all waits for results. */
  async stopWaiting(): Promise<void> {
    await this.#results.close()
  }

  async close(): Promise<void> {
    await this.stopWaiting()
    if (this.#opened) await close(this.#opened.shaped)
  }

  async #add(jobs: readonly NewJob[], caller: Identity | undefined): Promise<Admitted> {
    const { shaped } = this.#open()
    // The gateway chooses the ids: if Redis receives a command twice, the jobs are added once, and ids are unguessable.
    const ids = await this.#ids.drawn(caller, jobs.length)
    const [first, ...rest] = jobs.map((job, i) => this.#complete(job, ids[i])) as [NewJob, ...NewJob[]]
    if (rest.length > 0) {
      const added = await shaped.addBulk([first, ...rest])
      return { ids: added.map(({ id }) => id as string), replayed: false }
    }
    let found: Partial<AdmissionEstimate> = {}
    const take = (estimate: Partial<AdmissionEstimate>) => {
      found = estimate
    }
    // Not `offer`: errors say more about a refusal than its result does. A position is cheaper than an estimate, but says
    // nothing of when a group lets the job go.
    const wanted = first.opts.group ? { [ESTIMATE]: take } : { [POSITION]: (position: number) => take({ position }) }
    const job = await shaped.add(first.name, first.data, Object.assign(first.opts, wanted))
    return { ids: [job.id as string], replayed: false, ...found }
  }

  async #addOnce(jobs: readonly NewJob[], caller: Identity | undefined, once: Once): Promise<Admitted> {
    const { idempotencyTtlMs: ttlMs } = this.#options
    const terms = { ...once, ttlMs, [STEM]: await this.#ids.stemOf(caller, once, jobs.length) }
    const complete = jobs.map((job) => this.#complete(job))
    const { ids, replayed, estimate } = await this.#open().shaped.addOnce(complete, terms)
    return { ids, replayed, ...estimate }
  }

  /** Adds what the rule sets for all jobs. */
  #complete({ name, data, opts }: NewJob, jobId?: string): NewJob {
    return { name, data, opts: Object.assign(jobId ? { jobId } : {}, this.rule.jobOptions, opts) }
  }

  async #run(script: string, args: readonly (string | number)[]): Promise<unknown> {
    const { shaped, timeout } = this.#open()
    return timeout.run(this.name, () => shaped.backend.store.run(script, args))
  }

  #open(): Opened {
    this.#opened ??= this.#newlyOpened()
    return this.#opened
  }

  #newlyOpened(): Opened {
    const { connection, prefix, onError } = this.#options
    const { callMs } = this.#times
    const shaped = new ShapedQueue(this.name, {
      connection: admissionConnection(connection, this.#replicasMs),
      prefix,
      admitTimeoutMs: callMs,
      ...(this.rule.shape && { shape: this.rule.shape }),
    })
    shaped.on('error', (error) => onError(error, this.name))
    shaped.backend.store.on('shape', (shape, before) => this.#checkTimes(shape, before))
    const opened = { shaped, timeout: new AdmitTimeout(shaped.backend.connection, callMs) }
    shaped.backend.connection.client.catch(() => this.#reopen(opened))
    return opened
  }

  /** The stored shape may ask for more than the declared one: this is reported, since jobs are admitted all the same. */
  #checkTimes(shape: StoredShape, before: StoredShape | undefined): void {
    const replicasMs = shape.durability?.timeoutMs ?? 0
    if (replicasMs === before?.durability?.timeoutMs || !mayGiveUp(this.#times, replicasMs)) return
    this.#options.onError(new Error(`queues.${this.name}: ${this.#impatience(replicasMs)}`), this.name)
  }

  #impatience(replicasMs: number): string {
    const { callMs, commandMs } = this.#times
    const shorter =
      commandMs <= replicasMs
        ? `commandTimeout and socketTimeout of its connection must be above that; the shorter one is ${commandMs} ms`
        : `it waits ${callMs} ms for a call, and longer only if its own shape of the queue has this timeoutMs`
    return `durability.timeoutMs is ${replicasMs} ms, and the gateway may give up before Redis does: ${shorter}`
  }

  /** BullMQ never recovers from a failed first connection, so the queue is replaced. */
  #reopen(failed: Opened): void {
    if (this.#opened !== failed) return
    this.#opened = undefined
    close(failed.shaped).catch((error: Error) => this.#options.onError(error, this.name))
  }
}

/** Also works without Redis: BullMQ's own close then fails, and BullMQ would keep reconnecting. */
async function close(shaped: ShapedQueue): Promise<void> {
  try {
    await shaped.close()
  } catch {
    const client = await shaped.backend.connection.client.catch(() => undefined)
    client?.disconnect()
  }
}
