import { type FlowJob, type Job, type JobType, Queue } from 'bullmq'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidInputError, isRefusal } from '../../src/errors.ts'
import { type Shape, ShapedFlowProducer, type ShapedQueue, type ShapedWorker } from '../../src/index.ts'
import { changeFailed } from '../../src/queue/failed-jobs.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const HOUR_MS = 3_600_000
const BAND = 2 ** 32
const RUNS = caseCount(300, 'LINES_STORIES')
const GROUPS = ['a', 'b', 'c'] as const

/** All that Redis holds of the jobs and the groups of a queue, at one moment. */
const SNAPSHOT = `
local base, found = ARGV[1], {}
local function pairs_of(key)
  local flat, rows = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}
  for i = 1, #flat, 2 do rows[#rows + 1] = { flat[i], flat[i + 1] } end
  return rows
end
for _, list in ipairs({ 'wait', 'active' }) do found[list] = redis.call('LRANGE', base .. list, 0, -1) end
for _, set in ipairs({ 'delayed', 'waiting-children' }) do found[set] = redis.call('ZRANGE', base .. set, 0, -1) end
found.prioritized, found.jobs, found.lines, found.states, found.held = pairs_of(base .. 'prioritized'), {}, {}, {}, {}
for _, key in ipairs(redis.call('KEYS', base .. 'meta:group:jobs:*')) do
  found.lines[string.sub(key, #base + #'meta:group:jobs:' + 1)] = pairs_of(key)
end
for _, state in ipairs({ 'ready', 'limited', 'full', 'paused', 'stale' }) do
  found.states[state] = redis.call('ZRANGE', base .. 'meta:groups:' .. state, 0, -1)
end
found.later = redis.call('ZRANGE', base .. 'meta:groups:later', 0, -1)
found.tracked = redis.call('HGET', base .. 'meta:groups', 'tracked') == '1'
local held = redis.call('HGETALL', base .. 'meta:groups:held')
for i = 1, #held, 2 do found.held[#found.held + 1] = { held[i], held[i + 1] } end
local function note(id) found.jobs[#found.jobs + 1] = { id, redis.call('HGET', base .. id, 'opts') or '' } end
for _, kind in ipairs({ 'wait', 'active', 'delayed', 'waiting-children' }) do
  for _, id in ipairs(found[kind]) do note(id) end
end
for _, row in ipairs(found.prioritized) do note(row[1]) end
return cjson.encode(found)`

type Rows = readonly (readonly [member: string, score: string])[]
interface Snapshot {
  readonly wait: readonly string[]
  readonly active: readonly string[]
  readonly delayed: readonly string[]
  readonly 'waiting-children': readonly string[]
  readonly prioritized: Rows
  readonly jobs: readonly (readonly [id: string, opts: string])[]
  readonly lines: Readonly<Record<string, Rows>>
  readonly states: Readonly<Record<string, readonly string[]>>
  readonly later: readonly string[]
  readonly tracked: boolean
  readonly held: readonly (readonly [id: string, group: string])[]
}

async function snapshot(queue: Queue): Promise<Snapshot> {
  const found = JSON.parse((await client.eval(SNAPSHOT, 0, queue.toKey(''))) as string) as Snapshot
  // Lua has one kind of empty table.
  const list = <T>(value: readonly T[]): readonly T[] => (Array.isArray(value) ? value : [])
  const states = Object.fromEntries(Object.entries(found.states).map(([name, ids]) => [name, list(ids)]))
  const [wait, active, delayed] = [list(found.wait), list(found.active), list(found.delayed)]
  const parents = list(found['waiting-children'])
  const rest = { prioritized: list(found.prioritized), jobs: list(found.jobs), later: list(found.later) }
  return { ...found, ...rest, wait, active, delayed, 'waiting-children': parents, states, held: list(found.held) }
}

/** By group and job, the score in the line. */
type Lines = Record<string, Record<string, number>>

