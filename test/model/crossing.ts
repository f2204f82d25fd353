import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import { encodeRate } from '../../src/limits/schedule.ts'
import { gridIntervalUs, type RateInput } from '../../src/rate.ts'
import type { Shape, ShapeOverride } from '../../src/shape/shape.ts'
import { type Combination, type Event, SHARED } from './combination.ts'
import { CHECKS_UNTIL_FOUND, type Departed, Fleet, type Lost } from './fleet.ts'
import { type Change, fastestOf, type Holds, Schedule, type Waiting } from './schedule.ts'
import { type VirtualScripts, VirtualWorld } from './virtual-redis.ts'

const DEFAULT_HORIZON_US = 50_000
const CALLS_PER_JOB = 3
const CALLS_PER_WORKER = 8
/** Departures later than this, such as those of a later day, are not waited for. */
const LONGEST_RUN_US = 12 * 3_600_000_000
/** Longest sleep of a worker that may have missed a wake-up, and of any worker. As in src/worker/ask-schedule.ts. */
const LONGEST_DEAF_US = 10_000_000
const LONGEST_SLEEP_US = 60_000_000

/** A granted job, whether it started or not. */
type Granted = Pick<Departed, 'number' | 'slotUs' | 'grantedUs'>

/** One combination: run by a fleet, and compared with its schedule. */
export class Crossing {
  readonly combination: Combination
  readonly #fleet: Fleet
  readonly #beside: Crossing | undefined

  constructor(base: string, scripts: VirtualScripts, combination: Combination, world?: VirtualWorld) {
    const { seed, jobs, startUs, locks, beside, answers } = combination
    const shared = world ?? new VirtualWorld(base, scripts, startUs)
    const events = combination.events.map((event) =>
      event.sets ? { ...event, sets: sharedBy(shared, event.sets) } : event,
    )
    this.combination = { ...combination, shape: sharedBy(shared, combination.shape), events }
    this.#fleet = new Fleet(base, shared, { jobs, startUs, uniform: randomOf(seed).uniform, locks, answers })
    this.#beside =
      beside && new Crossing(`${base}beside:`, scripts, { seed: seed + 1, startUs, events: [], ...beside }, shared)
  }

