import { randomOf } from '../../../packages/cli/src/simulate/random.ts'
import type { Argument } from '../../../src/redis/commands.ts'
import { encodeOverride, encodeShape, type Shape } from '../../../src/shape/shape.ts'
import { Coordinator, type Part } from '../../../src/sharding/coordinator.ts'
import { shapeOfShard, wholeShape } from '../../../src/sharding/shapes.ts'
import { Fleet } from '../../model/fleet.ts'
import { type VirtualScripts, VirtualWorld } from '../../model/virtual-redis.ts'
import { VirtualTime } from '../../model/virtual-time.ts'

const START_US = 1_700_000_000_000_000
const SECOND_US = 1_000_000

/** What goes wrong, and how much is asked. All of it follows from the seed. */
export interface Plot {
  readonly seed: number
  readonly shards: number
  readonly rate: number
  readonly seconds: number
  /** Jobs that arrive, as a multiple of the rate. */
  readonly load: number
  readonly coordinators: number
  /** How far ahead of their slots jobs are granted, ms. */
  readonly horizonMs?: number
  /** Of 1000 calls so many are lost, and so many take up to 2.5 s. */
  readonly lost: number
  readonly slow: number
  /** How often each of these happens. */
  readonly deaths: number
  readonly freezes: number
  readonly losses: number
  /** Masters of shards that die; a replica that has all of it takes over within four seconds, as another run of Redis. */
  readonly failovers: number
  /** Clocks that are set, of the head alone or of any Redis. */
  readonly steps: 'none' | 'head' | 'all'
  /** How often the rate, the places and the running jobs of the whole are set, to a part of what is declared. */
  readonly changes?: number
}

/** What is in force of the whole. */
interface Whole {
  readonly perSecond: number
  readonly capacity: number
  readonly concurrency: number
}

/** What the leases allowed together at one moment. */
interface Together extends Whole {
  readonly atUs: number
}

/** The overrides of a shard. */
interface Leased {
  readonly rate?: { readonly value: readonly [limit: number, periodMs: number]; readonly until: number }
  readonly capacity?: { readonly value: number }
  readonly concurrency?: { readonly value: number }
}

const CAPACITY = 10_000
const CONCURRENCY = 300

/** A sharded queue in virtual time: the library's coordinators, ledger, scripts and dispatch loops. */
export class Story {
  readonly plot: Plot
  readonly time = new VirtualTime(START_US)
  readonly fleets: Fleet[] = []
  readonly head: Fleet
  readonly together: Together[] = []
  readonly errors: Error[] = []
  readonly #uniform: () => number
  readonly #frozenUntilUs = new Map<number, number>()
  readonly #dead = new Set<number>()
  readonly #coordinators: Coordinator[] = []
  /** What the whole has had in force, and from when on. */
  readonly wholes: { readonly atUs: number; readonly whole: Whole }[] = []
  #ledger: Buffer | undefined

