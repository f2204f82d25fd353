import { afterEach, expect, test } from 'vitest'
import { ALGORITHMS, type Algorithm, type LimitWire } from '../../../src/limits/definition.ts'
import { caseCount } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import type { Model } from './base.ts'
import { History } from './history.ts'
import { createModel } from './model.ts'
import { type Answer, DEPARTURES, type Operation, Replayer, stateKey } from './replay.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** Of each algorithm. `npm run test:model` asks for 10 million. */
const DECISIONS = caseCount(30_000, 'MODEL_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** A call holds Redis up for others: some milliseconds. */
const OPERATIONS_PER_CALL = 150
/** Each but the first may begin with a change of the rule. */
const CALLS_PER_HISTORY = 4

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

/** @returns how many decisions were compared */
async function compareHistory(replayer: Replayer, algorithm: Algorithm, seed: number): Promise<number> {
  const base = `${redis.prefix}:${algorithm}:h${seed}`
  const history = new History(algorithm, seed)
  const model = createModel(history.wire)
  const slots = new Map<Operation, number>()
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const changed = call > 0 && !(history.wire.schedule && history.wire.interval) && (seed + call) % 4 === 0
    if (changed) history.changeRule((model.rule.burst ?? 0) - model.view().left)
    const drawn = Array.from({ length: OPERATIONS_PER_CALL }, () => history.next())
    if (changed) drawn.unshift(firstAfter(model, history.wire, drawn[0]!, (seed + call) % 8 === 0))
    const operations: Operation[] = []
    const expected = drawn.map((operation) => {
      const { cost = 1 } = operation.of ?? operation
      const at = slots.get(operation.of as Operation)
      // What was refused has charged nothing that could be undone.
      const verb = operation.verb === 'undo' && at === undefined ? 'peek' : operation.verb
      operations.push({ ...operation, verb, cost, at: at ?? operation.now })
      return answerOf(model, operations.at(-1) as Operation, (us) => slots.set(operation, us))
    })
    const found = await replayer.replay(base, [history.wire], operations)
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

/** Changes the rule of a model. @returns what is done then to the limit: it is told of that, or comes upon it */
function firstAfter(model: Model, wire: LimitWire, { now }: Operation, told: boolean): Operation {
  model.now = now
  model.change(wire, told)
  return { verb: told ? 'change' : 'peek', now }
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
