import { randomUUID } from 'node:crypto'
import { QueueKeys, RedisQueueBackend } from 'bullmq'
import type { Dispatching } from '../../src/backend-options.ts'
import { argumentsOf } from '../../src/call-collector.ts'
import type { DepartureReply, FetchedJob } from '../../src/departure-reply.ts'
import { Departures } from '../../src/departures.ts'
import { Dispatcher, type DispatchHost } from '../../src/dispatcher.ts'
import { dispatchingOf } from '../../src/dispatching.ts'
import { encodeFeedbackRequest } from '../../src/feedback/feedback-request.ts'
import { FinishBatch } from '../../src/finish-batch.ts'
import { giveBackArguments } from '../../src/give-back.ts'
import type { HeldJob } from '../../src/held-job.ts'
import type { RateInput } from '../../src/rate.ts'
import { RedisClock } from '../../src/redis-clock.ts'
import type { Argument, Client } from '../../src/redis-commands.ts'
import { encodeOverride, encodeShape, type Shape, type ShapeOverride } from '../../src/shape.ts'
import { ShapeStore } from '../../src/shape-store.ts'
import { isMeantFor } from '../../src/shape-wake.ts'
import type { Waiting } from './schedule.ts'
import { VirtualRedis, type VirtualScripts } from './virtual-redis.ts'
import { VirtualTime } from './virtual-time.ts'

export interface WorkerTraits {
  readonly concurrency: number
  /** µs there and back, without what is late by chance. */
  readonly roundTripUs: number
  /** It is started so long after the first, µs. */
  readonly startsAfterUs: number
  /** It is killed as soon as it has no job from then on, µs after the first start; undefined: never. */
  readonly diesAfterUs?: number | undefined
  /** It closes then, µs after the first start: what it holds goes back, and what it runs ends. */
  readonly leavesAfterUs?: number | undefined
}

/** A job that departed. */
export interface Departed {
  readonly number: number
  readonly slotUs: number
  readonly startedUs: number
  /** When Redis granted it. */
  readonly grantedUs: number
}

const WORKER_OPTIONS = { lockDuration: 30_000, removeOnComplete: undefined, removeOnFail: undefined }
/** Whatever sends more turns in circles. */
const MOST_CALLS = 2000
const MOST_CALLS_PER_JOB = 20
const DRAIN_DELAY_US = 5_000_000
/** As BullMQ's scores of prioritized jobs, behind which is the order of their adding. */
const PRIORITY_FACTOR = 2 ** 32

/** Many workers of one queue in virtual time: the dispatch loop and the scripts are those of the library. */
export class Fleet {
  readonly time: VirtualTime
  readonly startUs: number
  readonly departed: Departed[] = []
  readonly redis: VirtualRedis
  readonly jobs: readonly Waiting[]
  readonly uniform: () => number
  ended = 0
  /** Units of cost that were granted and put back: what they were charged is forfeited. */
  givenBack = 0
  readonly #workers: FleetWorker[] = []
  readonly #marker: FleetWorker[] = []
  readonly #admin: ShapeStore
  readonly #base: string
  readonly errors: unknown[] = []
  readonly grantedAtUs = new Map<number, number>()
  /** How often a job has failed. */
  readonly failed = new Map<number, number>()