function laterOf(groups: ReadonlyMap<string, { readonly id: string }>, id: string): string[] {
  const group = groups.get(id)?.id
  return group === undefined ? [] : [`${group.length}:${group}:${id}`]
}

/** What the lines, places and states have to be, by BullMQ's sets and the options of the jobs alone. */
function expected(found: Snapshot) {
  const groupOf = new Map(
    found.jobs.flatMap(([id, text]) => {
      const { group } = (text === '' ? {} : JSON.parse(text)) as { group?: { id: string; priority?: number } }
      return group ? [[id, { id: String(group.id), priority: group.priority ?? 0 }] as const] : []
    }),
  )
  const lines: Lines = {}
  for (const [id, score] of found.prioritized) {
    const group = groupOf.get(id)
    // Those of other scores were put there by stock clients.
    if (!group || Number(score) >= BAND) continue
    const line = lines[group.id] ?? {}
    line[id] = group.priority * BAND + Number(score)
    lines[group.id] = line
  }
  const later = [...found.delayed, ...found['waiting-children']].flatMap((id) => laterOf(groupOf, id))
  const running = found.active.flatMap((id) => (groupOf.has(id) ? [[id, groupOf.get(id)?.id]] : []))
  return { groupOf, lines, later: later.toSorted(), running: running.toSorted() }
}

/** What Sluice holds, in the same form. */
function stored(found: Snapshot) {
  const lines = Object.fromEntries(
    Object.entries(found.lines).map(([group, rows]) => [
      group,
      Object.fromEntries(rows.map(([id, score]) => [id, Number(score)])),
    ]),
  )
  return { lines, later: found.later.toSorted() }
}

/** Those lines without the priorities, and without the jobs of others. */
function numbersOf(lines: Lines, of: (id: string) => boolean): Lines {
  const rows = Object.entries(lines).flatMap(([group, line]) => {
    const own = Object.entries(line).filter(([id]) => of(id))
    return own.length > 0 ? [[group, Object.fromEntries(own.map(([id, score]) => [id, score % BAND]))] as const] : []
  })
  return Object.fromEntries(rows)
}

/**
 * After what a stock client did, and a report: jobs that it brought wait where it put them until they are at the head. One
 * to which it gave a priority stays in its line until then, and has that priority inside its group from then on.
 */
async function checkAfterStock(queue: ShapedQueue): Promise<void> {
  await queue.backend.store.run('report', ['', '', '{}', '0', ''])
  const found = await snapshot(queue)
  const { groupOf, lines, later } = expected(found)
  expect(groupOf.has(found.wait.at(-1) ?? '')).toBe(false)
  const elsewhere = new Set(found.prioritized.flatMap(([id, score]) => (Number(score) < BAND ? [] : [id])))
  const held = stored(found)
  expect(numbersOf(held.lines, (id) => !elsewhere.has(id))).toEqual(numbersOf(lines, () => true))
  const inStates = Object.values(found.states)
    .flat()
    .filter((id) => id !== '')
  expect(inStates.toSorted()).toEqual(Object.keys(held.lines).toSorted())
  // Where it delays a job, nothing is recorded; a place of one that it promoted is taken until it is in line.
  const promoted = found.wait.flatMap((id) => laterOf(groupOf, id))
  expect([...later, ...promoted]).toEqual(expect.arrayContaining(held.later.slice()))
}

/** What Redis holds. */
async function checkSets(queue: ShapedQueue): Promise<void> {
  const found = await snapshot(queue)
  const { groupOf, lines, later, running } = expected(found)
  // No job of a group waits outside its line: BullMQ's scores below those of priority 1 are theirs alone.
  expect(found.wait.filter((id) => groupOf.has(id))).toEqual([])
  const low = found.prioritized.filter(([, score]) => Number(score) < BAND).map(([id]) => id)
  expect(low.toSorted()).toEqual(
    found.prioritized
      .map(([id]) => id)
      .filter((id) => groupOf.has(id))
      .toSorted(),
  )
  expect(stored(found)).toEqual({ lines, later })
  const inStates = Object.values(found.states)
    .flat()
    .filter((id) => id !== '')
  expect(inStates.toSorted()).toEqual(Object.keys(lines).toSorted())
  if (found.tracked) expect(found.held.toSorted()).toEqual(running)
}

