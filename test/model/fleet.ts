import type { Feedback } from '../../src/feedback/feedback.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import type { RateInput } from '../../src/rate.ts'
import type { Argument } from '../../src/redis/commands.ts'
import { encodeOverride, encodeShape, type Shape, type ShapeOverride } from '../../src/shape/shape.ts'
import { ShapeStore } from '../../src/shape/store.ts'
import type { Answers } from './combination.ts'
import { FleetWorker, type WorkerTraits } from './fleet-worker.ts'
import type { Members, Waiting } from './schedule.ts'
import { VirtualRedis, type VirtualWorld } from './virtual-redis.ts'
import type { VirtualTime } from './virtual-time.ts'

/** A job that departed. */
export interface Departed {
  readonly number: number
  readonly slotUs: number
  readonly startedUs: number
  /** When Redis granted it. */
  readonly grantedUs: number
  /** With which members of pools. */
  readonly members?: Members | undefined
}

export interface Grant {
  readonly atUs: number
  readonly slotUs: number
}

/** Duration of a job's lock, and interval of the stalled check. As in BullMQ. */
export interface Locks {
  readonly lockMs: number
  readonly stalledMs: number
}

/** A job that a killed worker held or ran, or that was refused, and when it was waiting again. */
export interface Lost {
  readonly number: number
  readonly grant: Grant
  readonly started: boolean
  readonly foundUs: number
}

export interface FleetOptions {
  readonly jobs: readonly Waiting[]
  readonly startUs: number
  readonly uniform: () => number
  readonly locks?: Locks | undefined
  readonly answers?: Answers | undefined
}

/** What was in force after a feedback report had been applied. */
export interface Heard {
  readonly atUs: number
  readonly by: string
  readonly kind: string
  readonly pausedUntilUs: number
  readonly probe: string | undefined
  readonly intervalUs: number | undefined
}

const USUAL_LOCKS: Locks = { lockMs: 30_000, stalledMs: 30_000 }
/** Within this many intervals of the stalled check, plus a lock's duration, all lost jobs are found. */
export const CHECKS_UNTIL_FOUND = 3
/** With more calls than this, a fleet is assumed to be in an endless loop. */
const MOST_CALLS = 2000
const MOST_CALLS_PER_JOB = 20
/** As BullMQ's scores of prioritized jobs: priority times this, plus the order in which they were added. */
const PRIORITY_FACTOR = 2 ** 32

/** Many workers of one queue in virtual time, with the library's dispatch loop and scripts. */
export class Fleet {
  readonly time: VirtualTime
  readonly startUs: number
  readonly departed: Departed[] = []
  readonly redis: VirtualRedis
  readonly jobs: readonly Waiting[]
  readonly uniform: () => number
  ended = 0
  /** Units of cost that were granted and given back: their charge is forfeited. */
  givenBack = 0
  readonly #workers: FleetWorker[] = []
  readonly #marker: FleetWorker[] = []
  readonly #admin: ShapeStore
  readonly #base: string
  readonly errors: unknown[] = []
  /** The last grant of each job. */
  readonly granted = new Map<number, Grant>()
  readonly locks: Locks
  readonly lost: Lost[] = []
  readonly answers: Answers | undefined
  readonly heard: Heard[] = []
  /** Refused jobs. */
  readonly refused = new Set<number>()
  #lastKillUs = 0
  /** How often each job has failed. */
  readonly failed = new Map<number, number>()