  /** @returns a description of the failure, if any */
  async check(): Promise<string | undefined> {
    const both = this.#beside ? [this, this.#beside] : [this]
    for (const one of both) await one.#begin()
    await Fleet.run(
      both.map((one) => one.#fleet),
      Math.max(...both.map((one) => one.#untilUs(both.length))),
    )
    for (const one of both) {
      const others = both.filter((other) => other !== one)
      const failure = one.#failure(others)
      if (failure)
        return `${one === this ? '' : 'beside: '}${failure}\n  ${JSON.stringify(both.map((side) => side.#story()))}`
    }
    return undefined
  }

  async #begin(): Promise<void> {
    const { shape, workers, events } = this.combination
    const fleet = this.#fleet
    await fleet.begin(shape, workers)
    for (const { kind, atUs, pausedUntilUs = 0, holds, ttlMs = 0, sets = {} } of events) {
      if (kind === 'pause') fleet.pause(atUs, pausedUntilUs)
      else if (kind === 'clearPause') fleet.clearPause(atUs)
      else if (kind === 'said') fleet.said(atUs, holds?.rate as RateInput, ttlMs)
      else if (kind === 'override') fleet.override(atUs, sets, ttlMs || undefined)
    }
  }

  /** The latest end of the run, µs. @param queues how many queues share the limits */
  #untilUs(queues: number): number {
    const { startUs, jobs } = this.combination
    const lastsUs = (this.#dueUs(jobs, [], []).at(-1) as number) - startUs
    return startUs + (queues + 0.5) * lastsUs + 60e6 + this.#untilFoundUs * this.#kills.length
  }

  #failure(others: readonly Crossing[]): string | undefined {
    const departed = [...this.#fleet.departed].sort(bySlot)
    const granted = [...this.#fleet.departed, ...this.#unstarted].sort(bySlot)
    const taken = others.flatMap((other) => other.#taken).sort((one, other) => one.atUs - other.atUs)
    const due = this.#dueUs(this.#jobsAsLost(granted), taken, others)
    return (
      this.#wrong(departed, due.length - this.#unstarted.length) ??
      this.#forfeited() ??
      this.#misheard() ??
      this.#above(departed, taken) ??
      (others.every((other) => this.#isLeftBy(other)) ? this.#below(granted, due, others) : undefined) ??
      this.#busy(this.#fleet)
    )
  }

  /**
   * Whether this queue has to use everything that the other one leaves, since only the shared limit holds it. Not
   * checked where jobs of the other one went back, were lost or arrive over time: then slots granted ahead to it hold
   * up this queue repeatedly.
   */
  #isLeftBy(other: Crossing): boolean {
    const { events, workers, jobs } = other.combination
    const steady = events.length === 0 && jobs.every(({ atUs, fails }) => atUs === undefined && !fails)
    const stay = workers.every(({ diesAfterUs, leavesAfterUs, killedAfterUs }) =>
      [diesAfterUs, leavesAfterUs, killedAfterUs].every((us) => us === undefined),
    )
    return this.#isLone && (other.#isLone || (steady && stay && other.#fleet.givenBack === 0))
  }

  get #isLone(): boolean {
    const { shape } = this.combination
    return !shape.rate && shape.limits?.length === 1
  }

  /** What another queue sees of this one. */
  get #taken(): Change[] {
    return this.#fleet.departed.map(({ slotUs }) => ({ atUs: slotUs, takes: { [SHARED]: 1 } }))
  }

  /** Scripts sent so far. */
  get calls(): number {
    return this.#fleet.redis.calls
  }

  /** When workers are killed, µs. */
  get #kills(): number[] {
    const { workers, startUs } = this.combination
    return workers.flatMap(({ killedAfterUs }) => (killedAfterUs === undefined ? [] : startUs + killedAfterUs))
  }

  /** The longest time until the jobs of a killed worker are found. */
  get #untilFoundUs(): number {
    const { lockMs, stalledMs } = this.#fleet.locks
    return (lockMs + CHECKS_UNTIL_FOUND * stalledMs) * 1000 + 3 * this.#roundTripUs + 10_000
  }

  /** Jobs granted to a worker that was killed before it could start them: their slots are forfeited. */
  get #unstarted(): { number: number; slotUs: number; grantedUs: number }[] {
    const unstarted = this.#fleet.lost.filter(({ started }) => !started)
    return unstarted.map(({ number, grant }) => ({ number, slotUs: grant.slotUs, grantedUs: grant.atUs }))
  }