/** What users read. */
async function checkCounts(queue: ShapedQueue): Promise<void> {
  const found = await snapshot(queue)
  const { lines, later } = expected(found)
  const [groups, counts, count] = await Promise.all([
    Promise.all(GROUPS.map((id) => queue.getGroup(id))),
    queue.getGroupsCountByStatus(),
    queue.count(),
  ])
  for (const { id, status, ...group } of groups) {
    const waiting = Object.keys(lines[id] ?? {}).length
    const delayed = later.filter((member) => member.startsWith(`${id.length}:${id}:`)).length
    expect(group).toMatchObject({ waiting, delayed })
    if (waiting > 0) expect(status).not.toBe('idle')
    else expect(['idle', 'paused', 'limited']).toContain(status)
  }
  expect(Object.values(counts).reduce((sum, each) => sum + each)).toBe(Object.keys(lines).length)
  expect(count).toBe(
    found.wait.length + found.prioritized.length + found.delayed.length + found['waiting-children'].length,
  )
}

/** What a step of a history does in detail. */
interface Choice {
  readonly n: number
  readonly m: number
  readonly yes: boolean
}

/** A queue in a history, with all that acts on it. */
class World {
  readonly queue: ShapedQueue
  readonly stock: Queue
  readonly #flows: ShapedFlowProducer
  readonly #worker: ShapedWorker
  readonly dead: string
  readonly #taken: Job[] = []
  #tokens = 0

  constructor(shape: Shape) {
    this.queue = shop.queue(shape)
    const { name } = this.queue
    this.dead = `${name}-dead`
    this.stock = shop.keep(new Queue(name, { connection, prefix }))
    this.#flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
    this.#worker = shop.worker(this.queue, null, { deadLetter: this.dead, autorun: false })
  }

  /** Options of a job: two of three have a group. */
  opts({ n, m, yes }: Choice) {
    const id = [...GROUPS, undefined, undefined][n % 5]
    const delay = yes ? { delay: HOUR_MS } : {}
    if (id) return { ...delay, group: { id, ...(m % 3 ? { priority: m % 3 } : {}) } }
    return { ...delay, ...(m % 3 ? { priority: m % 3 } : {}), ...(m % 7 === 0 ? { lifo: true } : {}) }
  }

  /** The same as a stock client has it. */
  async pickStock(choice: Choice, ...states: JobType[]): Promise<Job | undefined> {
    const job = await this.pick(choice, ...states)
    return job && this.stock.getJob(job.id as string)
  }

  /** One of the jobs that are in one of these states. */
  async pick({ n }: Choice, ...states: JobType[]): Promise<Job | undefined> {
    const jobs = await this.queue.getJobs(states)
    return jobs[n % Math.max(1, jobs.length)]
  }

  /** After jobs were accepted. */
  async checkBound(): Promise<void> {
    const [shape, depth] = await Promise.all([this.queue.getShape(), this.queue.count()])
    if (shape?.mode === 'enforce') expect(depth).toBeLessThanOrEqual(shape.capacity ?? depth)
  }

