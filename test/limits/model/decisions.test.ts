import { afterEach, expect, test } from 'vitest'
import { ALGORITHMS, type Algorithm, type LimitWire } from '../../../src/limits/definition.ts'
import { caseCount, someOf } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import type { Model } from './base.ts'
import { History, SCHEDULED } from './history.ts'
import { createModel } from './model.ts'
import { type Answer, DEPARTURES, type Known, type Operation, Replayer, stateKey } from './replay.ts'
import { isSameRate } from './scheduled.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** Of each algorithm. `npm run test:model` asks for 10 million. */
const DECISIONS = caseCount(30_000, 'MODEL_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** A call holds Redis up for others: some milliseconds. */
const OPERATIONS_PER_CALL = 150
/** Each but the first may begin with a change of the rule. */
const CALLS_PER_HISTORY = 4

/**
 * How a limit comes to another rule: it is told; it comes upon it, and the rule before is that of a tier; it comes upon it, and
 * a schedule before is forgotten; it comes upon it, having changed more than once since it was last looked at.
 */
const WAYS = ['told', 'tier', 'forgotten', 'twice'] as const
type Way = (typeof WAYS)[number]

afterEach(async () => {
  await redis.cleanup()
})

test.each(ALGORITHMS)(
  `%s decides as its model does, ${DECISIONS} times`,
  {
    timeout: 600_000 + DECISIONS / 4,
  },
  async (algorithm) => {
    const replayer = new Replayer(client)
    let decisions = 0
    for (let seed = SEED; decisions < DECISIONS; seed++) decisions += await compareHistory(replayer, algorithm, seed)
    expect(decisions).toBeGreaterThanOrEqual(DECISIONS)
  },
)

test('a script that rounds times more coarsely is found out', async () => {
  const coarse = new Replayer(client, (text) => text.replace('local GRID = 1024', 'local GRID = 512'))
  const compare = async () => {
    for (let seed = 1; seed <= 20; seed++) await compareHistory(coarse, 'gcra', seed)
  }
  await expect(compare()).rejects.toThrow('gcra, seed')
})

const CARELESS = [
  ['counts a debt in time', 'debt * l.interval / interval + granted', 'debt + granted'],
  ['counts the higher rate where none is known', 'sum = sum + math.min(', 'sum = sum + math.max('],
  ['forgets what was granted ahead', 'if debt > 0 and last > from then', 'if false then'],
  [
    'lets the new rate count from the last charge on',
    'gone = counted(old, seen, from)',
    'gone = counted(l, seen, from)',
  ],
  ['lets the new rate count for what it has forgotten', 'math.max(seen, changed)', 'seen'],
  ['counts rates that it does not know', 'seen <= tonumber(rate_changes[2])', 'false'],
] as const

test.each(someOf(CARELESS))('a change of a schedule that %s is found out', async (_what, text, broken) => {
  const careless = new Replayer(client, (lua) => lua.replace(text, broken))
  const compare = async () => {
    for (let seed = SCHEDULED; seed <= 20 * SCHEDULED; seed += SCHEDULED) {
      await compareHistory(careless, 'token-bucket', seed)
    }
  }
  await expect(compare()).rejects.toThrow('token-bucket, seed')
})

/** @returns how many decisions were compared */
async function compareHistory(replayer: Replayer, algorithm: Algorithm, seed: number): Promise<number> {
  const base = `${redis.prefix}:${algorithm}:h${seed}`
  const history = new History(algorithm, seed)
  const model = createModel(history.wire)
  const slots = new Map<Operation, number>()
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const changed = call > 0 && (history.followsClock || (seed + call) % 4 === 0)
    if (changed) history.changeRule((model.rule.burst ?? 0) - model.view().left)
    const drawn = Array.from({ length: OPERATIONS_PER_CALL }, () => history.next())
    let known: Known = {}
    if (changed) {
      const { now } = drawn[0] as Operation
      const way = WAYS[(seed + call) % WAYS.length] as Way
      known = change(model, history.wire, now, way)
      drawn.unshift({ verb: way === 'told' ? 'change' : 'peek', now })
    }
    const operations: Operation[] = []
    const expected = drawn.map((operation) => {
      const { cost = 1 } = operation.of ?? operation
      const at = slots.get(operation.of as Operation)
      // What was refused has charged nothing that could be undone.
      const verb = operation.verb === 'undo' && at === undefined ? 'peek' : operation.verb
      operations.push({ ...operation, verb, cost, at: at ?? operation.now })
      skip(model, known)
      return answerOf(model, operations.at(-1) as Operation, (us) => slots.set(operation, us))
    })
    const found = await replayer.replay(base, [{ ...history.wire, ...known }], operations)
    for (const [i, operation] of operations.entries()) {
      if (!isSame(found[i]!, expected[i]!)) {
        const story = operations.slice(Math.max(0, i - 7), i + 1).map((told) => JSON.stringify(told))
        const name = `${algorithm}, seed ${seed}, call ${call}, operation ${i}`
        expect(found[i], `${name}: ${JSON.stringify(history.wire)}\n${story.join('\n')}`).toEqual(expected[i])
      }
      if (isDecision(operation)) decisions += 1
    }
  }
  await client.unlink(stateKey(base))
  return decisions
}

