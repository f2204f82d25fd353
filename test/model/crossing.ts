import { parseRate } from '../../src/rate.ts'
import { randomOf } from '../../src/simulate/random.ts'
import type { Combination } from './combination.ts'
import { type Departed, Fleet } from './fleet.ts'
import { type Holds, Schedule, type Waiting } from './schedule.ts'
import type { VirtualScripts } from './virtual-redis.ts'

const DEFAULT_HORIZON_US = 50_000
const CALLS_PER_JOB = 3
const CALLS_PER_WORKER = 8
/** What is left for another day is not waited for. */
const LONGEST_RUN_US = 12 * 3_600_000_000
/** As in src/ask-schedule.ts. */
const LONGEST_SLEEP_US = 10_000_000

/** One combination: run by a fleet, and compared with its schedule. */
export class Crossing {
  readonly combination: Combination
  readonly #fleet: Fleet

  constructor(base: string, scripts: VirtualScripts, combination: Combination) {
    this.combination = combination
    const { seed, jobs, startUs } = combination
    this.#fleet = new Fleet(base, scripts, { jobs, startUs, uniform: randomOf(seed).uniform })
  }

  /** @returns what is wrong, if anything */
  async check(): Promise<string | undefined> {
    const { combination } = this
    const { shape, workers, events } = combination
    const fleet = this.#fleet
    await fleet.begin(shape, workers)
    for (const { kind, atUs, pausedUntilUs = 0, holds, ttlMs = 0, sets = {} } of events) {
      if (kind === 'pause') fleet.pause(atUs, pausedUntilUs)
      else if (kind === 'clearPause') fleet.clearPause(atUs)
      else if (kind === 'said') fleet.said(atUs, holds?.rate, ttlMs)
      else if (kind === 'override') fleet.override(atUs, sets, ttlMs || undefined)
    }
    const due = this.#dueUs().filter((us) => us < combination.startUs + LONGEST_RUN_US)
    const lastUs = due.at(-1) as number
    await fleet.run(lastUs + 0.5 * (lastUs - combination.startUs) + 60e6)
    const departed = [...fleet.departed].sort((one, other) => one.slotUs - other.slotUs)
    const failure =
      this.#wrong(departed, due.length) ?? this.#above(departed) ?? this.#below(departed, due) ?? this.#busy(fleet)
    return failure && `${failure}\n  ${JSON.stringify(this.#story())}`
  }

