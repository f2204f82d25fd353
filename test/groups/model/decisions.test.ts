import type { Redis } from 'ioredis'
import { afterEach, expect, test } from 'vitest'
import { randomOf } from '../../../packages/cli/src/simulate/random.ts'
import { encodeQueueLimits } from '../../../src/limits/queue-limits.ts'
import { caseCount, someOf } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import type { Limit } from './charges.ts'
import { type Decision, ReferenceGroups, type Settings } from './reference.ts'
import { replayText } from './replay.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** `npm run test:model` asks for 10 million. */
const DECISIONS = caseCount(60_000, 'MODEL_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const OPERATIONS_PER_CALL = 200
const CALLS_PER_HISTORY = 10
/** Redis replays one history while this process computes the next. */
const TOGETHER = 3

afterEach(
  async () => {
    await redis.cleanup()
  },
  60_000 + DECISIONS / 20,
)

test(`the Lua serves groups as the reference does, ${DECISIONS} times`, {
  timeout: 600_000 + DECISIONS / 2,
}, async () => {
  const sha = (await client.script('LOAD', replayText)) as string
  let [seed, decisions] = [SEED, 0]
  const compare = async () => {
    while (decisions < DECISIONS) {
      const compared = await compareHistory(client, sha, seed++)
      decisions += compared
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, compare))
  expect(decisions).toBeGreaterThanOrEqual(DECISIONS)
})

test('a script that forgets the tag of a group that is empty is found out', async () => {
  const forgetful = replayText.replace(
    "redis.call('ZADD', groups.key(g, 'tags'), modules.redis_as_text.us(tag), group)",
    "redis.call('ZREM', groups.key(g, 'tags'), group)",
  )
  expect(forgetful).not.toBe(replayText)
  const sha = (await client.script('LOAD', forgetful)) as string
  const compare = async () => {
    for (let seed = 1; seed <= 20; seed++) await compareHistory(client, sha, seed)
  }
  await expect(compare()).rejects.toThrow('seed')
})

const CARELESS = [
  ['does not charge them', 'if runs and pick.parts then', 'if false then'],
  ['does not ask them', 'if g.limits and paced then', 'if false then'],
  ['has other first jobs than those that aged', 'g.ageing and g.ageing.first_two(jobs) or', ''],
  ['holds jobs without a group for one that is not the next', 'if g.plain_id ~= g.plain_held then', 'if false then'],
  ['waits for slots that are too late', ' or (pick.deadline and pick.slot > pick.deadline)', ''],
  ['has served groups behind all others', 'while at >= g.at and tags[at] > tag do at = at - 1 end', ''],
  ['has a shorter hold replace a longer one', "math.max(until_ms, before['until'])", 'until_ms'],
  [
    'gives back what is behind other slots',
    "if group ~= '' and job.slot == g:last_slot(group) then",
    "if group ~= '' then",
  ],
  ['gives a bucket of a limit back what is behind other slots', 's.now + math.ceil(s.ahead) ~= slot', 'false'],
  ['gives a window back what another was charged', 'slot < s.start or slot >= s.finish or ', ''],
  [
    'gives back out of the middle of a log what its later sums keep',
    'as_text.exact(one.sum - back)',
    'as_text.exact(one.sum)',
  ],
  ['grants ahead of a hold', 'pick.hold = runs and s.limited or nil', ''],
  ['gives back what jobs granted ahead were promised', 'since, s.now + math.max(0, s.ahead))', 'since, s.now)'],
  ['gives a group back what was promised', 'math.max(c.now, last) - c.since', 'c.now - c.since'],
  ['gives a job back by a rate that has changed', 'if unstarted.paid(shape, since, job) then', 'if true then'],
  ['gives back by a rate that has changed', 'if not settling.under(c, at) then return 0 end', ''],
  ['does not hold a group for what a job cost more', 'g:keep_bucket(b)\nc.changed[2]', 'c.changed[2]'],
  ['has another second job', 'return { best.id, best.score, second.id', 'return { best.id, best.score, nil'],
  ['remembers a first job that has left', 'if first and first.id == id then head_of[line.list] = nil end', ''],
] as const

test.each(someOf(CARELESS))(
  'a script that has limits per group, holds and ageing and %s is found out',
  async (_what, text, broken) => {
    const careless = replayText.replace(text, broken)
    expect(careless).not.toBe(replayText)
    const sha = (await client.script('LOAD', careless)) as string
    const compare = async () => {
      for (let seed = 1; seed <= 60; seed++) await compareHistory(client, sha, seed)
    }
    await expect(compare()).rejects.toThrow('seed')
  },
)

/** The number of the first job of a group. */
const FIRST = 2 ** 20 + 1
const OPTIONS = (group: string) => JSON.stringify({ group: { id: group } })

test("a clock that goes back keeps the distances of a group's slots", async () => {
  const operations: Operation[] = [
    ['add', 4_000_000_000, 'j1', OPTIONS('a'), 'a', 0],
    ['add', 4_000_000_000, 'j2', OPTIONS('a'), 'a', 0],
    ['depart', 4_000_000_000, 0, 0],
    ['depart', 4_000_300_000, 0, 0],
    ['depart', 400_000_000, 0, 0],
    ['depart', 400_700_000, 0, 0],
  ]
  expect(await replay(operations, { rate: [1, 1000] })).toEqual([
    ...['', '', 'j1 4000000000', 'none 4001000000'],
    ...['none 401000000', 'none 401000000'],
  ])
})

test('also if jobs are added before one is to leave', async () => {
  const operations: Operation[] = [
    ['add', 4_000_000_000, 'j1', OPTIONS('a'), 'a', 0],
    ['add', 4_000_000_000, 'j2', OPTIONS('a'), 'a', 0],
    ['depart', 4_000_000_000, 0, 0],
    ['depart', 4_000_300_000, 0, 0],
    ['add', 400_000_000, 'j3', OPTIONS('b'), 'b', 0],
    ['depart', 400_000_000, 0, 0],
    ['depart', 400_000_000, 0, 0],
  ]
  expect(await replay(operations, { rate: [1, 1000] })).toEqual([
    ...['', '', 'j1 4000000000', 'none 4001000000'],
    ...['', 'j3 400000000', 'none 401000000'],
  ])
})

test('after a loss of state no group has burst left', async () => {
  const operations: Operation[] = [
    ...['j1', 'j2', 'j3'].map((id) => ['add', 1_000_000_000, id, OPTIONS('a'), 'a', 0] as const),
    ['lose', 1_000_000_000, 1_000_050_000],
    ['depart', 1_000_000_000, 0, 0],
    ['depart', 1_000_050_000, 0, 2_000_000],
    ['depart', 1_001_050_000, 0, 2_000_000],
  ]
  expect(await replay(operations, { rate: [1, 1000], burst: 3 })).toEqual([
    ...['', '', '', '', 'none 1001050000'],
    ...['j1 1001050000', 'j2 1002050000'],
  ])
})

test('after a loss of state a group still pays what is known of its debts', async () => {
  const operations: Operation[] = [
    ...['j1', 'j2'].map((id) => ['add', 1_000_000_000, id, OPTIONS('a'), 'a', 0] as const),
    ['depart', 1_000_000_000, 0, 0],
    ['settle', 1_000_000_000, 'j1', 1, '', 11],
    ['lose', 1_000_000_000, 1_000_050_000],
    ['depart', 1_000_050_000, 0, 20_000_000],
  ]
  expect(await replay(operations, { rate: [1, 1000], burst: 3 })).toEqual([
    ...['', '', 'j1 1000000000', '', ''],
    'j2 1009000000',
  ])
})

test('a job that goes back after its rate has changed gives nothing back', async () => {
  const operations: Operation[] = [
    ...['j1', 'j2'].map((id) => ['add', 1_000_000_000, id, OPTIONS('a'), 'a', 0] as const),
    ['set', 1_000_000_000, 'a', '{"burst":1}', 1_001_500, '1'],
    ['depart', 1_000_000_000, 0, 0],
    // What j1 was charged has drained before the burst rises, and the rise adds none.
    ['late', 1_001_600_000, 'j1', FIRST],
    ['depart', 1_001_600_000, 0, 0],
    ['depart', 1_001_600_000, 0, 0],
  ]
  expect(await replay(operations, { rate: [1, 1000], burst: 3 })).toEqual([
    ...['', '', '', 'j1 1000000000', ''],
    ...['j1 1001600000', 'none 1002500000'],
  ])
})

test('a group whose last slot lies ahead waits for it behind a job that is only failed', async () => {
  const late = JSON.stringify({ group: { id: 'a' }, mustStartBefore: 1_000_001 })
  const operations: Operation[] = [
    ['add', 1_000_000_000, 'j1', OPTIONS('a'), 'a', 0],
    ['add', 1_000_000_000, 'j2', late, 'a', 0],
    ['add', 1_000_000_000, 'j3', OPTIONS('a'), 'a', 0],
    ['depart', 1_000_000_000, 5000, 0],
    ['depart', 1_000_000_000, 5000, 0],
    ['depart', 1_000_000_000, 6000, 0],
  ]
  expect(await replay(operations, { rate: [1, 1000], burst: 3 }, '1')).toEqual([
    ...['', '', ''],
    ...['j1 1000005000', 'j2 late', 'none 1000005000'],
  ])
})

/** @param together '1' as by the scripts that decide about many jobs at once */
async function replay(operations: readonly Operation[], defaults: Settings, together = ''): Promise<string[]> {
  const sha = (await client.script('LOAD', replayText)) as string
  const key = `${redis.prefix}:told:meta:shape`
  return (await client.evalsha(
    sha,
    1,
    key,
    JSON.stringify(defaults),
    JSON.stringify(operations),
    '',
    '',
    together,
  )) as string[]
}

type Operation = readonly (string | number)[]

/** @returns how many decisions were compared */
async function compareHistory(redisClient: Redis, sha: string, seed: number): Promise<number> {
  const key = `${redis.prefix}:groups${seed}:meta:shape`
  const history = new History(seed)
  const defaults = JSON.stringify(history.defaults)
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const operations: Operation[] = []
    const expected: string[] = []
    for (let i = 0; i < OPERATIONS_PER_CALL; i++) {
      const [operation, reply] = history.next()
      operations.push(operation)
      expected.push(reply)
    }
    // Every other history as by the scripts that decide about many jobs at once.
    const args = [defaults, JSON.stringify(operations), stored(history.limits), history.ageingMs ?? '', seed % 2]
    const replies = (await redisClient.evalsha(sha, 1, key, ...args)) as string[]
    const at = replies.findIndex((reply, i) => reply !== expected[i])
    if (at >= 0) {
      const story = operations.slice(0, at + 1).map((operation, i) => `${JSON.stringify(operation)} -> ${replies[i]}`)
      throw new Error(
        `seed ${seed}, call ${call}: expected ${expected[at]}\n${defaults}\n${stored(history.limits)}\nageing ${history.ageingMs}\n${story.join('\n')}`,
      )
    }
    decisions += operations.filter(([name]) => name === 'depart').length
  }
  return decisions
}