/** @returns what the limit knows then of the rule before */
function change(model: Model, wire: LimitWire, now: number, way: Way): Known {
  const before = model.rule
  const { changedUs } = model
  const since = Math.floor((Math.max(changedUs, 0) + now) / 2)
  const isTwice = way === 'twice' && changedUs >= 0 && changedUs <= since
  const rateChanges = [`${since}`, isTwice ? `${changedUs}` : '0'] as const
  skip(model, { rate_changes: rateChanges })
  model.now = now
  model.change(wire, way === 'told' && !isSameRate(before, wire), way === 'forgotten' ? since : undefined)
  if (way === 'told') return { before }
  if (way === 'forgotten') return { rate_changes: rateChanges }
  return {
    tiers: { before: { ...before, schedule: before.schedule ?? false } },
    ...(isTwice ? { rate_changes: rateChanges } : {}),
  }
}

/** No time counts from a state that is older than the last two changes up to the last one. */
function skip(model: Model, { rate_changes: rateChanges }: Known): void {
  const [last, earlier] = (rateChanges ?? ['0', '0']).map(Number) as [number, number]
  if (model.changedUs >= 0 && model.changedUs <= earlier) model.skipTo(last)
}

function isSame(one: Answer, other: Answer): boolean {
  return (
    one.offset === other.offset &&
    one.allowed === other.allowed &&
    one.left === other.left &&
    one.resetAt === other.resetAt
  )
}

function isDecision({ verb }: Operation): boolean {
  return verb === 'take' || verb === 'peek' || verb === 'reserve' || verb === 'late' || verb === 'depart'
}

/** @param charged called with each time that was charged, µs */
function answerOf(model: Model, operation: Operation, charged: (us: number) => void): Answer {
  const { verb, now, cost = 1, ahead = 0, lease = 0 } = operation
  const said = (offset: number) => ({ offset, allowed: false, left: 0, resetAt: 0 })
  model.now = now
  switch (verb) {
    case 'lose':
      model.lose()
      return said(0)
    case 'extend':
      return said(model.extend(lease, cost))
    case 'release':
      return said(model.release(lease, cost))
    case 'back': {
      const allowed = model.takeBack(cost, operation.at as number)
      return { offset: 0, allowed, ...model.view() }
    }
    case 'undo':
      model.undo(cost)
      return { offset: 0, allowed: true, ...model.view() }
    case 'settle':
      model.settle(cost)
      return { offset: 0, allowed: true, ...model.view() }
  }
  if (verb === 'depart') return departures(model, operation, charged)
  const offset = model.earliest(cost)
  const latest = { peek: 0, change: 0, take: 0, reserve: ahead, late: Number.POSITIVE_INFINITY }[verb as 'take']
  const allowed = offset <= latest
  if (allowed && verb !== 'peek' && verb !== 'change') {
    const chargedOffset = verb === 'late' ? offset + ahead : offset
    model.commit(cost, chargedOffset, lease)
    charged(now + Math.ceil(chargedOffset))
  }
  return { offset, allowed, ...model.view() }
}

function departures(
  model: Model,
  { cost = 1, ahead = 0, lease = 0 }: Operation,
  charged: (us: number) => void,
): Answer {
  let count = 0
  for (; count < DEPARTURES && model.earliest(cost) <= ahead; count++) {
    const offset = model.earliest(cost)
    model.commit(cost, offset, lease + count + 1)
    charged(model.now + Math.ceil(offset))
  }
  return { offset: model.earliest(cost), allowed: count > 0, ...model.view() }
}