  get #roundTripUs(): number {
    return Math.ceil(Math.max(...this.combination.workers.map(({ roundTripUs }) => roundTripUs)) * 1.2)
  }

  get #horizonUs(): number {
    return Math.max((this.combination.shape.horizonMs ?? 0) * 1000 || DEFAULT_HORIZON_US, 2 * this.#roundTripUs)
  }

  #holds(places: number): Holds {
    const { rate, burst, limits, concurrency = Number.POSITIVE_INFINITY } = this.combination.shape
    return { rate, burst, limits, places: Math.min(places, concurrency) }
  }

  /** How many jobs may be behind the schedule: one, or 0.1 %, and what was granted ahead of a change or lost with a worker. */
  get #allowed(): number {
    const { jobs, events } = this.combination
    const ahead = 1 + 3 * this.#perUs * this.#horizonUs
    const changes = events.filter(({ holds }) => holds).length
    const most = Math.max(...jobs.map(({ cost }) => cost))
    return (
      1 +
      Math.floor(jobs.length / 1000) +
      Math.ceil(ahead * changes + (ahead + most) * (this.#deaths + this.#leaves)) +
      (events.length + this.#leaves > 0 ? this.#fleet.givenBack : 0)
    )
  }

  /** What the slowest of rate and limits lets leave, units per µs; overrides make it three times as much at most. */
  get #perUs(): number {
    const { rate, limits = [] } = this.combination.shape
    const rates = [rate, ...limits.map((limit) => limit.rate)].filter((one) => one !== undefined)
    const perUs = rates.map(parseRate).map(({ limit, periodMs }) => limit / periodMs / 1000)
    return perUs.length > 0 ? Math.min(...perUs) : 0
  }

  get #deaths(): number {
    return this.combination.workers.filter(({ diesAfterUs }) => diesAfterUs !== undefined).length
  }

  get #leaves(): number {
    return this.combination.workers.filter(({ leavesAfterUs }) => leavesAfterUs !== undefined).length
  }

  /** How often a job is to depart: once, and again each time that it fails. */
  get #departures(): number {
    return this.combination.jobs.reduce((sum, { fails = 0 }) => sum + 1 + fails, 0)
  }

  /** When the jobs have to have left: every worker is there, and each place costs what a worker needs to fill it. */
  #dueUs(): number[] {
    const { jobs, workers, startUs, events } = this.combination
    // Who leaves is replaced before.
    const stay = workers.filter(({ leavesAfterUs }) => leavesAfterUs === undefined)
    const places = stay.reduce((sum, { concurrency }) => sum + concurrency, 0)
    const schedule = new Schedule(this.#holds(places), startUs + 20_000 + 2 * this.#roundTripUs)
    const heldUs = this.#horizonUs + 3 * this.#roundTripUs + 10_000
    const heardUs = 3 * this.#roundTripUs + 5000
    // Who waits for a job, or sleeps through a pause that is cleared, hears of it and asks.
    const slow = (job: Waiting) => ({
      ...job,
      runsUs: job.runsUs + heldUs,
      atUs: (job.atUs ?? 0) + heardUs,
      backoffUs: (job.backoffUs ?? 0) + heardUs,
    })
    const heard = events.map((event) => ({
      ...event,
      atUs: event.atUs + (event.pausedUntilUs || event.kind === 'ends' || event.tightens ? 0 : heardUs),
    }))
    return schedule.departures(jobs.map(slow), heard)
  }

  #wrong(departed: readonly Departed[], due: number): string | undefined {
    const { jobs } = this.combination
    if (departed.length === 0) return 'nothing departed'
    const times = new Map<number, number>()
    for (const { number } of departed) times.set(number, (times.get(number) ?? 0) + 1)
    const often = jobs.findIndex(({ fails = 0 }, number) => (times.get(number) ?? 0) > 1 + fails)
    if (often >= 0) return `job ${often} departed ${times.get(often)} times`
    // Those that may be behind at midnight are behind by a day.
    const daily = this.combination.shape.limits?.some(({ align }) => align === 'day')
    const needed = daily ? due - this.#allowed : due
    if (departed.length < needed) return `only ${departed.length} of ${due} departures`
    const overtaken = this.#fleet.givenBack > 0 ? undefined : this.#overtaken(departed)
    if (overtaken) return overtaken
    const early = departed.find(({ slotUs, startedUs }) => startedUs < slotUs)
    return early && `job ${early.number} started ${early.slotUs - early.startedUs} µs before its slot`
  }

  /** Jobs that wait from the start leave in their order, but for those that were granted before a change. */
  #overtaken(departed: readonly Departed[]): string | undefined {
    const { jobs, events } = this.combination
    if (events.length > 0 || jobs.some(({ atUs, fails }) => atUs !== undefined || fails)) return undefined
    let [last, lastUs] = [-1, 0]
    for (const { number, slotUs } of departed) {
      if (number < last && slotUs > lastUs) return `job ${number} departed after job ${last}`
      if (number > last) [last, lastUs] = [number, slotUs]
    }
    return undefined
  }

  /** Each departure, replayed in the models: it has to conform when it was granted for. */
  #above(departed: readonly Departed[]): string | undefined {
    const { jobs, events } = this.combination
    const schedule = new Schedule(this.#holds(Number.POSITIVE_INFINITY), (departed[0] as Departed).slotUs)
    const pending = [...events]
    for (const { number, slotUs, grantedUs } of departed) {
      while (pending[0] && pending[0].atUs <= grantedUs) schedule.apply(pending.shift() as never)
      schedule.moveTo(slotUs)
      const job = { ...(jobs[number] as Waiting) }
      const earliestUs = schedule.slotUs(job)
      if (earliestUs > slotUs + Math.ceil(schedule.roundingUs) + schedule.hastened * this.#horizonUs)
        return `job ${number} departed ${earliestUs - slotUs} µs before it conformed`
      schedule.depart(job, slotUs)
    }
    return undefined
  }

  /** At no time fewer have left than have to, but for those that may be behind. */
  #below(departed: readonly Departed[], due: readonly number[]): string | undefined {
    const slotOf = (k: number) => (departed[k] as Departed).slotUs
    const allowed = this.#allowed
    // Of slots of one moment some workers hear from others, and of a dead one they do not hear at all.
    const heardUs = 2 * this.#roundTripUs + this.#deaths * LONGEST_SLEEP_US
    const lateBy = (k: number) => slotOf(k) - (due[k + allowed] ?? Number.POSITIVE_INFINITY) - heardUs
    const late = departed.findIndex((_, k) => lateBy(k) > 0)
    if (late < 0) return undefined
    const worst = Math.max(...departed.map((_, k) => lateBy(k)))
    const after = ((slotOf(late) - this.combination.startUs) / 1e6).toFixed(1)
    return `departure ${late}, after ${after} s, was ${(lateBy(late) / 1000).toFixed(1)} ms late; at most ${(worst / 1000).toFixed(1)} ms`
  }

  /**
   * However many workers there are, a job costs few calls. Each worker asks some times until it finds its place, and after
   * its longest sleep.
   */
  #busy({ redis, time }: Fleet): string | undefined {
    const { jobs, workers, events, startUs, shape } = this.combination
    // Whoever gives back a place calls another worker to it.
    const places = shape.concurrency !== undefined || shape.limits?.some(({ algorithm }) => algorithm === 'concurrency')
    const { calls } = redis
    if (events.length > 0 || jobs[0]?.atUs !== undefined) return undefined
    const sleeps = (time.nowUs - startUs) / LONGEST_SLEEP_US
    // As BullMQ's own workers: all that are idle ask when the next delayed job is due, since one that died could not.
    const retries = this.#departures - jobs.length
    const perWorker = CALLS_PER_WORKER + sleeps + retries
    const most = (CALLS_PER_JOB + (places ? 1 : 0)) * this.#departures + perWorker * workers.length
    return calls > most ? `${calls} calls for ${jobs.length} jobs and ${workers.length} workers` : undefined
  }

  #story(): object {
    const { shape, workers, events, jobs } = this.combination
    const { runsUs, atUs } = jobs[0] as Waiting
    return {
      shape,
      workers: workers.length,
      first: workers[0],
      events,
      jobs: jobs.length,
      runsUs,
      come: atUs !== undefined,
      mixed: jobs.some(({ cost }) => cost !== 1),
      fails: jobs.some(({ fails }) => fails),
      prioritized: jobs.some(({ priority }) => priority),
      leave: this.#leaves,
    }
  }
}
