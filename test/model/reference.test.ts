import { afterEach, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { History } from './history.ts'
import { Mirror } from './mirror.ts'
import { type Operation, type Outcome, Replayer } from './replay.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** Decisions: jobs that the meter granted a slot or refused. `npm run test:model` asks for 10 million. */
const DECISIONS = Number(process.env.MODEL_DECISIONS ?? 200_000)
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** A call holds Redis up for others: some milliseconds. */
const OPERATIONS_PER_CALL = 150
const CALLS_PER_HISTORY = 8
const LONG_AGO_TICKS = 2n ** 52n

afterEach(() => redis.cleanup())

test(`the scripts decide as the reference does, to the last bit, ${DECISIONS} times`, {
  timeout: 60_000 + DECISIONS / 4,
}, async () => {
  const replayer = new Replayer(client)
  let decisions = 0
  for (let seed = SEED; decisions < DECISIONS; seed++) decisions += await compareHistory(replayer, seed)
  expect(decisions).toBeGreaterThanOrEqual(DECISIONS)
})

/** @returns how many decisions were compared */
async function compareHistory(replayer: Replayer, seed: number): Promise<number> {
  const base = `${redis.prefix}:h${seed}:`
  const history = new History(seed)
  const mirror = new Mirror()
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const operations = Array.from({ length: OPERATIONS_PER_CALL }, () => history.next())
    mirror.beginCall()
    const expected = operations.map((operation) => mirror.apply(operation))
    const found = await replayer.replay(base, operations)
    const wrong = operations.findIndex(
      ({ now }, i) => fingerprint(found[i] as Outcome, now) !== fingerprint(expected[i] as Outcome, now),
    )
    if (wrong >= 0) {
      (globalThis as any).EX = expected.slice(Math.max(0, wrong - 60)).map((x)=>fingerprint(x,0).slice(0,300))
      const tail = operations.slice(Math.max(0, wrong - 60), wrong + 1)
      expect(found[wrong], `seed ${seed}, call ${call}, operation ${wrong}:\n${show(tail)}`).toEqual(expected[wrong])
    }
    decisions += expected.reduce((sum, { reply }, i) => sum + decisionsOf(operations[i] as Operation, reply), 0)
  }
  await redis.cleanup()
  return decisions
}

function decisionsOf({ what }: Operation, reply: unknown): number {
  if (what !== 'depart') return 0
  const [grants, stop] = reply as [unknown[], string]
  return grants.length + (stop === 'closed' ? 1 : 0)
}

function fingerprint({ reply, meter }: Outcome, now: number): string {
  if (!meter) return JSON.stringify(reply)
  const { tat, last, intervalUs, burst, mode, horizonUs } = meter
  const state = [recent(tat, now), recent(last, now), intervalUs, burst, mode, horizonUs]
  return `${JSON.stringify(reply)} ${state.join(' ')}`
}

// What was months ago is not kept to the last bit, and decides nothing.
function recent(ticks: bigint, now: number): bigint | string {
  return BigInt(now) * 1024n - ticks > LONG_AGO_TICKS ? 'long ago' : ticks
}

function show(operations: readonly Operation[]): string {
  return operations.map((operation,i) => JSON.stringify(operation).slice(0,150)+String((globalThis as any).EX[i])).join('\n')
}