/** The limits as a shape stores them, '' for none. */
function stored(limits: readonly Limit[]): string {
  const given = limits.map(({ algorithm, limit, periodMs, burst, isOfTokens }, i) => {
    const rule = { name: `limit${i}`, by: 'group', algorithm, rate: { limit, period: periodMs } }
    return { ...rule, ...(algorithm === 'gcra' ? { burst } : {}), ...(isOfTokens ? { unit: 'tokens' } : {}) }
  })
  return encodeQueueLimits(given) ?? ''
}

function text(decision: Decision): string {
  if ('isLate' in decision) return `${decision.id} late`
  if ('id' in decision) return `${decision.id} ${decision.slotUs}`
  const { untilUs } = decision
  return `none ${untilUs === undefined ? '' : untilUs === Number.POSITIVE_INFINITY ? 'inf' : untilUs}`
}

/** A random history of one queue, with what the reference says of it. */
class History {
  readonly defaults: Settings
  readonly limits: readonly Limit[]
  readonly ageingMs: number | undefined
  readonly #random: () => number
  readonly #reference: ReferenceGroups
  readonly #names: readonly string[]
  #nowUs = 1_000_000_000
  #jobs = 0
  #hasBegun = false
  /** Jobs that have left, and whose cost is known. */
  readonly #settled = new Set<string>()

