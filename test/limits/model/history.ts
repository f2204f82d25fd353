import type { Algorithm, LimitRule, LimitWire, SpreadRule } from '../../../src/limits/definition.ts'
import { encodeRule, isBucket } from '../../../src/limits/definition.ts'
import { encodeRate, isScheduled, type ScheduledRate } from '../../../src/limits/schedule.ts'
import { createRandom, type Random } from '../../../workers/demo/outbox/random.ts'
import type { Operation } from './replay.ts'

const START_US = 1_764_000_000_000_000
const DAY_US = 86_400_000_000
const DAY_MS = 86_400_000
/** The longest time that a full bucket may take to drain: 1.6 days. With it, no debt outgrows the doubles of GCRA. */
const MAX_DRAIN_US = 2 ** 37
const TICKS_PER_US = 1024
/** A departure of several jobs numbers their leases on. */
const LEASES_APART = 10
/** The same of a bucket whose rate follows the clock: what it does has to happen at one of the rates, and at another. */
const MAX_SCHEDULED_US = 2 ** 33
/** After a change of its schedule it may owe so much: several bursts. */
const MAX_SCHEDULED_OWED_US = 2 ** 35
/** One history of a bucket in so many has a rate that follows the clock. */
export const SCHEDULED = 5
/** How many charges may still be taken back. */
const REMEMBERED = 6
const ZONES = ['Europe/Berlin', 'America/New_York', 'Asia/Kolkata', 'Africa/Cairo', 'Atlantic/Azores', 'UTC']

/** Repeatable random operations on one key of one limit. */
export class History {
  readonly #random: Random
  readonly #algorithm: Algorithm
  readonly #takesSchedule: boolean
  #rule: SpreadRule
  #now = START_US
  #leases = 0
  /** The last that may have been charged. */
  readonly #charged: Operation[] = []
  /** The operation before, if it may have charged once. */
  #last: Operation | undefined

  constructor(algorithm: Algorithm, seed: number) {
    this.#random = createRandom(seed)
    this.#algorithm = algorithm
    this.#takesSchedule = seed % SCHEDULED === 0
    this.#rule = this.#newRule()
    this.#now += this.#random.between(0, 400 * DAY_US)
  }

  /** Whether it is a bucket whose rate follows the clock, at times. */
  get followsClock(): boolean {
    return this.#takesSchedule && isBucket(this.#algorithm)
  }