  async take(): Promise<void> {
    this.#tokens += 1
    const token = `t${this.#tokens}`
    const job = (await this.#worker.getNextJob(token, { block: false })) as Job | undefined
    if (job) this.#taken.push(job)
  }

  /** Takes a job away from those that were taken. */
  taken({ n }: Choice): Job | undefined {
    return this.#taken.splice(n % Math.max(1, this.#taken.length), 1)[0]
  }

  async recover(job: Job): Promise<void> {
    await client.del(`${this.queue.toKey(job.id as string)}:lock`)
    const backend = this.#worker.getBackend()
    await client.del(this.queue.toKey('stalled-check'))
    await backend.moveStalledJobsToWait()
    await client.del(this.queue.toKey('stalled-check'))
    await backend.moveStalledJobsToWait()
  }

  async flow(choice: Choice): Promise<void> {
    const queueName = this.queue.name
    const { delay: _, lifo: __, ...opts } = this.opts(choice) as { delay?: number; lifo?: boolean }
    const child = (i: number): NonNullable<FlowJob['children']>[number] => ({
      name: 'child',
      queueName,
      data: {},
      opts: this.opts({ ...choice, n: choice.n + i, m: choice.m * i, yes: i === 1 && choice.yes }),
    })
    await this.#flows.add({ name: 'parent', queueName, data: {}, opts, children: [child(1), child(2)] })
  }

  async clear(): Promise<void> {
    this.#taken.length = 0
    await this.queue.obliterate({ force: true })
    const letters = await client.keys(`${prefix}:${this.dead}:*`)
    if (letters.length > 0) await client.del(letters)
  }

  async redrive(): Promise<void> {
    const shape = await this.queue.getShape()
    // A redrive waits for places.
    if (shape?.capacity) return
    await this.queue.redrive({ from: this.dead })
  }

  scheduler({ n, m, yes }: Choice) {
    const group = [...GROUPS, undefined][m % 4]
    const opts = group ? { group: { id: group } } : {}
    const repeat = { every: HOUR_MS, ...(yes ? { offset: HOUR_MS / 2 } : {}) }
    return this.queue.upsertJobScheduler(`s${n % 2}`, repeat, { name: 'tick', opts })
  }
}

/** Errors of calls that come when a job is elsewhere. */
function isExpected({ message }: Error): boolean {
  return /^(Missing (key|lock) for|Job .+ (belongs to a job scheduler|is not in the|could not be removed))/.test(
    message,
  )
}

type Steps = Readonly<Record<string, (world: World, choice: Choice) => Promise<unknown>>>

const WAITING = ['waiting', 'prioritized', 'delayed', 'waiting-children'] as const
const CLEANED = ['wait', 'prioritized', 'delayed', 'active', 'completed', 'failed', 'paused'] as const
const WHO = { by: 'ada', reason: 'a test' }

/** What users and tools do. */
const STEPS = {
  add: async (world: World, choice: Choice) => {
    await world.queue.add('add', {}, { ...world.opts(choice), attempts: 1 + (choice.m % 2) })
    await world.checkBound()
  },
  addBulk: async (world: World, choice: Choice) => {
    await world.queue.addBulk(
      [0, 1, 2].map((i) => ({
        name: 'bulk',
        data: {},
        opts: world.opts({ ...choice, n: choice.n + i * (choice.m % 2), yes: i === 2 && choice.yes }),
      })),
    )
    await world.checkBound()
  },
  flow: (world: World, choice: Choice) => world.flow(choice),
  offer: async (world: World, choice: Choice) => {
    const before = (await world.queue.count()) - (await world.queue.getDelayedCount())
    const offer = await world.queue.offer('offer', {}, { ...world.opts(choice), delay: 0 })
    if (!offer.accepted || offer.position === undefined) return
    expect(offer.position).toBeGreaterThanOrEqual(0)
    expect(offer.position).toBeLessThanOrEqual(before)
  },
  schedule: (world: World, choice: Choice) => world.scheduler(choice),
  unschedule: (world: World, { n }: Choice) => world.queue.removeJobScheduler(`s${n % 2}`),
  replace: (world: World, choice: Choice) =>
    world.queue.add(
      'replace',
      {},
      {
        ...world.opts({ ...choice, yes: choice.m % 4 !== 0 }),
        deduplication: { id: `d${choice.m % 2}`, ttl: HOUR_MS, replace: true, extend: choice.yes },
      },
    ),
  deduplicate: (world: World, choice: Choice) =>
    world.queue.add(
      'once',
      {},
      { ...world.opts(choice), deduplication: { id: `d${choice.m % 2}`, keepLastIfActive: choice.yes } },
    ),
  promote: async (world: World, choice: Choice) => (await world.pick(choice, 'delayed'))?.promote(),
  promoteAll: (world: World) => world.queue.promoteJobs(),
  changeDelay: async (world: World, choice: Choice) => (await world.pick(choice, 'delayed'))?.changeDelay(HOUR_MS / 2),
  changePriority: async (world: World, choice: Choice) =>
    (await world.pick(choice, ...WAITING))?.changePriority({ priority: choice.m % 4, lifo: choice.yes }),
  remove: async (world: World, choice: Choice) =>
    (await world.pick(choice, ...WAITING, 'completed', 'failed'))?.remove({ removeChildren: choice.yes }),
  removeUnprocessedChildren: async (world: World, choice: Choice) =>
    (await world.pick(choice, 'waiting-children'))?.removeUnprocessedChildren(),
  removeChildDependency: async (world: World, choice: Choice) =>
    (await world.pick(choice, 'waiting', 'prioritized', 'delayed'))?.removeChildDependency(),
  drain: (world: World, { yes }: Choice) => world.queue.drain(yes),
  clean: (world: World, { n, m }: Choice) => world.queue.clean(0, m % 3, CLEANED[n % CLEANED.length]),
  obliterate: async (world: World) => {
    await world.queue.obliterate({ force: true })
    // It has no shape until a program declares it again.
    await world.queue.getShape()
  },
  retry: async (world: World, choice: Choice) => (await world.pick(choice, 'failed'))?.retry(),
  retryOne: async (world: World, choice: Choice) => {
    const job = await world.pick(choice, 'failed')
    if (job) await changeFailed(world.queue, job.id as string, { kind: 'retry' })
  },
  deadLetter: async (world: World, choice: Choice) => {
    const job = await world.pick(choice, 'failed')
    if (job) await changeFailed(world.queue, job.id as string, { kind: 'deadLetter', to: world.dead })
  },
  removeFailed: async (world: World, choice: Choice) => {
    const job = await world.pick(choice, 'failed')
    if (job) await changeFailed(world.queue, job.id as string, { kind: 'remove' })
  },
  cancel: async (world: World, choice: Choice) => {
    const job = await world.pick(choice, ...WAITING, 'active')
    if (job) await world.queue.cancelJob(job.id as string, { reason: 'test', remove: choice.yes })
  },
  cancelMany: async (world: World, { n, yes }: Choice) => {
    await world.queue.cancelJobs({ group: GROUPS[n % 3] as string }, { reason: 'test', remove: yes })
  },
  retryAll: (world: World, { yes }: Choice) => world.queue.retryJobs({ state: yes ? 'failed' : 'completed' }),
  pause: (world: World) => world.queue.pause(),
  resume: (world: World) => world.queue.resume(),
  pauseGroup: (world: World, { n }: Choice) => world.queue.pauseGroup(GROUPS[n % 3] as string),
  resumeGroup: (world: World, { n }: Choice) => world.queue.resumeGroup(GROUPS[n % 3] as string),
  setGroup: (world: World, { n, yes }: Choice) =>
    world.queue.setGroup(GROUPS[n % 3] as string, yes ? { concurrency: 1, weight: 2 } : { rate: '1/h' }, WHO),
  clearGroup: (world: World, { n }: Choice) => world.queue.clearGroup(GROUPS[n % 3] as string),
  removeOrphanedJobs: (world: World) => world.queue.removeOrphanedJobs(),
  redrive: (world: World) => world.redrive(),
  take: (world: World) => world.take(),
  complete: async (world: World, choice: Choice) => {
    const job = world.taken(choice)
    await job?.moveToCompleted('done', job.token as string, false)
  },
  fail: async (world: World, choice: Choice) => {
    const job = world.taken(choice)
    await job?.moveToFailed(new Error('no'), job.token as string, false)
  },
  backOff: async (world: World, choice: Choice) => {
    const job = world.taken(choice)
    await job?.moveToDelayed(Date.now() + HOUR_MS, job.token as string)
  },
  giveBack: async (world: World, choice: Choice) => {
    const job = world.taken(choice)
    await job?.moveToWait(job.token as string)
  },
  stall: async (world: World, choice: Choice) => {
    const job = world.taken(choice)
    if (job) await world.recover(job)
  },
} satisfies Steps

/** What a tool does with a queue of BullMQ's own class. With mode 'off', our worker takes jobs as BullMQ's. */
const STOCK_STEPS = {
  setMode: (world: World, { n }: Choice) =>
    world.queue.setShape({ mode: (['off', 'shadow', 'enforce'] as const)[n % 3] as 'off' }, WHO),
  stockAdd: (world: World, choice: Choice) =>
    world.stock.addBulk(
      [0, 1].map((i) => ({ name: 'stock', data: {}, opts: world.opts({ ...choice, n: choice.n + i }) })),
    ),
  stockPromote: async (world: World, choice: Choice) => (await world.pickStock(choice, 'delayed'))?.promote(),
  stockChangeDelay: async (world: World, choice: Choice) =>
    (await world.pickStock(choice, 'delayed'))?.changeDelay(HOUR_MS / 2),
  stockChangePriority: async (world: World, choice: Choice) =>
    (await world.pickStock(choice, 'waiting', 'prioritized'))?.changePriority({
      priority: choice.m % 3,
      lifo: choice.yes,
    }),
  stockRemove: async (world: World, choice: Choice) =>
    (await world.pickStock(choice, ...WAITING, 'completed', 'failed'))?.remove({ removeChildren: choice.yes }),
  stockClean: (world: World, { n, m }: Choice) => world.stock.clean(0, m % 3, CLEANED[n % CLEANED.length]),
  stockDrain: (world: World, { yes }: Choice) => world.stock.drain(yes),
  stockRetryAll: (world: World, { yes }: Choice) => world.stock.retryJobs({ state: yes ? 'failed' : 'completed' }),
  stockPromoteAll: (world: World) => world.stock.promoteJobs(),
  stockUnschedule: (world: World, { n }: Choice) => world.stock.removeJobScheduler(`s${n % 2}`),
} satisfies Steps

type Kind = keyof typeof STEPS | keyof typeof STOCK_STEPS

async function act(world: World, { kind, ...choice }: Choice & { readonly kind: Kind }): Promise<void> {
  try {
    await { ...STEPS, ...STOCK_STEPS }[kind](world, choice)
  } catch (error) {
    if (!isRefusal(error) && !isExpected(error as Error)) throw error
  }
}

/** Half of the steps are these, or there would be nothing to do things with. */
const BRINGING: readonly Kind[] = ['add', 'addBulk', 'flow', 'offer', 'schedule', 'replace', 'deduplicate']
const OF_WORKERS: readonly Kind[] = [
  ...(['take', 'complete', 'fail', 'backOff', 'giveBack', 'stall'] as const),
  ...(['retry', 'retryOne', 'retryAll', 'redrive', 'deadLetter', 'removeFailed'] as const),
]
const OF_TOOLS = Object.keys(STOCK_STEPS) as Kind[]
const OTHERS = (Object.keys(STEPS) as Kind[]).filter((kind) => ![...BRINGING, ...OF_WORKERS].includes(kind))

const SHAPES: readonly Shape[] = [
  { groups: {} },
  { capacity: 20, groups: { capacity: 5 } },
  { capacity: 8, overflow: 'drop-oldest', groups: {} },
  { capacity: 8, overflow: 'drop-lowest', reservedPlaces: { 1: 2 }, groups: { concurrency: 1 } },
  { capacity: 20, groups: { rate: '2/h', burst: 2 }, priorityAgeingMs: 60_000 },
]

function histories(...kinds: readonly (readonly Kind[])[]) {
  const step = (of: readonly Kind[]) =>
    fc.record({ kind: fc.constantFrom(...of), n: fc.nat(99), m: fc.nat(99), yes: fc.boolean() })
  const steps = fc.array(fc.oneof(...kinds.map(step)), { minLength: 2, maxLength: 16 })
  return fc.record({ shape: fc.constantFrom(...SHAPES), steps })
}

async function holds(
  check: (queue: ShapedQueue) => Promise<void>,
  ...kinds: readonly (readonly Kind[])[]
): Promise<void> {
  const worlds = new Map<Shape, World>()
  const property = fc.asyncProperty(histories(...kinds), async ({ shape, steps }) => {
    const world = worlds.get(shape) ?? new World(shape)
    worlds.set(shape, world)
    try {
      await world.queue.getShape()
      for (const step of steps) {
        await act(world, step)
        await check(world.queue)
      }
      if (check === checkSets) await checkCounts(world.queue)
    } finally {
      await world.clear()
    }
  })
  // LINES_SHRINK=1 looks for the shortest history that fails.
  await fc.assert(property, { numRuns: RUNS / 3, endOnFailure: process.env.LINES_SHRINK === undefined })
}

test('after any history, without a worker, lines, places and counts are those of BullMQ', async () => {
  await holds(checkSets, BRINGING, OTHERS)
})

test('also with jobs that are taken, end and come back', async () => {
  await holds(checkSets, BRINGING, ['take'], OF_WORKERS, OTHERS)
})

test('what a stock client does in between is found out by the next report', async () => {
  await holds(checkAfterStock, BRINGING, ['take'], OF_WORKERS, OTHERS, OF_TOOLS, OF_TOOLS)
})

test('the groups of a queue that was drained are empty, and take jobs', async () => {
  const queue = shop.queue({ maxWaitMs: 5000, groups: { rate: '5/s', capacity: 24 } })
  const bulk = (count: number) =>
    queue.addBulk(Array.from({ length: count }, () => ({ name: 'j', data: {}, opts: { group: { id: 'a' } } })))
  await bulk(24)
  await queue.drain()
  expect(await queue.getGroup('a')).toMatchObject({ status: 'idle', waiting: 0, delayed: 0 })
  expect(await queue.getGroupsCountByStatus()).toEqual({ waiting: 0, limited: 0, maxed: 0, paused: 0 })
  expect(await queue.offer('j', {}, { group: { id: 'a' } })).toMatchObject({ accepted: true, position: 0 })
  await bulk(20)
})

test('a scheduler that is moved to another group, or removed, gives its place back at once', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  const upsert = (id: string) =>
    queue.upsertJobScheduler('s', { every: HOUR_MS, offset: HOUR_MS / 2 }, { name: 't', opts: { group: { id } } })
  for (const [id, other] of [['a', 'b'] as const, ['b', 'a'] as const]) {
    await upsert(id)
    expect(await queue.getGroup(id)).toMatchObject({ delayed: 1 })
    expect(await queue.getGroup(other)).toMatchObject({ delayed: 0 })
  }
  await queue.removeJobScheduler('s')
  for (const id of ['a', 'b']) await queue.add('j', {}, { group: { id } })
})

