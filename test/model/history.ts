import { encodeRate, type ScheduledRate, type StoredRate } from '../../src/limits/schedule.ts'
import { createRandom, type Random } from '../../workers/demo/outbox/random.ts'
import type { Deed, Job, ModelFields, Operation } from './replay.ts'

const START_US = 1_764_000_000_000_000
const DAY_US = 86_400_000_000
/** The longest time that a full bucket may take to drain: three days. */
const MAX_DRAIN_US = 2 ** 38

/** Repeatable random operations on one queue, which cover years within a few hundred calls. */
export class History {
  readonly #random: Random
  #now = START_US
  #runs = 1
  #jobs = 0
  #fields: ModelFields
  /** Slots go back only if the shape has not changed for a while. */
  readonly #changeOneIn: number
  #started = false
  /** Whether the bucket was lost and has not been opened since. */
  #lost = false
  #modeOverridden = false
  /** Whether rates follow the clock, but for one in four. */
  readonly #scheduled: boolean

  constructor(seed: number, scheduled = false) {
    this.#scheduled = scheduled
    this.#random = createRandom(seed)
    this.#fields = this.#newFields()
    this.#changeOneIn = this.#random.pick([25, 25, 150])
  }

  next(): Operation {
    const deed = this.#started ? this.#deed() : this.#declare()
    this.#started = true
    return { now: this.#now, run: this.#runs.toString(16), ...deed }
  }

  #deed(): Deed {
    const { oneIn } = this.#random
    this.#passTime()
    if (oneIn(200)) this.#restart()
    if (oneIn(this.#changeOneIn)) return this.#change()
    if (oneIn(12)) return { what: 'giveBack', count: this.#random.between(0, 3), ago: this.#random.pick([0, 0, 1, 2]) }
    if (oneIn(40)) return this.#pause()
    if (oneIn(300)) return this.#lose()
    if (oneIn(20) && !this.#lost) return { what: 'read' }
    return this.#depart()
  }

  #depart(): Deed {
    const { between, pick } = this.#random
    // A bucket whose mode is off is not opened.
    this.#lost &&= this.#modeOverridden || this.#fields.mode === 'off'
    const jobs = Array.from({ length: between(0, 6) }, () => this.#job())
    return {
      what: 'depart',
      jobs,
      asked: between(1, 8),
      horizonUs: pick([0, 0, 50_000, 50_000, between(1, 2_000_000)]),
    }
  }

  #job(): Job {
    const { between, pick } = this.#random
    const { burst } = this.#fields
    const cost = pick([
      1,
      1,
      1,
      between(1, burst),
      between(1, 1000) / 1000,
      between(1, 1000) / 7,
      burst + between(1, 9),
    ])
    this.#jobs += 1
    return { id: `j${this.#jobs}`, cost: Math.min(cost, 3 * burst) }
  }

  #change(): Deed {
    const { oneIn, pick, between } = this.#random
    if (oneIn(3)) return this.#declare()
    const { rate, burst } = this.#newFields()
    const changes = pick([
      { rate },
      { rate, burst },
      { burst: Math.min(burst, this.#fields.burst) },
      { mode: pick(['enforce', 'enforce', 'shadow', 'off'] as const) },
      { mode: { clear: true as const }, rate: { clear: true as const } },
    ])
    if ('mode' in changes) this.#modeOverridden = typeof changes.mode === 'string'
    return { what: 'override', changes, ...(oneIn(2) ? { ttlMs: between(1, 5000) } : {}) }
  }

  #declare(): Deed {
    this.#fields = this.#newFields()
    return { what: 'declare', fields: this.#fields }
  }

  // The mode is mostly `enforce`: the others let everything through.
  #newFields(): ModelFields {
    const { between, pick, oneIn } = this.#random
    for (;;) {
      const limit = pick([between(1, 100), between(1, 5000), between(1, 1_000_000), between(1, 1000) / 8])
      const period = pick([1000, 1000, 60_000, 900_000, 86_400_000, 7, 1])
      const burst = pick([1, 1, 2, between(1, 10), between(1, 1000)])
      if ((period * 1000 * burst) / limit > MAX_DRAIN_US) continue
      return {
        rate: this.#scheduled && !oneIn(4) ? this.#schedule(limit, period, burst) : [limit, period],
        burst,
        mode: oneIn(8) ? pick(['shadow', 'off']) : 'enforce',
        onStateLoss: pick(['hold', 'hold', 'burst']),
        horizonMs: pick([50, between(1, 500)]),
      }
    }
  }

  // From a few minutes to days long, closed at times, and the clock of the zone changes now and then.
  #schedule(limit: number, period: number, burst: number): StoredRate {
    const { between, pick, oneIn } = this.#random
    const slowest = (period * 1000 * burst) / MAX_DRAIN_US
    const rate = () => {
      if (oneIn(4)) return 0
      const own = oneIn(3)
        ? Math.max(slowest, (limit * between(1, 1000)) / 1000)
        : Math.max(slowest, limit / between(1, 12))
      // Scripts store 14 digits of a number.
      return { limit: Number(own.toPrecision(12)), period }
    }
    const bounds = [...new Set(Array.from({ length: between(1, 6) }, () => between(1, 1439)))].sort((a, b) => a - b)
    const days = pick([undefined, 'mon-fri', 'sat,sun', 'wed', 'fri-mon'])
    const entries: ScheduledRate[] = bounds.slice(1).map((to, i) => ({
      ...(days && { days }),
      from: clock(bounds[i] as number),
      to: clock(to),
      rate: rate(),
    }))
    const timeZone = pick([
      'UTC',
      'Europe/Berlin',
      'America/New_York',
      'Australia/Lord_Howe',
      'Asia/Kathmandu',
      'Africa/Casablanca',
    ])
    return encodeRate({ schedule: [...entries, { rate: { limit, period } }], timeZone })
  }

  #pause(): Deed {
    const { pick, between } = this.#random
    const kind = pick(['until', 'for', 'clear', 'clear'] as const)
    const ms = between(1, pick([100, 5000, 1_000_000]))
    return { what: 'pause', kind, ms: kind === 'until' ? Math.floor(this.#now / 1000) + ms : ms }
  }

  #lose(): Deed {
    const { oneIn } = this.#random
    this.#lost = !oneIn(2)
    return { what: this.#lost ? 'loseMeter' : 'loseAll' }
  }

  #restart(): void {
    this.#runs += 1
    this.#lost = true
  }

  #passTime(): void {
    const { oneIn, between, pick } = this.#random
    if (oneIn(3)) return
    const [limit, period] = this.#fields.rate
    const longest = this.#scheduled ? 20 * DAY_US : 90 * DAY_US
    const interval = Math.ceil((period * 1000) / limit)
    const most = pick([0, 1, interval, interval, 3 * interval, interval * this.#fields.burst, 1_000_000])
    this.#now += between(0, Math.min(most, DAY_US))
    if (oneIn(60))
      this.#now -= between(1, pick([1000, 1_000_000, 60_000_000, oneIn(20) && !this.#scheduled ? 3000 * DAY_US : 1000]))
    if (this.#scheduled && oneIn(8)) this.#now += between(1, pick([60_000_000, 3_600_000_000, DAY_US]))
    if (oneIn(100)) this.#now += between(1, pick([1_000_000, DAY_US, longest]))
  }
}

function clock(minute: number): string {
  return `${String(Math.floor(minute / 60)).padStart(2, '0')}:${String(minute % 60).padStart(2, '0')}`
}