  constructor(base: string, scripts: VirtualScripts, plot: Plot) {
    this.plot = plot
    this.#uniform = randomOf(plot.seed).uniform
    const fleet = (name: string, jobs: number[]) => {
      const world = new VirtualWorld(`${base}${name}:`, scripts, START_US, this.time)
      // No two Redis agree about the time.
      world.aheadUs = Math.round((this.#uniform() - 0.5) * 20 * SECOND_US)
      const waiting = jobs.map((atUs) => ({ cost: 1, runsUs: 5000, atUs }))
      return new Fleet(`${base}${name}:`, world, { jobs: waiting, startUs: START_US, uniform: this.#uniform })
    }
    this.wholes.push({ atUs: 0, whole: { perSecond: plot.rate, capacity: CAPACITY, concurrency: CONCURRENCY } })
    this.head = fleet('head', [])
    for (let shard = 0; shard < plot.shards; shard++) this.fleets.push(fleet(`s${shard}`, this.#arrivals()))
  }

  get burst(): number {
    return this.plot.shards
  }

  get #whole(): Shape {
    const { shards, rate, horizonMs = 50 } = this.plot
    const shape = { rate: `${rate}/s`, burst: this.burst, capacity: CAPACITY, concurrency: CONCURRENCY, horizonMs }
    return wholeShape(shape, shards)
  }

  async run(): Promise<void> {
    const { shards, seconds, coordinators } = this.plot
    const whole = this.#whole
    await this.head.begin(whole, [])
    for (const fleet of this.fleets) {
      const workers = [1, 2].map((n) => ({ concurrency: 30, roundTripUs: 400 * n, startsAfterUs: 0 }))
      await fleet.begin(shapeOfShard(whole, shards), workers)
    }
    for (let i = 0; i < coordinators; i++) this.#startCoordinator()
    this.#plan()
    const ended = () => this.fleets.every((fleet) => fleet.ended === fleet.jobs.length)
    await this.time.run(
      () => this.errors.length > 0 || this.fleets.some((fleet) => fleet.errors.length > 0) || ended(),
      START_US + 4 * seconds * SECOND_US,
    )
    this.#end()
  }

  /** When jobs departed by their slots, in the time of the world. */
  get departedUs(): number[] {
    return this.fleets.flatMap(({ departed, redis }) => departed.map(({ slotUs }) => slotUs - redis.world.aheadUs))
  }

  /** The most that the whole allowed at any moment of the last time. */
  mostOf(field: keyof Whole, atUs: number, latelyUs: number): number {
    const inForce = this.wholes.filter((one, i) => {
      const endsUs = this.wholes[i + 1]?.atUs ?? Number.POSITIVE_INFINITY
      return one.atUs <= atUs && endsUs >= atUs - latelyUs
    })
    return Math.max(...inForce.map(({ whole }) => whole[field]))
  }

  #end(): void {
    for (const [number, coordinator] of this.#coordinators.entries()) {
      this.#dead.add(number)
      void coordinator.close()
    }
    const wrong = [...this.errors, ...[this.head, ...this.fleets].flatMap(({ errors }) => errors)]
    if (wrong[0]) throw wrong[0]
  }

  /** Each shard has a time in which most of its jobs arrive. */
  #arrivals(): number[] {
    const { rate, seconds, load, shards } = this.plot
    const count = Math.round((rate * seconds * load * 2 * this.#uniform()) / shards)
    const [fromUs, forUs] = [this.#uniform() * 0.5, 0.1 + this.#uniform() * 0.4]
    return Array.from({ length: count }, () => {
      const share = this.#uniform() < 0.8 ? fromUs + forUs * this.#uniform() : this.#uniform()
      return Math.round(START_US + share * seconds * SECOND_US)
    }).sort((one, other) => one - other)
  }

  /** Everything goes wrong in the first part of the story; after that all jobs have to leave. */
  #plan(): void {
    const { deaths, freezes, losses, failovers, steps, seconds, changes = 0 } = this.plot
    const at = (act: () => void) => this.time.at(START_US + this.#uniform() * seconds * SECOND_US, act)
    const times = (n: number, act: () => void) => {
      for (let i = 0; i < n; i++) at(act)
    }
    times(deaths, () => this.#killCoordinator())
    times(freezes, () => {
      const number = Math.floor(this.#uniform() * this.#coordinators.length)
      this.#frozenUntilUs.set(number, this.time.nowUs + this.#uniform() * 6 * SECOND_US)
    })
    times(losses, () => void this.time.real(this.#lose()))
    times(failovers, () => this.#failOver())
    times(changes, () => void this.time.real(this.#change()))
    if (steps === 'none') return
    times(2, () => {
      const all = steps === 'all' ? [this.head, ...this.fleets] : [this.head]
      const { world } = (all[Math.floor(this.#uniform() * all.length)] as Fleet).redis
      world.aheadUs += Math.round((this.#uniform() - 0.5) * 10 * SECOND_US)
    })
  }

  #killCoordinator(): void {
    const number = this.#coordinators.findIndex((_, i) => !this.#dead.has(i))
    this.#dead.add(number)
    void this.#coordinators[number]?.close()
    this.#startCoordinator()
  }

  /** The ledger is gone, or an older copy of it comes back in another run of Redis; or a shard has lost its shape. */
  async #lose(): Promise<void> {
    const { client } = this.head.redis.scripts
    const key = `${this.head.redis.base}meta:ledger`
    const kind = Math.floor(this.#uniform() * 3)
    if (kind === 0) {
      await client.del(key)
      return
    }
    if (kind === 1) {
      const before = this.#ledger
      this.#ledger = (await client.getBuffer(key)) ?? undefined
      if (!before) return
      await client.set(key, before)
      await this.#runAnew(this.head)
      return
    }
    const { base } = this.#anyShard().redis
    await client.del(`${base}meta:shape`, `${base}meta:meter`)
  }

  /** As `setShape` of the whole. */
  async #change(): Promise<void> {
    const part = (of: number) => Math.ceil(of * (0.3 + 0.7 * this.#uniform()))
    const whole = {
      perSecond: part(this.plot.rate),
      capacity: part(CAPACITY),
      concurrency: part(CONCURRENCY),
    }
    const { perSecond, capacity, concurrency } = whole
    const override = encodeOverride({ rate: `${perSecond}/s`, capacity, concurrency })
    const args = [JSON.stringify(override), 'test', 'test', '', '', '']
    this.wholes.push({ atUs: this.time.nowUs, whole })
    await this.head.redis.run('sluice:override-shape', [`${this.head.redis.base}meta:shape`, ...args])
  }

  #failOver(): void {
    const fleet = this.#anyShard()
    const { world } = fleet.redis
    world.downUntilUs = this.time.nowUs + this.#uniform() * 4 * SECOND_US
    void this.time.real(this.#runAnew(fleet))
  }

  async #runAnew({ redis: { scripts, world } }: Fleet): Promise<void> {
    await scripts.client.set(`${world.prefix}virtual-run`, `0${Math.floor(this.#uniform() * 1e9).toString(16)}`)
  }

  #anyShard(): Fleet {
    return this.fleets[Math.floor(this.#uniform() * this.fleets.length)] as Fleet
  }

  #startCoordinator(): void {
    const number = this.#coordinators.length
    const time = this.time.local(START_US - SECOND_US * this.#uniform(), () => 1000 * this.#uniform())
    const coordinated = {
      head: this.#part(number, this.head),
      shards: this.plot.shards,
      agree: async () => {},
      check: () => {},
      parts: () => this.fleets.map((fleet) => this.#part(number, fleet)),
      onError: (error: Error) => {
        if (!/ECONNRESET/.test(error.message)) this.errors.push(error)
      },
    }
    this.#coordinators.push(new Coordinator(coordinated, time))
  }

  #part(number: number, fleet: Fleet): Part {
    return {
      run: (script, args) => this.#call(number, fleet, script, args),
      // As a process that knows nothing; workers that know the shape restore it.
      recover: async () => {
        const { fields } = encodeShape(fleet === this.head ? this.#whole : shapeOfShard(this.#whole, this.plot.shards))
        await this.#travel(number)
        await fleet.redis.run('sluice:declare-shape', [
          `${fleet.redis.base}meta:shape`,
          JSON.stringify(fields),
          '',
          'new',
        ])
      },
    }
  }

  /** A call over a bad network, of a process that may stop at any moment. */
  async #call(number: number, fleet: Fleet, script: string, args: readonly Argument[]): Promise<unknown> {
    await this.#travel(number)
    const reply = await fleet.redis.run(`sluice:${script}`, [`${fleet.redis.base}meta:shape`, ...args])
    if (script === 'apply-lease' && args[0] !== '') await this.time.real(this.#look())
    await this.#travel(number)
    return reply
  }

  async #travel(number: number): Promise<void> {
    const chance = this.#uniform() * 1000
    const { lost, slow } = this.plot
    if (chance < lost) {
      await this.time.until(this.time.nowUs + 10_000)
      throw new Error('ECONNRESET')
    }
    const forUs = chance < lost + slow ? 2.5 * SECOND_US * this.#uniform() : 3000 * this.#uniform()
    await this.time.until(this.time.nowUs + forUs)
    const frozenUs = this.#frozenUntilUs.get(number) ?? 0
    if (frozenUs > this.time.nowUs) await this.time.until(frozenUs)
  }

  /** What the leases in force allow together, each by the clock of its shard. */
  async #look(): Promise<void> {
    const atUs = this.time.nowUs
    const by = await Promise.all(
      this.fleets.map(async ({ redis }) => {
        const text = await redis.scripts.client.hget(`${redis.base}meta:shape`, 'overrides')
        const { rate, capacity, concurrency } = JSON.parse(text ?? '{}') as Leased
        const perSecond = rate && rate.until * 1000 > redis.world.redisUs ? (rate.value[0] * 1000) / rate.value[1] : 0
        return { perSecond, capacity: capacity?.value ?? 1, concurrency: concurrency?.value ?? 1 }
      }),
    )
    const sum = (field: keyof Whole) => by.reduce((total, one) => total + one[field], 0)
    this.together.push({
      atUs,
      perSecond: sum('perSecond'),
      capacity: sum('capacity'),
      concurrency: sum('concurrency'),
    })
  }
}
