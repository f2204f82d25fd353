import { expect, test } from 'vitest'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { History } from './history.ts'
import { Mirror } from './mirror.ts'
import { type Operation, type Outcome, Replayer } from './replay.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** Decisions: jobs to which the meter granted or refused a slot. `npm run test:model` runs 10 million. */
const DECISIONS = caseCount(60_000, 'MODEL_DECISIONS')
const SCHEDULED_DECISIONS = caseCount(200_000, 'MODEL_DECISIONS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
/** A call blocks Redis for some milliseconds. */
const OPERATIONS_PER_CALL = 150
const CALLS_PER_HISTORY = 8
/** Redis replays one history while this process computes the next. */
const TOGETHER = 3
/** 50 days. */
const EXACT_TICKS = 2n ** 52n

test.each([
  ['at fixed rates', 'to the last bit', DECISIONS, false],
  ['at rates that follow the clock', 'to the microsecond', SCHEDULED_DECISIONS, true],
])(
  '%s the scripts decide as the reference does, %s, %i times',
  {
    timeout: 600_000 + SCHEDULED_DECISIONS,
  },
  async (_at, _how, least, scheduled) => {
    const replayer = new Replayer(client)
    let [seed, decisions] = [SEED, 0]
    const compare = async () => {
      while (decisions < least) {
        const base = `${redis.prefix}:h${scheduled}${seed}:`
        const compared = await compareHistory(replayer, base, seed++, scheduled)
        decisions += compared
        const keys = await client.keys(`${base}*`)
        if (keys.length > 0) await client.unlink(...keys)
      }
    }
    await Promise.all(Array.from({ length: TOGETHER }, compare))
    expect(decisions).toBeGreaterThanOrEqual(least)
  },
)

test('a time is written in full, whatever it is', async () => {
  const script = new LuaComposer(readLuaFile).text(
    "local as_text = use 'redis/as-text'\nreturn as_text.us(tonumber(ARGV[1]))",
  )
  const written = (us: number) => client.eval(script, 0, String(us))
  const times = [0, 1, 999_999, 1_000_000, 2_147_483_648, 1_764_383_453_000_007, 1_999_999_999_999_999]
  for (const us of [...times, -5, -3_000_000_001, 2_000_000_000_000_001, Number.MAX_SAFE_INTEGER])
    expect(await written(us)).toBe(String(us))
  expect(await written(1_764_383_453_123.75)).toBe('1764383453124')
  expect(await written(Number.POSITIVE_INFINITY)).toBe('inf')
})

/** @returns how many decisions were compared */
async function compareHistory(replayer: Replayer, base: string, seed: number, scheduled: boolean): Promise<number> {
  const history = new History(seed, scheduled)
  const fingerprint = scheduled ? repliesOf : stateOf
  const mirror = new Mirror()
  let decisions = 0
  for (let call = 0; call < CALLS_PER_HISTORY; call++) {
    const operations = Array.from({ length: OPERATIONS_PER_CALL }, () => history.next())
    mirror.beginCall()
    const expected = operations.map((operation) => mirror.apply(operation))
    const found = await replayer.replay(base, operations)
    for (const [i, operation] of operations.entries()) {
      const outcome = expected[i] as Outcome
      if (!isExact(outcome, operation.now)) return decisions
      if (fingerprint(found[i] as Outcome) !== fingerprint(outcome)) {
        const story = operations.slice(Math.max(0, i - 5), i + 1).map((told) => JSON.stringify(told))
        expect(found[i], `seed ${seed}, call ${call}, operation ${i}:\n${story.join('\n')}`).toEqual(outcome)
      }
      decisions += decisionsOf(operation, outcome)
    }
  }
  return decisions
}

// A bucket whose mode is off decides nothing.
function decisionsOf({ what }: Operation, { reply, meter }: Outcome): number {
  if (what !== 'depart' || meter?.mode === 'off') return 0
  const [grants, stop] = reply as [unknown[], string]
  return grants.length + (stop === 'closed' ? 1 : 0)
}

function repliesOf({ reply }: Outcome): string {
  return JSON.stringify(reply)
}

function stateOf({ reply, meter }: Outcome): string {
  if (!meter) return JSON.stringify(reply)
  const { tat, last, intervalUs, burst, mode, horizonUs } = meter
  return `${JSON.stringify(reply)} ${tat} ${last} ${intervalUs} ${burst} ${mode} ${horizonUs}`
}

// The last bits are not exact for a bucket that was unused for months, or that is months in debt.
function isExact({ meter }: Outcome, now: number): boolean {
  const ticks = BigInt(now) * 1024n
  return meter === undefined || (ticks - meter.last < EXACT_TICKS && meter.tat - ticks < EXACT_TICKS)
}
