import { afterEach, expect, test } from 'vitest'
import { encodeQueueLimits } from '../../../src/limits/queue-limits.ts'
import { encodeRate, isScheduled } from '../../../src/limits/schedule.ts'
import { replayText } from '../../groups/model/replay.ts'
import { caseCount, someOf } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import { type Decision, Decisions, decide, type NewJob } from './decisions.ts'
import { ReferenceKeys, type Taken } from './reference.ts'
import { ALL_FEATURES } from './shape.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

const DECISIONS = caseCount(200_000, 'KEYS_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const PER_CALL = 200
const CALLS_PER_HISTORY = 5
/** Redis replays one history while this process computes the next. */
const TOGETHER = 3
/** The number of the first job. */
const FIRST = 2 ** 20

/** The gate with the rate and the limits of the queue has tests of its own. */
const CHOICE = { hasChanges: false, hasQueueLimits: false, hasLanes: true, hasSchedules: true }

const RATES = { ...CHOICE, hasRateChanges: true }

type Operation = readonly (string | number)[]

afterEach(() => redis.cleanup(), 60_000)

/** A queue of the model, and what is to be done with that in Redis. */
class History {
  readonly #decisions: Decisions
  readonly #model: ReferenceKeys
  readonly #departures = new Map<string, number>()
  readonly #numbers = new Map<string, number>()

  constructor(seed: number) {
    this.#decisions = new Decisions(seed, ALL_FEATURES, seed % 3 === 0 ? RATES : CHOICE)
    this.#model = new ReferenceKeys(this.#decisions.shape, ALL_FEATURES, this.#decisions.nowUs)
  }

  /** The first departure looks at all groups that are held, as after a change of the defaults. */
  begin(): [Operation, string] {
    return [['depart', this.#decisions.nowUs, 0, 0], 'none ']
  }

  get shape(): readonly [defaults: string, limits: string] {
    const { groups, limits } = this.#decisions.shape
    return [JSON.stringify(groups), encodeQueueLimits(limits) ?? '']
  }

  /** What is done next, and what each of it returns. */
  next(): [Operation, string][] {
    const decision = this.#decisions.next()
    const { atUs } = decision
    switch (decision.verb) {
      case 'add':
        return decision.jobs.map((job) => {
          this.#numbers.set(job.id, this.#model.add(job, atUs))
          return [['add', atUs, job.id, optionsOf(job), job.group, job.priority, 0], '']
        })
      case 'take': {
        const taken = this.#do({ ...decision, wanted: 1 })
        const [departure] = taken.departures
        if (departure) this.#departures.set(departure.id, (this.#departures.get(departure.id) ?? 0) + 1)
        return [[['depart', atUs, decision.aheadUs ?? 0, decision.horizonUs], text(taken, atUs)]]
      }
      case 'back':
      case 'return': {
        this.#do(decision)
        const verb = decision.verb === 'back' ? 'back' : 'late'
        return [[[verb, atUs, decision.id, FIRST + (this.#numbers.get(decision.id) as number)], '']]
      }
      case 'settle': {
        this.#do(decision)
        const attempt = this.#departures.get(decision.id) as number
        return [[['settle', atUs, decision.id, attempt, decision.unit, decision.actual], '']]
      }
      default:
        this.#do(decision)
        return [[operationOf(decision), '']]
    }
  }

  /** As `lines` of replay.lua. */
  lines(): [Operation, string] {
    const cells = this.#model.cells.filter(({ line }) => line).sort((one, other) => (one.id < other.id ? -1 : 1))
    const found = cells.map(({ id, line }) => {
      const standing = line?.inOrder.flatMap((lane) => [lane.id, line.members.get(lane)]) ?? []
      const due = line?.dueUs === Number.POSITIVE_INFINITY ? 'inf' : (line?.dueUs ?? 'none')
      return `${id} ${due} ${standing.join(' ')}`
    })
    return [['lines', this.#decisions.nowUs], found.join('; ')]
  }

  #do(decision: Decision): Taken {
    const taken = decide(this.#model, decision)
    this.#decisions.note(taken)
    return taken
  }
}

function optionsOf({ group, keys, cost, costs, tier, priority }: NewJob): string {
  return JSON.stringify({
    cost,
    keys,
    ...(costs ? { costs } : {}),
    ...(tier === undefined ? {} : { tier }),
    ...(group === '' ? {} : { group: { id: group, priority } }),
  })
}

function operationOf(decision: Decision): Operation {
  const { atUs } = decision
  const set = (group: string, change: object, untilMs: number | '' = '') =>
    ['set', atUs, group, JSON.stringify(change), untilMs, ''] as const
  switch (decision.verb) {
    case 'finish':
      return ['finish', atUs, decision.id]
    case 'remove':
      return ['leave', atUs, decision.id]
    case 'pause':
      return set(decision.group, { paused: true }, decision.untilUs === undefined ? '' : decision.untilUs / 1000)
    case 'resume':
      return set(decision.group, { paused: { clear: true } })
    case 'set': {
      const cleared = { clear: true }
      return set(decision.group, {
        ...{ rate: cleared, burst: cleared, concurrency: cleared, weight: cleared },
        ...decision.settings,
      })
    }
    case 'shape':
      return ['limits', atUs, encodeQueueLimits(decision.shape.limits) ?? '']
    case 'own': {
      const cleared = { clear: true }
      const [[field, entry] = ['', undefined]] = Object.entries(decision.values ?? {})
      const change = entry
        ? { [field]: isScheduled(entry.value) ? encodeRate(entry.value) : entry.value }
        : { rate: cleared, burst: cleared, tier: cleared }
      const until = entry && entry.untilUs < Number.POSITIVE_INFINITY ? entry.untilUs / 1000 : ''
      return ['own', atUs, decision.limit, JSON.stringify(decision.keys), JSON.stringify(change), until]
    }
    default:
      throw new Error(`no operation for ${decision.verb}`)
  }
}

function text({ departures: [departure], untilUs }: Taken, nowUs: number): string {
  if (departure) return `${departure.id} ${departure.slotUs}`
  if (untilUs === undefined) return 'none '
  return `none ${untilUs === nowUs ? 0 : untilUs === Number.POSITIVE_INFINITY ? 'inf' : untilUs}`
}

/** @returns how many decisions were compared */
async function compareHistory(sha: string, seed: number): Promise<number> {
  const key = `${redis.prefix}:keys${seed}:meta:shape`
  const history = new History(seed)
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const [defaults, limits] = history.shape
    const steps = call === 0 ? [history.begin()] : []
    while (steps.length < PER_CALL) steps.push(...history.next())
    steps.push(history.lines())
    const operations = steps.map(([operation]) => operation)
    const replies = (await client.evalsha(
      sha,
      1,
      key,
      defaults,
      JSON.stringify(operations),
      limits,
      '',
      '',
    )) as string[]
    const at = replies.findIndex((reply, i) => reply !== steps[i]?.[1])
    if (at >= 0) {
      const story = operations.slice(0, at + 1).map((operation, i) => `${JSON.stringify(operation)} -> ${replies[i]}`)
      throw new Error(
        `seed ${seed}, call ${call}: expected ${steps[at]?.[1]}\n${defaults}\n${limits}\n${story.join('\n')}`,
      )
    }
    decisions += operations.filter(([name]) => name === 'depart').length
  }
  return decisions
}

test(`the Lua lets lanes leave as the model does, ${DECISIONS} times`, { timeout: 600_000 + DECISIONS }, async () => {
  const sha = (await client.script('LOAD', replayText)) as string
  let [seed, decisions] = [SEED, 0]
  const compare = async () => {
    while (decisions < DECISIONS) {
      const compared = await compareHistory(sha, seed++)
      decisions += compared
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, compare))
  expect(decisions).toBeGreaterThanOrEqual(DECISIONS)
})

const CARELESS = [
  ['keeps a key for a lane that waits for it', 'if was_kept then\nend_keep', 'if false then\nend_keep'],
  ['keeps nothing', 'if not behind then keep_others(g, pick, waited) end', ''],
  ['lets equal tags pass', 'tag > part.tag then return false end', 'tag >= part.tag then return false end'],
  ['has a lane go on with the priority of another first job', 'ticket.rank = modules.redis_as_text.us(rank)', ''],
  ['has one wait for another cell than that of its line', 'or waited.slot)', 'or 0)'],
  ['charges a group for a place that it gives up', 'as_text.us(kept - place.step)', 'as_text.us(kept)'],
  [
    'does not charge groups in lines',
    "redis.call('ZADD', tags_key(g, cell), modules.redis_as_text.us(place.tag + place.step), pick.group)",
    '',
  ],
  ['lets more lanes go than there are places', 'if is_full then', 'if false then'],
  ['forgets a place of the cell that is kept', 'line.between == 0 and passed', 'false and passed'],
  ['lets nobody go for a lane that has not taken its place', 'or line.between) then return end', ') then return end'],
  [
    'counts a new value of a key from its last charge on',
    '.at(key, after, now, packed, before)',
    '.at(key, after, now, packed)',
  ],
  [
    'ends a value of a key when that is looked at',
    '.at(key, after, at, packed, before)',
    '.at(key, after, at, packed)',
  ],
  ['counts the higher of two rates that follow the clock', 'sum = sum + math.min(', 'sum = sum + math.max('],
  ['counts a rate for the time before it was declared', 'math.max(seen, changed)', 'seen'],
  ['counts the rates between two changes', 'seen <= tonumber(rate_changes[2])', 'false'],
  ['takes an equal rate of a value for that of its limit', ' or changed_otherwise(one, other)', ''],
  ['forgets that an equal rate of a value applied', 'changed_otherwise(before, l)', 'false'],
  [
    'wakes no lane when a value of a key ends',
    'groups.cell_freed(g, ended[i], select(2, modules.limits_own_values.parts(ended[i])))',
    '',
  ],
  ['keeps a key without a limit', "and part.l.mode == 'enforce' and line_of", 'and line_of'],
  [
    'has a lane that was served go first again',
    'groups.next_number(g)))\nreturn groups.move',
    '0))\nreturn groups.move',
  ],
] as const

test.each(someOf(CARELESS))('a script that %s is found out', async (_what, text, broken) => {
  const careless = replayText.replace(text, broken)
  expect(careless).not.toBe(replayText)
  const sha = (await client.script('LOAD', careless)) as string
  const compare = async () => {
    for (let seed = 1; seed <= 60; seed++) await compareHistory(sha, seed)
  }
  await expect(compare()).rejects.toThrow('seed')
})