  get wire(): LimitWire {
    return encodeRule(this.#rule)
  }

  /**
   * Somebody declares other numbers: rate and burst of a bucket, the limit of the others.
   * @param owed units of a bucket that are to come back
   */
  changeRule(owed: number): void {
    let rule = this.#changedRule()
    // At the new rate it takes no longer to pay them either.
    while (owed * (encodeRule(rule).interval ?? 0) > mostOwedUs(rule)) rule = this.#changedRule()
    const { rate, burst, concurrency } = rule
    if (this.#rule.concurrency) this.#rule = { ...this.#rule, concurrency: concurrency as number }
    else if (this.#rule.burst && !this.#rule.align) this.#rule = { ...this.#rule, rate: rate!, burst: burst! }
    else this.#rule = { ...this.#rule, rate: { limit: this.#random.between(1, 60), period: this.#periodMs() } }
  }

  /** A rate that follows the clock may become a fixed one, and such a one another. */
  #changedRule(): SpreadRule {
    const { oneIn, between } = this.#random
    if (!this.followsClock) return this.#newRule()
    const rule: SpreadRule = { algorithm: this.#algorithm, ...this.#newSchedule() }
    if (oneIn(2)) return rule
    const [limit, period] = encodeRate(rule.rate)
    return { ...rule, rate: { limit: limit * between(1, 3), period } }
  }

  next(): Operation {
    const { oneIn, pick, between } = this.#random
    const last = this.#last
    this.#last = undefined
    if (last && oneIn(12)) {
      this.#now += between(0, Math.floor(this.#unitUs() / 2))
      return { verb: 'undo', now: this.#now, cost: last.cost as number, of: last }
    }
    this.#passTime()
    // What never starts is known soon, or late.
    if (this.#algorithm !== 'concurrency' && this.#charged.length > 0 && oneIn(8)) {
      return { verb: 'back', now: this.#now, of: pick([this.#charged.at(-1) as Operation, pick(this.#charged)]) }
    }
    const operation = this.#decision(this.#now)
    if (['take', 'reserve', 'depart', 'late'].includes(operation.verb)) this.#charged.push(operation)
    if (this.#charged.length > REMEMBERED) this.#charged.shift()
    if (this.#algorithm !== 'concurrency' && ['take', 'reserve', 'late'].includes(operation.verb))
      this.#last = operation
    return operation
  }

  #decision(now: number): Operation {
    const { oneIn, pick, between } = this.#random
    if (oneIn(300)) return { verb: 'lose', now }
    const verb = pick(['take', 'take', 'take', 'take', 'peek', 'reserve', 'depart', 'late', 'other'] as const)
    const cost = this.#cost()
    if (verb === 'other') return { now, ...this.#other(cost) }
    // Mostly in the order of their turns, now and then much later.
    if (verb === 'late' && !oneIn(3)) return { verb: 'peek', now, cost }
    const unit = this.#unitUs()
    const ahead = between(0, pick([0, 1, 50_000, unit, this.#fullUs()]))
    this.#leases += LEASES_APART
    // The slots of buckets lie between two microseconds.
    const part = verb === 'late' ? between(0, TICKS_PER_US - 1) / TICKS_PER_US : 0
    return { verb, now, cost, ahead: ahead + part, lease: this.#leases }
  }

  /** What is not asked for: penalties and rewards; leases that are extended or given back. */
  #other(cost: number): Pick<Operation, 'verb' | 'cost' | 'lease'> {
    const { pick, between } = this.#random
    if (this.#algorithm !== 'concurrency') return { verb: 'settle', cost: pick([cost, -cost, -cost]) }
    const lease = this.#leases - LEASES_APART * between(0, this.#rule.concurrency as number) + pick([0, 0, 1, 2])
    return { verb: pick(['extend', 'release', 'release']), cost: pick([1, 1, 1, cost]), lease }
  }

  #cost(): number {
    const { pick, between } = this.#random
    const quota = (this.wire.burst ?? this.wire.limit) as number
    const whole = pick([1, 1, 1, 1, between(1, quota), between(1, Math.ceil(quota / 4)), quota + between(0, 3)])
    if (this.#algorithm === 'concurrency') return whole
    // Of the log, the sums have to be exact.
    const parts = this.#algorithm === 'sliding-window-log' ? 64 : pick([64, 10, 7])
    return pick([whole, whole, whole, between(1, 2 * parts) / parts])
  }

  #newRule(): SpreadRule {
    const { between, pick } = this.#random
    const algorithm = this.#algorithm
    const few = pick([1, 2, 3, between(1, 10), between(1, 60)])
    if (algorithm === 'concurrency') return { algorithm, concurrency: few, leaseMs: pick([1, 20, 30_000, 300_000]) }
    const period = pick([1, 7, 1000, 1000, 60_000, 900_000, DAY_MS])
    if (this.followsClock) return { algorithm, ...this.#newSchedule() }
    if (algorithm === 'fixed-window') return this.#newFixedWindow(few, period)
    if (algorithm.startsWith('sliding')) return { algorithm, rate: { limit: few, period } }
    for (;;) {
      const limit = pick([between(1, 100), between(1, 5000), between(1, 1_000_000), between(1, 1000) / 8])
      const burst = pick([1, 1, 2, between(1, 10), between(1, 1000)])
      if ((period * 1000 * burst) / limit <= MAX_DRAIN_US) return { algorithm, rate: { limit, period }, burst }
    }
  }

  #newSchedule(): Pick<LimitRule, 'rate' | 'burst'> {
    const { between, pick, oneIn } = this.#random
    const [periodMs, burst] = [pick([1000, 60_000, 900_000]), pick([1, 1, 2, between(1, 20)])]
    const limit = Math.ceil((periodMs * 1000 * burst) / MAX_SCHEDULED_US) * pick([1, 1, 3, between(1, 50)])
    const rate = () =>
      pick<ScheduledRate['rate']>([0, { limit, period: periodMs }, { limit, period: periodMs * pick([2, 3, 7.5, 40]) }])
    const clock = (minute: number) =>
      `${String(Math.floor(minute / 60)).padStart(2, '0')}:${String(minute % 60).padStart(2, '0')}`
    const from = between(0, 1200)
    const to = between(from + 1, 1439)
    const days = pick(['mon-fri', 'mon-sun', 'sat,sun', 'tue'])
    const later = oneIn(2) ? [] : [{ days, from: clock(to), to: '24:00', rate: rate() }]
    const schedule = [{ days, from: clock(from), to: clock(to), rate: rate() }, ...later]
    return { rate: { schedule: [...schedule, { rate: { limit, period: periodMs } }], timeZone: pick(ZONES) }, burst }
  }

  #newFixedWindow(limit: number, period: number): SpreadRule {
    const { pick } = this.#random
    const align = pick(['epoch', 'epoch', 'first', 'day', 'week', 'month'] as const)
    if (align === 'epoch' || align === 'first') return { algorithm: 'fixed-window', rate: { limit, period }, align }
    const rule = { algorithm: 'fixed-window', rate: `${limit}/${align}`, align, timeZone: pick(ZONES) } as const
    if (!this.#takesSchedule) return rule
    const within = pick(['08:00-20:00', 'mon-fri 09:30-17:00', 'sat,sun 00:00-24:00', '23:00-24:00', undefined])
    const minRate = pick(['1/h', '1/min', undefined, undefined])
    return {
      ...rule,
      spread: 'even',
      burst: pick([1, 1, 2, 5]),
      ...(within && { within }),
      ...(minRate && { minRate }),
    }
  }

  #periodMs(): number {
    return (this.wire.window as number) / 1000
  }

  /** µs in which one unit comes back. */
  #unitUs(): number {
    const { interval, window = 0, limit = 1 } = this.wire
    return Math.ceil(interval ?? window / limit)
  }

  /** µs in which all do. */
  #fullUs(): number {
    const { interval = 0, burst = 1, window } = this.wire
    return Math.ceil(window ?? interval * burst)
  }

  #passTime(): void {
    const { oneIn, between, pick } = this.#random
    const unit = this.#unitUs()
    this.#now += between(0, pick([0, 0, 1, unit, unit, unit, 3 * unit, this.#fullUs()]))
    if (oneIn(60)) this.#now += between(0, 3 * this.#fullUs())
    const longUs = (isScheduled(this.#rule.rate) ? 5 : 90) * DAY_US
    if (oneIn(200)) this.#now += between(1, pick([1_000_000, DAY_US, longUs]))
    if (oneIn(80)) this.#now -= between(1, pick([1, 1000, unit, this.#fullUs(), 3 * this.#fullUs(), longUs]))
    // To a boundary between two windows, or next to it.
    if (oneIn(40) && this.wire.window)
      this.#now += this.wire.window - (this.#now % this.wire.window) - between(0, 2) + 1
  }
}

function mostOwedUs({ rate }: SpreadRule): number {
  return isScheduled(rate) ? MAX_SCHEDULED_OWED_US : MAX_DRAIN_US
}