  /** The jobs, each with the grants that it lost to kills: how many depends on timing, not on the schedule. */
  #jobsAsLost(granted: readonly Granted[]): readonly Waiting[] {
    const { lost } = this.#fleet
    if (lost.length === 0) return this.combination.jobs
    const backUs = (number: number, grantedUs: number) =>
      lost.find((one: Lost) => one.number === number && one.grant.atUs === grantedUs)?.foundUs
    const losses = new Map<number, (number | undefined)[]>()
    for (const { number, grantedUs } of [...granted].sort((one, other) => one.grantedUs - other.grantedUs))
      losses.set(number, [...(losses.get(number) ?? []), backUs(number, grantedUs)])
    return this.combination.jobs.map((job, number) => ({ ...job, losses: losses.get(number) }))
  }

  /** The events of the queue, and the changes by feedback reports, at the times at which Redis applied them. */
  get #changes(): readonly Event[] {
    return [...this.combination.events, ...this.#heard]
  }

  get #heard(): Event[] {
    const { rate, burst } = this.combination.shape
    let pausedUs = 0
    let intervalUs = rate === undefined ? undefined : intervalOf(rate)
    let probed = false
    return this.#fleet.heard.flatMap(({ kind, atUs, pausedUntilUs, probe, intervalUs: nowUs }): Event[] => {
      const armed = kind === 'pause' && probe?.startsWith('armed')
      const over = probed && probe === undefined
      const change: Event = {
        ...{ kind: 'said', atUs, tightens: (nowUs ?? 0) > (intervalUs ?? 0) },
        ...(pausedUntilUs > pausedUs ? { pausedUntilUs } : {}),
        ...(armed || over ? { probes: !over } : {}),
        ...(nowUs === intervalUs || nowUs === undefined ? {} : { holds: { rate: exactRate(nowUs), burst } }),
      }
      ;[pausedUs, intervalUs, probed] = [pausedUntilUs, nowUs, probe !== undefined]
      return change.pausedUntilUs || change.holds || armed || over ? [change] : []
    })
  }

  /**
   * Checks that a pause lasts until the time given by the downstream, and that the rate drops by at most the configured
   * factor and never rises above the declared one.
   */
  #misheard(): string | undefined {
    const { answers, shape } = this.combination
    const least = shape.rate ? intervalOf(shape.rate) : 0
    let [pausedUs, beforeUs] = [0, least]
    for (const { kind, atUs, pausedUntilUs, intervalUs = 0 } of this.#fleet.heard) {
      const untilUs = kind === 'pause' ? Math.max(pausedUs, atUs + (answers?.forMs ?? 0) * 1000) : pausedUs
      if (pausedUntilUs !== untilUs) return `paused until ${pausedUntilUs}, where ${untilUs} was said`
      const most = answers?.adapt && kind === 'pause' ? beforeUs / answers.adapt.decrease : beforeUs
      if (intervalUs < least || intervalUs > most + 1) return `an interval of ${intervalUs} µs after ${beforeUs} µs`
      ;[pausedUs, beforeUs] = [pausedUntilUs, intervalUs]
    }
    return undefined
  }

  /** Checks that a kill forfeits at most the slots granted ahead, and that its jobs are found in time. */
  #forfeited(): string | undefined {
    const { shape, jobs, events } = this.combination
    const late = this.#fleet.lost.find(({ grant, foundUs }) => foundUs - grant.atUs > this.#untilFoundUs)
    if (late) return `job ${late.number} was found ${(late.foundUs - late.grant.atUs) / 1000} ms after it was granted`
    if (events.some(({ holds }) => holds)) return undefined
    const units = this.#unstarted.reduce((sum, { number }) => sum + (jobs[number] as Waiting).cost, 0)
    const most = this.#kills.length * (mostWithin(shape, this.#horizonUs + this.#roundTripUs) + 1)
    return units > most ? `${units} units were forfeited, where ${most.toFixed(1)} may be` : undefined
  }

  get #roundTripUs(): number {
    return Math.ceil(Math.max(...this.combination.workers.map(({ roundTripUs }) => roundTripUs)) * 1.2)
  }

  /** How far ahead slots are granted, including those of queues that share a limit, µs. */
  #reachUs(others: readonly Crossing[]): number {
    return Math.max(this.#horizonUs, ...others.map((other) => other.#horizonUs))
  }

  get #horizonUs(): number {
    return Math.max((this.combination.shape.horizonMs ?? 0) * 1000 || DEFAULT_HORIZON_US, 2 * this.#roundTripUs)
  }

  #holds(places: number): Holds {
    const { rate, burst, limits, concurrency = Number.POSITIVE_INFINITY } = this.combination.shape
    return { rate, burst, limits, places: Math.min(places, concurrency) }
  }

  /** The highest number of jobs that were granted ahead of their slots at one time. */
  get #mostGranted(): number {
    const granted = this.#fleet.departed
    return Math.max(0, ...granted.map(({ grantedUs: us }) => granted.filter((one) => isAhead(one, us)).length))
  }

  /** The same, where the queue's own rate or another limit spaces them. */
  get #mostAhead(): number {
    return this.#isLone ? 0 : this.#mostGranted
  }

  /**
   * Extra time for a probe under a daily limit, µs: a probe that has to wait for midnight is a different job than in
   * the schedule, and the other jobs wait for its result.
   */
  get #probedUs(): number {
    const daily = this.combination.shape.limits?.some(({ align }) => align === 'day')
    if (!daily || !this.#heard.some(({ probes }) => probes)) return 0
    return Math.max(...this.combination.jobs.map(({ runsUs }) => runsUs)) + 2 * this.#roundTripUs
  }

  /**
   * How many jobs may be behind the schedule: one plus 0.1 %, plus those granted ahead of a change or lost with a
   * worker.
   */
  get #allowed(): number {
    const { jobs, events } = this.combination
    const changes = events.filter(({ holds }) => holds).length
    const ahead = 1 + 3 * Math.max(this.#perUs * this.#horizonUs, changes > 0 ? this.#mostGranted : 0)
    const heard = this.#heard.filter(({ holds }) => holds)
    const slower = heard.filter(({ tightens }) => tightens).length
    const most = Math.max(...jobs.map(({ cost }) => cost))
    return (
      1 +
      Math.floor(jobs.length / 1000) +
      Math.ceil(ahead * (changes + slower) + heard.length + (ahead + most) * (this.#deaths + this.#leaves)) +
      (events.length + this.#leaves + this.#fleet.heard.length > 0 ? this.#fleet.givenBack : 0)
    )
  }

  /** The rate of the slowest of rate and limits, units per µs; overrides at most triple it. */
  get #perUs(): number {
    const { rate, limits = [] } = this.combination.shape
    const perUs = [{ rate, pool: [''] }, ...limits].flatMap(({ rate: one, pool = [''] }) => {
      if (one === undefined) return []
      const { limit, periodMs } = fastestOf(one)
      return (pool.length * limit) / periodMs / 1000
    })
    return perUs.length > 0 ? Math.min(...perUs) : 0
  }

  /** The first slot, µs. */
  get #firstUs(): number {
    return Math.min(...this.#fleet.departed.map(({ slotUs }) => slotUs))
  }

  get #deaths(): number {
    return this.combination.workers.filter(({ diesAfterUs }) => diesAfterUs !== undefined).length
  }

  get #leaves(): number {
    return this.combination.workers.filter(({ leavesAfterUs }) => leavesAfterUs !== undefined).length
  }

  /** The expected number of departures: one per job, and one more for each failure. */
  get #departures(): number {
    return this.combination.jobs.reduce((sum, { fails = 0 }) => sum + 1 + fails, 0)
  }

  /**
   * The latest departures of the jobs: counted from when every worker has started, and with each place taken for as
   * long as a worker needs to fill it again.
   */
  #dueUs(jobs: readonly Waiting[], taken: readonly Change[], others: readonly Crossing[]): number[] {
    const { workers, startUs } = this.combination
    // A worker that leaves is replaced before, and one that is killed soon after.
    const stay = workers.filter(
      ({ leavesAfterUs, killedAfterUs }) => leavesAfterUs === undefined && killedAfterUs === undefined,
    )
    const places = stay.reduce((sum, { concurrency }) => sum + concurrency, 0)
    const readyUs = startUs + 20_000 + 2 * this.#roundTripUs
    // With another queue, the first charge, of either, opens the windows in which the charges of both are counted.
    const opensUs = Math.min(readyUs, others.length > 0 ? this.#firstUs : readyUs)
    const schedule = new Schedule(this.#holds(places), Math.min(opensUs, taken[0]?.atUs ?? opensUs))
    const heldUs = this.#reachUs(others) + 3 * this.#roundTripUs + 10_000
    const heardUs = 3 * this.#roundTripUs + 5000
    // A worker that waits for a job, or sleeps through a pause that is cleared, takes this long to be notified and to
    // ask.
    const slow = (job: Waiting, i: number) => ({
      ...job,
      runsUs: job.runsUs + heldUs,
      knownAfterUs: job.runsUs + heldUs + heardUs,
      atUs: Math.max(i === 0 ? opensUs : readyUs, (job.atUs ?? 0) + heardUs),
      backoffUs: (job.backoffUs ?? 0) + heardUs,
      losses: job.losses?.map((us) => us && us + heardUs),
    })
    const changes = [...heardIn(this.#changes, heardUs), ...taken].sort((one, other) => one.atUs - other.atUs)
    return schedule.departures(jobs.map(slow), changes).filter((us) => us < startUs + LONGEST_RUN_US)
  }

  #wrong(departed: readonly Departed[], due: number): string | undefined {
    const { jobs } = this.combination
    if (departed.length === 0) return 'nothing departed'
    const times = new Map<number, number>()
    for (const { number } of departed) times.set(number, (times.get(number) ?? 0) + 1)
    const again = (number: number) => this.#fleet.lost.filter((one) => one.started && one.number === number).length
    const often = jobs.findIndex(({ fails = 0 }, number) => (times.get(number) ?? 0) > 1 + fails + again(number))
    if (often >= 0) return `job ${often} departed ${times.get(often)} times`
    // Jobs that are still behind at midnight are late by a day.
    const daily = this.combination.shape.limits?.some(({ align }) => align === 'day')
    const needed = daily ? due - this.#allowed : due
    if (departed.length < needed) return `only ${departed.length} of ${due} departures`
    const overtaken = this.#fleet.givenBack > 0 ? undefined : this.#overtaken(departed)
    if (overtaken) return overtaken
    const early = departed.find(({ slotUs, startedUs }) => startedUs < slotUs)
    return early && `job ${early.number} started ${early.slotUs - early.startedUs} µs before its slot`
  }

  /**
   * Jobs that wait from the start leave in order. Not checked with events, since jobs may have been granted before a
   * change, nor of groups, which take turns.
   */
  #overtaken(departed: readonly Departed[]): string | undefined {
    const { jobs, events } = this.combination
    if (events.length + this.#fleet.lost.length > 0) return undefined
    if (jobs.some(({ atUs, fails, group }) => atUs !== undefined || fails || group !== undefined)) return undefined
    let [last, lastUs] = [-1, 0]
    for (const { number, slotUs } of departed) {
      if (number < last && slotUs > lastUs) return `job ${number} departed after job ${last}`
      if (number > last) [last, lastUs] = [number, slotUs]
    }
    return undefined
  }

  /** Replays each departure in the models: it has to conform at the time for which it was granted. */
  #above(departed: readonly Departed[], taken: readonly Change[]): string | undefined {
    const { jobs } = this.combination
    const firstUs = Math.min((departed[0] as Departed).slotUs, taken[0]?.atUs ?? Number.POSITIVE_INFINITY)
    const schedule = new Schedule(this.#holds(Number.POSITIVE_INFINITY), firstUs)
    // After a forfeited slot, the fraction of a µs by which the next slot was before its reported whole µs is unknown.
    if (this.#fleet.givenBack + this.#unstarted.length > 0) schedule.roundingUs = Math.max(1, schedule.roundingUs)
    const [pending, toTake] = [[...this.#changes], [...taken]]
    for (const { number, slotUs, grantedUs, members } of departed) {
      for (;;) {
        const [event, take] = [pending[0], toTake[0]]
        const isEvent = event !== undefined && isBefore(event, grantedUs) && !(take && take.atUs < event.atUs)
        if (!isEvent && !(take && take.atUs < slotUs)) break
        schedule.apply((isEvent ? pending : toTake).shift() as Change)
      }
      schedule.moveTo(slotUs)
      const job = { ...(jobs[number] as Waiting) }
      const earliestUs = schedule.slotUs(job, members)
      if (earliestUs > slotUs + Math.ceil(schedule.roundingUs))
        return `job ${number} departed ${earliestUs - slotUs} µs before it conformed`
      schedule.depart(job, slotUs, members)
    }
    return undefined
  }

  /** At any time, at least as many jobs have left as the schedule requires, except those that may be behind. */
  #below(departed: readonly Granted[], due: readonly number[], others: readonly Crossing[]): string | undefined {
    const slotOf = (k: number) => (departed[k] as Granted).slotUs
    // Slots granted ahead to another queue count in this one's windows before their time, and slots that it gave back
    // are not refunded.
    const allowed = others.reduce((sum, other) => sum + other.#mostAhead + other.#fleet.givenBack, this.#allowed)
    // Slots granted ahead to another queue, which is held by its own rate, may make this one wait for this long.
    const aheadUs = others.some((other) => !other.#isLone) ? this.#reachUs(others) : 0
    // Workers learn of some slots of the same moment only from other workers, and never from a dead one.
    const heardUs = 2 * this.#roundTripUs + aheadUs + this.#deaths * LONGEST_DEAF_US + this.#probedUs
    const killed = (us: number) => this.#kills.filter((killedUs) => killedUs <= us).length
    const lateBy = (k: number) =>
      slotOf(k) - (due[k + allowed] ?? Number.POSITIVE_INFINITY) - heardUs - killed(slotOf(k)) * LONGEST_DEAF_US
    const late = departed.findIndex((_, k) => lateBy(k) > 0)
    if (late < 0) return undefined
    const worst = Math.max(...departed.map((_, k) => lateBy(k)))
    const after = ((slotOf(late) - this.combination.startUs) / 1e6).toFixed(1)
    return `departure ${late}, after ${after} s, was ${(lateBy(late) / 1000).toFixed(1)} ms late; at most ${(worst / 1000).toFixed(1)} ms`
  }

  /**
   * Checks that a job takes few calls, however many workers there are. Each worker asks a few times until it has
   * settled, and after its longest sleep.
   */
  #busy({ redis, time }: Fleet): string | undefined {
    const { jobs, workers, events, startUs, shape } = this.combination
    // A worker that frees a place wakes another one for it.
    const places = shape.concurrency !== undefined || shape.limits?.some(({ algorithm }) => algorithm === 'concurrency')
    const { calls } = redis
    if (events.length + this.#kills.length > 0 || jobs[0]?.atUs !== undefined) return undefined
    if (isShared(shape) || this.combination.answers) return undefined
    const sleeps = (time.nowUs - startUs) / (this.#fleet.mayDie ? LONGEST_DEAF_US : LONGEST_SLEEP_US)
    // As with BullMQ's own workers: all idle ones ask when the next delayed job is due, since any one of them might
    // have died.
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
      killed: this.#kills,
      lost: this.#fleet.lost.length,
      answers: this.combination.answers,
    }
  }
}

/** With this many at once, Redis and this process are equally busy. */
const TOGETHER = 8

/**
 * Runs so many combinations, those of a seed and the seeds behind it.
 * @param of undefined: the seed has none
 * @returns descriptions of the failures
 */
export async function failuresOf(
  scripts: VirtualScripts,
  prefix: string,
  { seed, count, of }: { seed: number; count: number; of: (seed: number) => Combination | undefined },
): Promise<string[]> {
  const failures: string[] = []
  let [next, begun] = [seed, 0]
  const runOn = async () => {
    while (begun < count) {
      const own = next++
      const combination = of(own)
      if (!combination) continue
      begun += 1
      const base = `${prefix}:c${own}:`
      const failure = await new Crossing(base, scripts, combination).check()
      if (failure) {
        failures.push(`MODEL_SEED=${own} MODEL_COMBINATIONS=1: ${failure}`)
        // Printed at once, so that a long run that is stopped has shown what it found.
        process.stderr.write(`${failures.at(-1)}\n`)
      }
      const keys = await scripts.client.keys(`${base}*`)
      if (keys.length > 0) await scripts.client.unlink(...keys)
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, runOn))
  return failures
}

/** The most that rate and limits allow to leave within a time, µs; infinite where neither holds. */
function mostWithin({ rate, burst = 1, limits = [] }: Shape, us: number): number {
  const perUs = (input: NonNullable<Shape['rate']>) => fastestOf(input).limit / fastestOf(input).periodMs / 1000
  const most = limits.flatMap((limit) => {
    if (limit.rate === undefined || limit.unit !== undefined) return []
    // At the boundary of two windows, the units of both may leave.
    const [units] = encodeRate(limit.rate)
    return (limit.pool?.length ?? 1) * ((limit.burst ?? 2 * units) + us * perUs(limit.rate))
  })
  return Math.min(rate === undefined ? Number.POSITIVE_INFINITY : burst + us * perUs(rate), ...most)
}

function isShared({ limits = [] }: Shape): boolean {
  return limits.some(({ shared }) => shared)
}

/** Puts the keys of shared limits under the prefix of the world. */
function sharedBy<T extends Pick<ShapeOverride, 'limits'>>({ prefix }: VirtualWorld, fields: T): T {
  const { limits } = fields
  if (!limits?.some(({ shared }) => shared)) return fields
  return { ...fields, limits: limits.map((limit) => (limit.shared ? { ...limit, prefix } : limit)) }
}

function isAhead({ grantedUs, slotUs }: Granted, us: number): boolean {
  return grantedUs <= us && slotUs > us
}

function bySlot(one: { slotUs: number }, other: { slotUs: number }): number {
  return one.slotUs - other.slotUs
}

/** On the grid of the bucket, as lua/shape/shapes.lua stores it, µs. */
function intervalOf(rate: NonNullable<Shape['rate']>): number {
  const { limit, periodMs } = fastestOf(rate)
  return gridIntervalUs(limit, periodMs)
}

/** A rate with exactly that interval, which is on the grid. */
function exactRate(intervalUs: number): RateInput {
  return { limit: 1_024_000, period: intervalUs * 1024 }
}

/** The events at the times by which sleeping workers have heard of them; a later event replaces what an earlier one set. */
function heardIn(events: readonly Event[], heardUs: number): Event[] {
  let replacedUs = Number.POSITIVE_INFINITY
  const latestFirst = events.toReversed().map((event) => {
    const isKnown = event.pausedUntilUs || event.kind === 'ends' || event.tightens
    const atUs = event.atUs + (isKnown ? 0 : heardUs)
    if (!event.holds) return { ...event, atUs }
    replacedUs = Math.min(replacedUs, atUs)
    return { ...event, atUs: replacedUs }
  })
  return latestFirst.reverse()
}

/**
 * Whether an event came before a grant. At the same moment, the grant was first if the event would have prevented it.
 */
function isBefore({ atUs, pausedUntilUs, tightens }: Event, grantedUs: number): boolean {
  return atUs < grantedUs || (atUs === grantedUs && !pausedUntilUs && !tightens)
}