  constructor(
    base: string,
    world: VirtualWorld,
    { jobs, startUs, uniform, locks = USUAL_LOCKS, answers }: FleetOptions,
  ) {
    this.#base = base
    this.locks = locks
    this.answers = answers
    this.jobs = jobs
    this.uniform = uniform
    this.startUs = startUs
    this.time = world.time
    this.redis = new VirtualRedis(base, world, {
      onPublished: (message) => {
        for (const worker of this.#workers) worker.hears(message)
      },
      onMarked: () => this.serveMarker(),
      onFeedback: (request, shape) => this.#hears(request, shape),
    })
    const here = this.redis.clientAt(() => 0)
    this.#admin = new ShapeStore(base, async () => here, world.scripts.set)
  }

  /** Stores the shape and adds the jobs; later arrivals are added at their time. */
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
      const { diesAfterUs, leavesAfterUs, killedAfterUs } = traits
      if (killedAfterUs !== undefined) {
        this.#lastKillUs = Math.max(this.#lastKillUs, this.startUs + killedAfterUs)
        this.time.at(this.startUs + killedAfterUs, () => worker.die())
      }
      if (leavesAfterUs !== undefined) this.time.at(this.startUs + leavesAfterUs, () => worker.leave())
      if (diesAfterUs !== undefined) this.time.at(this.startUs + diesAfterUs, () => worker.dieIdle())
    }
  }

  /** If workers die, the others count as having missed wake-ups, so that they soon do what a dead one was woken for. */
  get mayDie(): boolean {
    return this.#workers.some(({ dies }) => dies)
  }

  /** Whether jobs of killed workers may still have to be found. */
  get mayStall(): boolean {
    const { lockMs, stalledMs } = this.locks
    const forUs = (lockMs + (CHECKS_UNTIL_FOUND + 1) * stalledMs) * 1000
    return this.#lastKillUs > 0 && this.time.nowUs < this.#lastKillUs + forUs
  }

  foundStalled(ids: readonly string[]): void {
    for (const id of ids) {
      const number = Number(id)
      const grant = this.granted.get(number) as Grant
      const started = this.departed.some((one) => one.number === number && one.grantedUs === grant.atUs)
      this.lost.push({ number, grant, started, foundUs: Math.floor(this.time.nowUs) })
    }
  }

  #hears(request: string, shape: readonly string[]): void {
    // Feedback without a job is an event, and is not recorded here.
    if (!this.answers) return
    const { by, found } = JSON.parse(request) as { by: string; found: { feedback: Feedback }[] }
    const fields = new Map(
      shape.flatMap((text, at) => (at % 2 === 0 ? [[text, shape[at + 1]] as [string, string]] : [])),
    )
    const intervalUs = fields.get('interval')
    this.heard.push({
      atUs: Math.floor(this.time.nowUs),
      by,
      kind: found[0]?.feedback.kind as string,
      pausedUntilUs: Number(fields.get('pausedUntil') ?? 0),
      probe: fields.get('probe'),
      intervalUs: intervalUs === undefined ? undefined : Number(intervalUs),
    })
  }

  override(atUs: number, changes: ShapeOverride, ttlMs?: number): void {
    this.time.at(atUs, () => void this.#admin.override(encodeOverride(changes), 'test', 'test', ttlMs))
  }

  pause(atUs: number, untilUs: number): void {
    this.time.at(atUs, () => void this.#admin.pause({ kind: 'until', ms: untilUs / 1000, reason: 'test' }))
  }

  /** The downstream asks for a pause, or for a lower rate, for a time. */
  said(atUs: number, rate: RateInput | undefined, ttlMs: number): void {
    const told = { scope: 'queue', source: 'test', reason: 'test' }
    const feedback = rate
      ? { ...told, kind: 'slow', rate, ttlMs }
      : { ...told, kind: 'pause', forMs: ttlMs, hard: false }
    const request = { found: [{ feedback }], sentUs: atUs, by: 'test', adapt: undefined, oks: 0 }
    const encoded = JSON.stringify({ ...JSON.parse(encodeFeedbackRequest(request as never)), jitter: 0 })
    this.time.at(
      atUs,
      () => void applyFeedback(this.#admin, encoded).catch((error: unknown) => this.errors.push(error)),
    )
  }

  /** Another run of Redis begins: state may be lost. */
  restart(atUs: number): void {
    const { client } = this.redis.scripts
    const key = `${this.redis.world.prefix}virtual-run`
    this.time.at(atUs, () => void this.time.real(client.set(key, atUs.toString(16))))
  }

  clearPause(atUs: number): void {
    this.time.at(atUs, () => void this.#admin.pause({ kind: 'clear' }))
  }

  /** Runs the fleets of one world until all their jobs have ended, or until a time, µs. */
  static async run(fleets: readonly Fleet[], untilUs: number): Promise<void> {
    const ended = () => fleets.every((fleet) => fleet.ended === fleet.jobs.length)
    await (fleets[0] as Fleet).time.run(() => ended() || fleets.some((fleet) => fleet.#isWrong), untilUs)
    for (const { errors } of fleets.map((fleet) => fleet.#end())) if (errors[0]) throw errors[0]
  }

  get #isWrong(): boolean {
    return this.errors.length > 0 || this.redis.calls > MOST_CALLS + MOST_CALLS_PER_JOB * this.jobs.length
  }

  #end(): this {
    for (const worker of this.#workers) worker.die()
    return this
  }

  waitForMarker(worker: FleetWorker): void {
    this.#marker.push(worker)
    this.serveMarker()
  }

  leaveMarker(worker: FleetWorker): void {
    const at = this.#marker.indexOf(worker)
    if (at >= 0) this.#marker.splice(at, 1)
  }

  /** Gives each marker in the set to the worker that has waited longest. */
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
      const { cost, costs, priority = 0, group, keys } = this.jobs[number] as Waiting
      const opts = JSON.stringify({
        ...(cost === 1 && !costs ? {} : { cost, costs }),
        ...(group === undefined ? {} : { group: { id: group } }),
        ...(keys && { keys }),
      })
      const fields = {
        name: 'job',
        data: '{}',
        opts,
        timestamp: Math.floor(this.time.nowUs / 1000),
        priority: String(priority),
      }
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
