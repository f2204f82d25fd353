import { setImmediate } from 'node:timers/promises'
import { createLimiter, type Limiter } from 'sluice/limits'
import { worstExcess } from '../../workers/demo/windows.ts'
import { type Figure, type Row, withClient } from '../figure.ts'
import type { RedisAddress } from '../fleet/protocol.ts'
import { type Quota, ruleOf } from '../limits/contenders.ts'
import { sum } from '../measure/statistics.ts'

const ASKED_PER_SECOND = 1_000_000
const LIMITERS = 3
const SYNC = { intervalMs: 50, share: 0.1, processes: LIMITERS }
/** Far above the load, and far below it: all of it passes from memory, or most is refused. */
const QUOTAS: readonly Quota[] = [
  { limit: 50_000_000, periodS: 1, burst: 10_000_000 },
  { limit: 10_000, periodS: 1, burst: 1000 },
]
const RUN_MS = 5000
const QUICK_RUN_MS = 1000
/** After this many calls the event loop gets a turn, as between requests. */
const TOGETHER = 1000

interface Hammered {
  readonly perSecond: number
  readonly passed: number
  /** The largest excess over the limit in any window, units. */
  readonly overshoot: number
}

/** Takes units of one key as fast as possible. @returns the number of calls, and when each allowed one passed, µs */
async function hammerOne(limiter: Limiter, untilMs: number): Promise<{ asked: number; passedUs: number[] }> {
  const passedUs: number[] = []
  let asked = 0
  while (performance.now() < untilMs) {
    for (let i = 0; i < TOGETHER; i++) {
      const { allowed } = await limiter.take('everybody')
      if (allowed) passedUs.push(Math.round(performance.now() * 1000))
    }
    asked += TOGETHER
    await setImmediate()
  }
  return { asked, passedUs }
}

async function hammer(limiters: readonly Limiter[], { limit, periodS, burst }: Quota, ms: number): Promise<Hammered> {
  const startMs = performance.now()
  const done = await Promise.all(limiters.map((limiter) => hammerOne(limiter, startMs + ms)))
  const elapsedMs = performance.now() - startMs
  const passedUs = done.flatMap((one) => one.passedUs).sort((a, b) => a - b)
  const overshoot = worstExcess(passedUs, { limit, burst, periodUs: periodS * 1e6 })
  return { perSecond: (sum(done.map(({ asked }) => asked)) / elapsedMs) * 1000, passed: passedUs.length, overshoot }
}

function withLimiters<T>(
  redis: RedisAddress,
  quota: Quota,
  use: (limiters: readonly Limiter[]) => Promise<T>,
  limiters: readonly Limiter[] = [],
): Promise<T> {
  if (limiters.length === LIMITERS) return use(limiters)
  return withClient(redis, (client) => {
    const limiter = createLimiter(client, { ...ruleOf('gcra', quota), name: `local-${quota.limit}`, sync: SYNC })
    return withLimiters(redis, quota, use, [...limiters, limiter])
  })
}

async function measure(redis: RedisAddress, quota: Quota, ms: number): Promise<Row> {
  const { perSecond, passed, overshoot, bound } = await withLimiters(redis, quota, async (limiters) => {
    // Connects the limiters and defines the limit; its burst is still full.
    for (const limiter of limiters) await limiter.peek()
    return { ...(await hammer(limiters, quota, ms)), bound: (limiters[0] as Limiter).overshootBound }
  })
  const above = Math.max(0, overshoot)
  // Where the limit is reached, each returning unit takes a call to Redis.
  const fast = quota === QUOTAS[0]
  return {
    setup: `${LIMITERS} limiters on ${LIMITERS} connections, one process, one key, ${quota.limit}/s, bursts of ${quota.burst}`,
    asked: `${fast ? `>= ${ASKED_PER_SECOND}/s, ` : ''}<= ${Math.floor(bound)} above the limit`,
    reached: `${perSecond.toFixed(0)}/s, ${above} above the limit (${passed} passed)`,
    ok: (!fast || perSecond >= ASKED_PER_SECOND) && above <= bound,
    values: { perSecond, passed, overshoot, bound },
  }
}

export const limitsLocal: Figure = {
  name: 'limits-local',
  title: `Local approximation (sync: ${JSON.stringify(SYNC)}): decisions, and the worst excess over the limit in any window`,
  headings: ['', 'asked', 'reached', 'ok', ''],
  run: async ({ client, redis, quick }) => {
    await client.flushdb()
    const rows: Row[] = []
    for (const quota of QUOTAS) rows.push(await measure(redis, quota, quick ? QUICK_RUN_MS : RUN_MS))
    return rows
  },
}