test('changePriority orders a job within its group, behind its equals or before them', async () => {
  const queue = shop.queue({ groups: {} })
  const add = (jobId: string, priority: number, opts = {}) =>
    queue.add('j', {}, { jobId, group: { id: 'a', priority }, ...opts })
  const jobs = await Promise.all(['j1', 'j2', 'j3', 'j4'].map((jobId) => add(jobId, 5)))
  const [j1, j2, j3, j4] = jobs as [Job, Job, Job, Job]
  const order = async () => (await queue.getGroupJobs('a')).map(({ id }) => id)
  await j2.changePriority({ priority: 1 })
  expect(await order()).toEqual(['j2', 'j1', 'j3', 'j4'])
  await j4.changePriority({ priority: 1 })
  expect(await order()).toEqual(['j2', 'j4', 'j1', 'j3'])
  await j3.changePriority({ priority: 1, lifo: true })
  expect(await order()).toEqual(['j3', 'j2', 'j4', 'j1'])
  await j1.changePriority({ priority: 0 })
  await j2.changePriority({})
  expect(await order()).toEqual(['j1', 'j2', 'j3', 'j4'])
  await j1.changePriority({ priority: 2_097_152 })
  expect(await order()).toEqual(['j2', 'j3', 'j4', 'j1'])
  expect(j1).toMatchObject({ opts: { group: { id: 'a', priority: 2_097_152 } }, priority: 0 })
  expect((await queue.getJob('j1'))?.opts).toMatchObject({ group: { id: 'a', priority: 2_097_152 } })
  expect((await queue.getJob('j1'))?.priority).toBe(0)
  expect(await queue.getCountsPerPriority([1, 2])).toEqual({ 1: 0, 2: 0 })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect((await departed.reach(4)).map(({ id }) => id)).toEqual(['j2', 'j3', 'j4', 'j1'])
})