  constructor(seed: number) {
    // Seeds that follow each other begin far apart.
    this.#random = randomOf(seed * 0x9e3779b9).uniform
    const names = Array.from({ length: 1 + Math.floor(this.#random() * 12) }, (_, i) => `${'zyxwvutsrqpo'[i]}${i}`)
    this.#names = this.#random() < 0.4 ? ['', ...names] : names
    const sometimes = (chance: number, settings: Settings) => (this.#random() < chance ? settings : {})
    this.defaults = {
      ...sometimes(0.5, { rate: [1 + Math.floor(this.#random() * 30), 1000] }),
      ...sometimes(0.4, { burst: 1 + Math.floor(this.#random() * 5) }),
      ...sometimes(0.4, { concurrency: 1 + Math.floor(this.#random() * 3) }),
      ...sometimes(0.3, { weight: 1 + Math.floor(this.#random() * 4) }),
    }
    this.limits = this.#random() < 0.5 ? Array.from({ length: this.#one([1, 1, 2]) }, () => this.#limit()) : []
    this.ageingMs = this.#one([undefined, undefined, 1, 30, 500])
    const isTrusting = seed % 2 === 1 && this.limits.length === 0
    this.#reference = new ReferenceGroups(this.defaults, this.limits, this.ageingMs, isTrusting)
  }

  #limit(): Limit {
    return {
      algorithm: this.#one(['gcra', 'fixed-window', 'sliding-window-log']),
      limit: 4 + Math.floor(this.#random() * 40),
      periodMs: this.#one([500, 1000, 3000]),
      burst: this.#one([1, 3, 8]),
      isOfTokens: this.#random() < 0.6,
    }
  }

  next(): [Operation, string] {
    this.#nowUs += this.#random() < 0.3 ? 0 : Math.floor(this.#random() ** 3 * 100_000)
    // The first departure looks at all groups that are held, as after a change of the defaults.
    if (!this.#hasBegun) return this.#depart()
    const chance = this.#random()
    if (chance < 0.36) return this.#add()
    if (chance < 0.84) return this.#depart()
    if (chance < 0.93) return this.#end()
    if (chance < 0.96) return this.#remove()
    return this.#set()
  }

  #one<T>(of: readonly T[]): T {
    return of[Math.floor(this.#random() * of.length)] as T
  }

  #add(): [Operation, string] {
    const name = this.#one(this.#names)
    this.#jobs += 1
    const id = `j${this.#jobs}`
    const cost = this.#one([1, 1, 1, 2, 3, 0.5])
    const priority = this.#one([0, 0, 0, 1, 7])
    const tokens = this.#one([undefined, 0, 1, 2, 5])
    const deadlineMs = this.#one([undefined, undefined, undefined, 1, 20, 300, 3000])
    const mustStartBefore = deadlineMs && Math.ceil(this.#nowUs / 1000) + deadlineMs
    const deadlineUs = mustStartBefore && mustStartBefore * 1000
    const job = { id, priority, cost, sinceUs: this.#nowUs, deadlineUs }
    const number = this.#reference.add(name, job, tokens)
    const costs = tokens === undefined ? {} : { costs: { tokens } }
    const options = {
      cost,
      ...costs,
      ...(mustStartBefore ? { mustStartBefore } : {}),
      ...(name === '' ? {} : { group: { id: name, priority } }),
    }
    return [['add', this.#nowUs, id, JSON.stringify(options), name, priority, number], '']
  }

  #depart(): [Operation, string] {
    this.#hasBegun = true
    const soonUs = this.#random() < 0.6 ? 0 : Math.floor(this.#random() * 20_000)
    const horizonUs = this.#one([0, 50_000, 200_000])
    const decision = this.#reference.depart(this.#nowUs, soonUs, horizonUs)
    return [['depart', this.#nowUs, soonUs, horizonUs], text(decision)]
  }

  #end(): [Operation, string] {
    const { running } = this.#reference
    if (running.length === 0) return this.#add()
    const id = this.#one(running)
    // Soon after its departure, more is left to give back.
    if (this.#random() < 0.3) return this.#settle(this.#one(this.#random() < 0.5 ? running.slice(-3) : running))
    if (this.#random() < 0.8 || !this.#reference.isGrouped(id)) {
      this.#reference.finish(id)
      return [['finish', this.#nowUs, id], '']
    }
    // A job whose cost is known has started, and is no longer given back as if it had not.
    const goesBack = this.#random() < 0.5 || this.#settled.has(id)
    this.#settled.delete(id)
    if (goesBack) return [['back', this.#nowUs, id, this.#reference.back(id, this.#nowUs)], '']
    // Of the one that left last, the bucket has the last slot.
    const last = running.findLast((one) => this.#reference.isGrouped(one) && !this.#settled.has(one)) ?? id
    const late = this.#random() < 0.4 ? last : id
    return [['late', this.#nowUs, late, this.#reference.late(late, this.#nowUs)], '']
  }

  #settle(id: string): [Operation, string] {
    const isOfTokens = this.limits.some((limit) => limit.isOfTokens) && this.#random() < 0.6
    const actual = this.#one([0, 0.5, 1, 2, 4, 11])
    this.#settled.add(id)
    const attempt = this.#reference.attempt(id)
    this.#reference.settle(id, isOfTokens ? 'tokens' : 'cost', actual, this.#nowUs)
    return [['settle', this.#nowUs, id, attempt, isOfTokens ? 'tokens' : '', actual], '']
  }

  #remove(): [Operation, string] {
    const { waiting } = this.#reference
    if (waiting.length === 0) return this.#add()
    const { group, id } = this.#one(waiting)
    this.#reference.remove(group, id)
    return [['remove', this.#nowUs, id], '']
  }

  #set(): [Operation, string] {
    const name = this.#one(this.#names.filter((group) => group !== ''))
    const untilMs = Math.ceil(this.#nowUs / 1000) + this.#one([1, 20, 200, 1000])
    const chance = this.#random()
    if (chance < 0.45) return this.#hold(name, untilMs)
    if (chance < 0.55) {
      this.#reference.resume(name, this.#nowUs)
      const fields = ['paused', 'limited', 'slowed', 'crowded'].map((field) => [field, { clear: true }])
      return [['set', this.#nowUs, name, JSON.stringify(Object.fromEntries(fields)), '', ''], '']
    }
    const own: Settings = this.#one([
      {},
      { weight: 3 },
      { weight: 0.25 },
      { rate: [50, 1000] as const, burst: 2 },
      { rate: null },
      { concurrency: 1 },
      { concurrency: null },
      { paused: true },
      { rate: [100, 1000] as const, burst: 6 },
    ])
    const endsMs = this.#random() < 0.5 ? untilMs : undefined
    this.#reference.set(name, own, this.#nowUs, endsMs && endsMs * 1000)
    return [['set', this.#nowUs, name, JSON.stringify(own), endsMs ?? '', '1'], '']
  }

  /** As `rateLimitGroup` and feedback hold a group. */
  #hold(name: string, untilMs: number): [Operation, string] {
    const [field, value] = this.#one([
      ['limited', true],
      ['limited', true],
      ['slowed', [this.#one([2, 5, 20]), 1000]],
      ['crowded', this.#one([1, 2])],
    ] as const)
    this.#reference.hold(name, field, value, this.#nowUs, untilMs * 1000)
    return [['hold', this.#nowUs, name, JSON.stringify({ [field]: value }), untilMs], '']
  }
}