  constructor(
    base: string,
    scripts: VirtualScripts,
    { jobs, startUs, uniform }: { jobs: readonly Waiting[]; startUs: number; uniform: () => number },
  ) {
    this.#base = base
    this.jobs = jobs
    this.uniform = uniform
    this.startUs = startUs
    this.time = new VirtualTime(startUs)
    this.redis = new VirtualRedis(base, this.time, scripts, {
      onPublished: (message) => {
        for (const worker of this.#workers) worker.hears(message)
      },
      onMarked: () => this.serveMarker(),
    })
    const here = this.redis.clientAt(() => 0)
    this.#admin = new ShapeStore(base, async () => here, scripts.set)
  }

  /** Stores the shape and adds the jobs; those that come later are added in their time. */
  async begin(shape: Shape, workers: readonly WorkerTraits[]): Promise<void> {
    const { fields } = encodeShape(shape)
    await this.#sendNow('declare-shape', [this.#admin.key, JSON.stringify(fields), '', 'test'])
    await this.#add(this.jobs.flatMap(({ atUs }, number) => (atUs === undefined ? [number] : [])))
    for (const [number, { atUs }] of this.jobs.entries()) {
      if (atUs !== undefined) this.time.at(atUs, () => void this.time.real(this.#add([number])))
    }
    for (const traits of workers) {
      const worker = new FleetWorker(this, this.#base, traits)
      this.#workers.push(worker)
      this.time.at(this.startUs + traits.startsAfterUs, () => worker.run())
      const { diesAfterUs, leavesAfterUs } = traits
      if (leavesAfterUs !== undefined) this.time.at(this.startUs + leavesAfterUs, () => worker.leave())
      if (diesAfterUs !== undefined) this.time.at(this.startUs + diesAfterUs, () => worker.dieIdle())
    }
  }

  override(atUs: number, changes: ShapeOverride, ttlMs?: number): void {
    this.time.at(atUs, () => void this.#admin.override(encodeOverride(changes), 'test', 'test', ttlMs))
  }

  pause(atUs: number, untilUs: number): void {
    this.time.at(atUs, () => void this.#admin.pause({ kind: 'until', ms: untilUs / 1000, reason: 'test' }))
  }

  /** The other side asks for a pause, or for a lower rate, for so long. */
  said(atUs: number, rate: RateInput | undefined, ttlMs: number): void {
    const told = { scope: 'queue', source: 'test', reason: 'test' }
    const feedback = rate
      ? { ...told, kind: 'slow', rate, ttlMs }
      : { ...told, kind: 'pause', forMs: ttlMs, hard: false }
    const request = { found: [{ feedback }], sentUs: atUs, by: 'test', adapt: undefined, oks: 0 }
    const encoded = JSON.stringify({ ...JSON.parse(encodeFeedbackRequest(request as never)), jitter: 0 })
    this.time.at(atUs, () => void this.#admin.feedback(encoded).catch((error: unknown) => this.errors.push(error)))
  }

  clearPause(atUs: number): void {
    this.time.at(atUs, () => void this.#admin.pause({ kind: 'clear' }))
  }

  /** Runs until all jobs have ended, or the time, µs. */
  async run(untilUs: number): Promise<void> {
    const most = MOST_CALLS + MOST_CALLS_PER_JOB * this.jobs.length
    const done = () => this.ended === this.jobs.length || this.errors.length > 0 || this.redis.calls > most
    await this.time.run(done, untilUs)
    for (const worker of this.#workers) worker.die()
    if (this.errors[0]) throw this.errors[0]
  }

  waitForMarker(worker: FleetWorker): void {
    this.#marker.push(worker)
    this.serveMarker()
  }

  leaveMarker(worker: FleetWorker): void {
    const at = this.#marker.indexOf(worker)
    if (at >= 0) this.#marker.splice(at, 1)
  }

  /** Who waits longest gets what is in the set. */
  serveMarker(): void {
    void this.time.real(this.#serveMarker())
  }

  async #serveMarker(): Promise<void> {
    while (this.#marker.length > 0) {
      const [member, score] = await this.redis.scripts.client.zpopmin(`${this.#base}marker`)
      if (member === undefined) return
      this.#marker.shift()?.getsMarker(Number(score))
    }
  }

  async #add(numbers: readonly number[]): Promise<void> {
    if (numbers.length === 0) return
    const { client } = this.redis.scripts
    const pipeline = client.pipeline()
    for (const number of numbers) {
      const { cost, costs, priority = 0 } = this.jobs[number] as Waiting
      const opts = JSON.stringify(cost === 1 && !costs ? {} : { cost, costs })
      const fields = { name: 'job', data: '{}', opts, timestamp: '0', priority: String(priority) }
      pipeline.hset(`${this.#base}${number}`, fields)
      if (priority === 0) pipeline.lpush(`${this.#base}wait`, String(number))
      else pipeline.zadd(`${this.#base}prioritized`, String(priority * PRIORITY_FACTOR + number), String(number))
    }
    await pipeline.zadd(`${this.#base}marker`, 0, '0').exec()
    await this.#serveMarker()
  }

  async #sendNow(name: string, args: readonly Argument[]): Promise<void> {
    await this.redis.run(`sluice:${name}`, args)
  }
}

/** BullMQ's own arguments for its scripts, without a connection. */
interface BullmqArguments {
  moveToActive(token: string): Promise<Argument[]>
  moveToCompleted(held: HeldJob, token: string, timestamp: number, fetches: boolean): Argument[]
  moveToDelayed(held: HeldJob, token: string, timestamp: number, delayMs: number, fetches: boolean): Argument[]
}

function bullmqArguments(base: string): BullmqArguments {
  const [prefix, name] = [base.slice(0, base.lastIndexOf(':', base.length - 2)), base.split(':').at(-2) as string]
  const keys = new QueueKeys(prefix)
  const stub = Object.create(RedisQueueBackend.prototype) as RedisQueueBackend
  const map = keys.getKeys(name)
  const queue = {
    keys: map,
    opts: WORKER_OPTIONS,
    client: Promise.resolve(undefined),
    closing: undefined,
    toKey: (type: string) => keys.toKey(name, type),
  }
  const first = ['wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc']
  const moveToFinishedKeys = [...first.map((type) => map[type]), undefined, undefined, undefined, undefined]
  Object.defineProperties(stub, {
    queue: { value: queue },
    moveToFinishedKeys: { get: () => [...moveToFinishedKeys] },
  })
  type Finished = Record<'moveToFinishedArgs' | 'moveToDelayedArgs', (...args: unknown[]) => Argument[]>
  return {
    moveToActive: (token) =>
      argumentsOf<RedisQueueBackend>(stub, function moveToActive() {
        return RedisQueueBackend.prototype.moveToActive.call(this, token, undefined)
      }),
    moveToCompleted: ({ id }, token, timestamp, fetches) =>
      (stub as unknown as Finished).moveToFinishedArgs(
        ...[{ id, opts: { attempts: 1 } }, '0', 'returnvalue', undefined, 'completed', token, timestamp, fetches],
      ),
    moveToDelayed: ({ id }, token, timestamp, delayMs, fetches) =>
      (stub as unknown as Finished).moveToDelayedArgs(id, timestamp, token, delayMs, { fetchNext: fetches }),
  }
}

/** One worker: the library's loop over the library's calls, as ShapedWorker puts them together. */
class FleetWorker {
  readonly #fleet: Fleet
  readonly #traits: WorkerTraits
  readonly #id = randomUUID()
  readonly #client: Client
  readonly #store: ShapeStore
  readonly #departures: Departures
  readonly #dispatcher: Dispatcher
  readonly #clock: RedisClock
  readonly #fetched = new Map<string, HeldJob>()
  readonly #bullmq: BullmqArguments
  readonly #finishes: FinishBatch
  #tokens = 0
  /** Calls for jobs under way. */
  #asks = 0
  #dead = false
  #leaving = false
  #looping = false
  #marker: ((score: number) => void) | undefined

  constructor(fleet: Fleet, base: string, traits: WorkerTraits) {
    const { set } = fleet.redis.scripts
    this.#fleet = fleet
    this.#traits = traits
    this.#client = fleet.redis.clientAt(() => this.#halfTripUs())
    this.#bullmq = bullmqArguments(base)
    this.#store = new ShapeStore(base, async () => this.#client, set)
    const late = () => (fleet.uniform() < 0.02 ? 4000 : 1000) * fleet.uniform()
    this.#clock = new RedisClock(fleet.time.local(fleet.startUs - 1e9 * fleet.uniform(), late))
    const wallMs = () => this.#clock.time.wallMs()
    this.#departures = new Departures(set, this.#store, this.#id, WORKER_OPTIONS.lockDuration, wallMs)
    this.#dispatcher = new Dispatcher(this.#host(), this.#clock)
    const worker = {
      id: this.#id,
      allowUnshaped: false,
      looping: () => this.#looping,
      nextToken: () => this.#nextToken(),
      keepLock: () => undefined,
    }
    this.#departures.dispatchTo(this.#noting(dispatchingOf(worker, this.#dispatcher, this.#fetched)))
    this.#finishes = new FinishBatch({
      one: ({ client, args, discarded }) =>
        this.#departures.finish(client, 'moveToFinished', args, set.originalKeys('moveToFinished'), discarded),
      many: async (client, jobs) => {
        const token = this.#nextToken()
        return this.#departures.finishBatch(client, await this.#activeArguments(token), token, jobs)
      },
    })
    this.#store.on('shape', (shape, before) => {
      const later = shape.pausedUntilUs > (before?.pausedUntilUs ?? 0)
      if (later && shape.pausedUntilUs > (this.#clock.nowUs() ?? 0)) this.#dispatcher.release(shape)
    })
  }

  /** Notes when Redis granted what the end of a job fetched. */
  #noting(dispatching: Dispatching): Dispatching {
    const { grantedAtUs } = this.#fleet
    const note = (reply: DepartureReply) => this.#noteGrants(reply)
    return Object.create(dispatching, {
      onFetched: {
        value: (jobs: readonly FetchedJob[], nowUs: number | undefined, sentMs: number) => {
          for (const [, id] of jobs) grantedAtUs.set(Number(id), nowUs ?? this.#fleet.time.nowUs)
          dispatching.onFetched(jobs, nowUs, sentMs)
        },
      },
      onDeparture: {
        value: (reply: DepartureReply, sentMs: number) => {
          note(reply)
          dispatching.onDeparture(reply, sentMs)
        },
      },
      onBatch: {
        value: (reply: DepartureReply, token: string, sentMs: number, handedOn: boolean) => {
          note(reply)
          dispatching.onBatch(reply, token, sentMs, handedOn)
        },
      },
    }) as Dispatching
  }

  #noteGrants({ grants, nowUs }: DepartureReply): void {
    for (const { id } of grants) this.#fleet.grantedAtUs.set(Number(id), nowUs as number)
  }

  run(): void {
    if (this.#dead || this.#leaving) return
    this.#looping = true
    this.#dispatcher.run().catch((error: unknown) => this.#fails(error))
  }

  /** Without a word: what it holds and runs is lost. */
  die(): void {
    this.#dead = true
    this.#fleet.leaveMarker(this)
  }

  leave(): void {
    if (this.#dead) return
    this.#leaving = true
    this.#fleet.leaveMarker(this)
    this.#dispatcher.wake()
  }

  dieIdle(): void {
    const { time } = this.#fleet
    const busy = this.#asks + this.#dispatcher.running + this.#dispatcher.held.length > 0
    if (busy) time.at(time.nowUs + 1000, () => this.dieIdle())
    else this.die()
  }

  hears(message: string): void {
    if (this.#dead || !isMeantFor(this.#id, message)) return
    const { time } = this.#fleet
    time.at(time.nowUs + this.#halfTripUs(), () => this.#dispatcher.wake())
  }

  getsMarker(score: number): void {
    this.#marker?.(score)
  }

  #halfTripUs(): number {
    return (this.#traits.roundTripUs / 2) * (1 + 0.2 * this.#fleet.uniform())
  }

  #nextToken(): string {
    this.#tokens += 1
    return `${this.#id}:${this.#tokens}`
  }

  #fails(error: unknown): void {
    if (!this.#dead) this.#fleet.errors.push(error)
  }

  /** With this clock, not that of the machine. */
  async #activeArguments(token: string): Promise<Argument[]> {
    const args = await this.#bullmq.moveToActive(token)
    const timestamp = this.#fleet.redis.scripts.set.originalKeys('moveToActive') + 1
    args[timestamp] = Math.floor(this.#clock.time.wallMs())
    return args
  }

  #host(): DispatchHost {
    return {
      workerId: this.#id,
      allowUnshaped: false,
      maxRateLimitDelayMs: 30_000,
      lockDurationMs: WORKER_OPTIONS.lockDuration,
      concurrency: () => this.#traits.concurrency,
      stopping: () => this.#dead || this.#leaving,
      closing: () => this.#dead || this.#leaving,
      overloaded: () => false,
      shape: () => this.#store.memory.stored,
      nextToken: () => this.#nextToken(),
      ready: async () => {},
      depart: (token, request) => this.#depart(token, request),
      waitForMarker: (untilMs) => this.#waitForMarker(untilMs),
      process: (held) => this.#process(held).catch((error: unknown) => this.#fails(error)),
      giveBack: async (jobs, leaving) => {
        if (this.#dead) return
        for (const { id } of jobs) this.#fleet.givenBack += this.#fleet.jobs[Number(id)]?.cost ?? 1
        await this.#store.run('give-back', giveBackArguments(jobs, leaving ? this.#id : ''))
      },
      onReply: () => {},
      onLate: () => {},
      onEmpty: () => {},
      onUnshaped: () => {},
      onError: (error) => this.#fails(error),
    }
  }

  async #depart(token: string, request: Parameters<DispatchHost['depart']>[1]): Promise<DepartureReply> {
    const args = await this.#activeArguments(token)
    const keys = this.#fleet.redis.scripts.set.originalKeys('moveToActive')
    this.#asks += 1
    const reply = await this.#departures.depart(this.#client, args, keys, request)
    // Its jobs are held in the turns that follow.
    this.#fleet.time.at(this.#fleet.time.nowUs + 1, () => {
      this.#asks -= 1
    })
    this.#noteGrants(reply)
    return reply
  }

  async #waitForMarker(untilMs: number): Promise<number> {
    const { time } = this.#fleet
    const forUs = untilMs ? Math.min(10_000_000, untilMs * 1000 - time.nowUs) : DRAIN_DELAY_US
    if (forUs <= 0) return 0
    await time.until(time.nowUs + this.#halfTripUs())
    const score = await new Promise<number | undefined>((resolve) => {
      const stop = time.at(time.nowUs + forUs, () => resolve(undefined))
      this.#marker = (found) => {
        stop()
        resolve(found)
      }
      this.#fleet.waitForMarker(this)
    })
    this.#fleet.leaveMarker(this)
    await time.until(time.nowUs + this.#halfTripUs())
    if (score === undefined) return 0
    return untilMs && score > untilMs ? untilMs : score
  }

  /** As ShapedWorker does: a job, then what its end fetched, as long as that may start at once. */
  async #process(first: HeldJob): Promise<void> {
    for (let held: HeldJob | undefined = first; held; ) {
      const back: Promise<void> | undefined = held === first ? undefined : this.#dispatcher.returnIfLate(held)
      if (back) return back
      held = await this.#runJob(held)
      if (held && !held.due && this.#clock.untilMs(held.slotUs) > 0) {
        this.#dispatcher.accept([held])
        return
      }
    }
  }

  /** @returns what its end fetched */
  async #runJob(held: HeldJob): Promise<HeldJob | undefined> {
    const { time, departed, jobs } = this.#fleet
    const number = Number(held.id)
    if (this.#dead) return undefined
    const grantedUs = this.#fleet.grantedAtUs.get(number) as number
    departed.push({ number, slotUs: held.slotUs, startedUs: time.nowUs, grantedUs })
    this.#dispatcher.departed(held.id)
    await time.until(time.nowUs + (jobs[number] as Waiting).runsUs)
    if (this.#dead) return undefined
    const result = await this.#endJob(held, number)
    if (typeof result === 'number' && result < 0) throw new Error(`job ${number} could not be finished: ${result}`)
    if (!Array.isArray(result) || !result[1]) return undefined
    const nextId = String(result[1])
    const next = this.#fetched.get(nextId)
    this.#fetched.delete(nextId)
    return next && { ...next, token: held.token }
  }

  /** Completes it, or, where it fails, puts it off until it comes again. */
  async #endJob(held: HeldJob, number: number): Promise<unknown> {
    const { failed, jobs } = this.#fleet
    const { fails = 0, backoffUs = 0 } = jobs[number] as Waiting
    const timestamp = Math.floor(this.#clock.time.wallMs())
    const fetches = this.#dispatcher.fetchesOnFinish
    const before = failed.get(number) ?? 0
    if (before < fails) {
      failed.set(number, before + 1)
      const args = this.#bullmq.moveToDelayed(held, held.token, timestamp + backoffUs / 1000, backoffUs / 1000, fetches)
      const keys = this.#fleet.redis.scripts.set.originalKeys('moveToDelayed')
      return this.#departures.finish(this.#client, 'moveToDelayed', args, keys, false)
    }
    const args = this.#bullmq.moveToCompleted(held, held.token, timestamp, fetches)
    const result = await this.#finishes.finish(
      { client: this.#client, args, discarded: false },
      this.#dispatcher.running,
    )
    this.#fleet.ended += 1
    return result
  }
}