test('a delayed job, a parent and a running job come into their group with the priority that was set meanwhile', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.waitUntilReady()
  const opts = { group: { id: 'a', priority: 5 } }
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const delayed = await queue.add('j', {}, { jobId: 'later', delay: HOUR_MS, ...opts })
  const queueName = queue.name
  const parent = { name: 'j', queueName, opts: { jobId: 'parent', ...opts } }
  const flow = await flows.add({ ...parent, children: [{ name: 'c', queueName, opts: { jobId: 'child' } }] })
  await queue.add('j', {}, { jobId: 'running', group: { id: 'a' } })
  const worker = shop.worker(queue, null, { autorun: false })
  const taken = [await worker.getNextJob('t', { block: false }), await worker.getNextJob('t', { block: false })]
  const running = taken.find((job) => job?.id === 'running') as Job
  await queue.addBulk(
    ['x', 'y'].map((jobId) => ({ name: 'j', data: {}, opts: { jobId, group: { id: 'a', priority: 3 } } })),
  )
  for (const job of [delayed, flow.job, running]) await job.changePriority({ priority: 2, lifo: true })
  for (const { opts } of [delayed, flow.job, running]) expect(opts).toMatchObject({ group: { id: 'a', priority: 2 } })
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 2, delayed: 2 })
  await delayed.promote()
  await running.moveToWait('t')
  await taken.find((job) => job?.id === 'child')?.moveToCompleted('', 't', false)
  const waiting = await queue.getGroupJobs('a')
  expect(waiting.map(({ id }) => id)).toEqual(['parent', 'running', 'later', 'x', 'y'])
  expect(waiting.map((job) => (job.opts as { group?: { priority?: number } }).group?.priority)).toEqual([2, 2, 2, 3, 3])
  await expect(delayed.changePriority({ priority: 1.5 })).rejects.toThrow(InvalidInputError)
})

test.each([-1, 2_097_153, 0.5, Number.NaN, '1', null])(
  'changePriority refuses %j and changes nothing',
  async (priority) => {
    const queue = shop.queue({ groups: {} })
    for (const opts of [{ group: { id: 'a', priority: 4 } }, { priority: 4 }]) {
      const job = await queue.add('j', {}, opts)
      await expect(job.changePriority({ priority: priority as number })).rejects.toThrow(
        'priority must be a whole number from 0 to 2097152',
      )
      expect((await queue.getJob(job.id as string))?.opts).toMatchObject(opts)
    }
  },
)
