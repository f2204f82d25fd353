import { readFileSync } from 'node:fs'
import { afterEach, expect, test } from 'vitest'
import { ALGORITHMS, type Algorithm } from '../../../src/limits/definition.ts'
import { encodeQueueLimits, type QueueLimit } from '../../../src/limits/queue-limits.ts'
import { LuaComposer } from '../../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../../src/redis/lua-files.ts'
import { createRandom, type Random } from '../../../workers/demo/outbox/random.ts'
import { caseCount } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import { PoolModel } from './pool.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** Departures of each algorithm. `npm run test:model` asks for 10 million. */
const DECISIONS = caseCount(1500, 'MODEL_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const OPERATIONS = 200
const START_US = 1_764_000_000_000_000
const NAMES = ['a', 'b', 'c', 'd', 'e']

const text = new LuaComposer(readLuaFile).text(readFileSync(new URL('pool-replay.lua', import.meta.url), 'utf8'))

afterEach(async () => {
  await redis.cleanup()
})

test.each(ALGORITHMS)(
  `a pool of %s lets jobs go as its model does, ${DECISIONS} times`,
  { timeout: 600_000 + DECISIONS / 4 },
  async (algorithm) => {
    let departures = 0
    for (let seed = SEED; departures < DECISIONS; seed++) departures += await compareHistory(algorithm, seed)
    expect(departures).toBeGreaterThanOrEqual(DECISIONS)
  },
)

interface Operation {
  readonly verb: 'limits' | 'depart' | 'back' | 'settle' | 'release' | 'set'
  readonly now: number
  readonly [field: string]: unknown
}

/** @returns how many departures were compared */
async function compareHistory(algorithm: Algorithm, seed: number): Promise<number> {
  const history = new PoolHistory(algorithm, seed)
  const told = Array.from({ length: OPERATIONS }, () => history.next())
  const operations = told.map(({ operation }) => operation)
  const found = (await client.eval(
    text,
    1,
    `${redis.prefix}:${algorithm}${seed}:meta:shape`,
    JSON.stringify(operations),
  )) as string[]
  for (const [i, { answer }] of told.entries()) {
    const [reply] = JSON.parse(found[i] as string) as [unknown]
    const read = Array.isArray(reply) ? [Number(reply[0]), reply[1]] : reply
    const story = operations.slice(Math.max(0, i - 7), i + 1).map((one) => JSON.stringify(one))
    expect(read, `seed ${seed}, operation ${i}:\n${story.join('\n')}`).toEqual(answer)
  }
  await redis.cleanup()
  return operations.filter(({ verb }) => verb === 'depart').length
}

/** Repeatable random operations on a pool, each with what its model answers. */
class PoolHistory {
  readonly #random: Random
  readonly #algorithm: Algorithm
  readonly #model: PoolModel
  #limit: QueueLimit
  #now = START_US
  #leases = 0
  #departed: { cost: number; slot: number; member: string; lease: number }[] = []
  #isDeclared = false

  constructor(algorithm: Algorithm, seed: number) {
    this.#random = createRandom(seed * 31 + ALGORITHMS.indexOf(algorithm))
    this.#algorithm = algorithm
    this.#limit = { ...this.#rule(), name: 'keys', pool: this.#pool() }
    this.#model = new PoolModel(this.#limit)
  }

  next(): { operation: Operation; answer: unknown } {
    const { between, oneIn, pick } = this.#random
    this.#now += between(0, pick([0, 0, 1, 100_000, 1_000_000, 3_000_000]))
    if (oneIn(60)) this.#now += between(0, 30_000_000)
    this.#model.now = this.#now
    if (!this.#isDeclared) {
      this.#isDeclared = true
      return this.#change(this.#limit)
    }
    if (oneIn(40)) return this.#change(pick([this.#with(this.#rule()), { ...this.#limit, pool: this.#pool() }]))
    if (oneIn(20)) return this.#set()
    const departed =
      this.#departed.length > 0 && oneIn(3) ? pick([this.#departed.at(-1), pick(this.#departed)]) : undefined
    return departed ? this.#after(departed) : this.#depart()
  }

  #depart() {
    const { between, oneIn, pick } = this.#random
    const cost = pick([1, 1, 1, 2, between(1, 6)])
    const group = pick(['', '', 'acme', 'beta'])
    const ahead = pick([0, 50_000, 1_000_000])
    const late = oneIn(4) ? between(0, 400_000) : 0
    this.#leases += 1
    const lease = `lease${this.#leases}`
    const operation: Operation = { verb: 'depart', now: this.#now, cost, group, ahead, late, lease }
    const taken = Math.min(cost, this.#limit.concurrency ?? cost)
    const wait = this.#model.earliest(taken)
    if (wait > ahead) return { operation, answer: [wait, ''] }
    const sticky = this.#limit.sticky && group !== '' ? group : undefined
    const member = this.#model.commit(taken, wait + late, this.#leases, sticky)
    this.#departed.push({ cost, slot: this.#now + Math.ceil(wait + late), member, lease: this.#leases })
    if (this.#departed.length > 8) this.#departed.shift()
    return { operation, answer: [wait, member] }
  }

  #after({ cost, slot, member, lease }: { cost: number; slot: number; member: string; lease: number }) {
    const now = this.#now
    this.#departed = this.#departed.filter((one) => one.lease !== lease)
    if (this.#algorithm === 'concurrency') {
      const answer = this.#model.release(member, cost, lease)
      return { operation: { verb: 'release' as const, now, member, cost, lease: `lease${lease}` }, answer }
    }
    if (this.#random.oneIn(2)) {
      const answer = this.#model.takeBack(member, cost, slot)
      return { operation: { verb: 'back' as const, now, member, cost, slot }, answer }
    }
    const change = this.#random.pick([-cost, -1, 1, 3])
    const answer = this.#model.settle(member, change)
    return { operation: { verb: 'settle' as const, now, member, cost: change }, answer }
  }

  #change(limit: QueueLimit) {
    this.#limit = limit
    this.#model.change(limit)
    return { operation: { verb: 'limits' as const, now: this.#now, limits: encodeQueueLimits([limit]) }, answer: true }
  }

  #set() {
    const { between, oneIn, pick } = this.#random
    const [now, member] = [this.#now, pick(this.#model.pool)]
    const operation = (change: object, untilMs?: number) => ({
      operation: { verb: 'set' as const, now, member, change, ...(untilMs === undefined ? {} : { untilMs }) },
      answer: true,
    })
    const { rate } = this.#limit
    const untilMs = Math.floor(now / 1000) + between(1, 5000)
    if (rate === undefined || oneIn(2)) {
      this.#model.set(member, { heldUntilUs: untilMs * 1000 })
      return operation({ held: true }, untilMs)
    }
    const own = pick([null, { limit: between(1, 5), period: (rate as { period: number }).period }, undefined])
    if (own === undefined) {
      this.#model.set(member, { rate: undefined, rateUntilUs: undefined })
      return operation({ rate: { clear: true } })
    }
    const ends = oneIn(2)
    this.#model.set(member, { rate: own, rateUntilUs: ends ? untilMs * 1000 : undefined })
    return operation({ rate: own && [own.limit, own.period] }, ends ? untilMs : undefined)
  }

  #with(rule: Pick<QueueLimit, 'rate' | 'burst' | 'concurrency'>): QueueLimit {
    const { rate, burst, concurrency } = rule
    const { period } = (this.#limit.rate as { period: number } | undefined) ?? {}
    if (concurrency) return { ...this.#limit, concurrency }
    if (burst) return { ...this.#limit, rate: rate!, burst }
    return { ...this.#limit, rate: { limit: (rate as { limit: number }).limit, period: period as number } }
  }

  #rule(): Omit<QueueLimit, 'name'> {
    const { between, pick } = this.#random
    const algorithm = this.#algorithm
    const sticky = pick([{}, { sticky: 'group' as const }])
    if (algorithm === 'concurrency') return { algorithm, concurrency: between(1, 6), leaseMs: 3000, ...sticky }
    const rate = { limit: between(1, 12), period: pick([1000, 5000]) }
    if (algorithm === 'fixed-window') return { algorithm, rate, align: pick(['epoch', 'first']), ...sticky }
    if (algorithm.startsWith('sliding')) return { algorithm, rate, ...sticky }
    return { algorithm, rate, burst: pick([1, 2, 6]), ...sticky }
  }

  #pool(): string[] {
    const members = NAMES.filter(() => this.#random.oneIn(2))
    return members.length > 0 ? members : [this.#random.pick(NAMES)]
  }
}
