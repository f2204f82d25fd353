import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { RateLimiterUnion } from 'rate-limiter-flexible'
import type { QueueLimit } from 'sluice'
import { combine, createLimiter, type Limiter, type LimiterOptions } from 'sluice/limits'
import { mostWithin, worstExcess } from '../workers/demo/windows.ts'
import { atLeast, atMost, compared, medianOf, rounds } from './harness/compare.ts'
import { ALONE, type Bench, connectionTo, type Figure, inTurn, type Row, withClient } from './harness/figure.ts'
import { type Cost, costOf } from './harness/redis.ts'
import { ascending, sum } from './harness/statistics.ts'
import { drainOnce } from './harness/workers.ts'
import {
  COMPARABLE,
  CONTENDERS,
  type Contender,
  flexible,
  type Ours,
  passing,
  type Quota,
  ruleOf,
  type Take,
  takeFrom,
} from './limits-contenders.ts'

const OTHERS = ['', 'asked', 'reached', 'ok', 'other libraries']

/** All requests pass, or almost none. */
const LOADS = {
  allowed: { quota: { limit: 1_000_000, periodS: 60, burst: 1_000_000 }, least: 0.99, most: 1 },
  refused: { quota: { limit: 1, periodS: 60, burst: 1 }, least: 0, most: 0.05 },
} as const
type Load = keyof typeof LOADS

/** The load, how many callers there are, and for how long they call. */
interface Calling {
  readonly load: Load
  readonly concurrency: number
  readonly ms: number
}

const KEYS = Array.from({ length: 100 }, (_, i) => `user-${String(i).padStart(3, '0')}`)
/** Warm-up calls per key: scripts are loaded, limits defined, and limits of one unit used up. */
const WARM_UP = 3

/** What a decision costs on an otherwise idle, empty Redis. */
async function decisions(redis: Redis, take: Take, { load, concurrency, ms }: Calling): Promise<Cost> {
  await redis.flushdb()
  for (let i = 0; i < WARM_UP; i++) await Promise.all(KEYS.map(take))
  let [asked, passed] = [0, 0]
  const cost = await costOf(redis, async () => {
    const untilMs = performance.now() + ms
    const caller = async () => {
      while (performance.now() < untilMs) if (await take(KEYS[asked++ % KEYS.length] as string)) passed += 1
    }
    await Promise.all(Array.from({ length: concurrency }, caller))
    return { units: asked }
  })
  const { least, most } = LOADS[load]
  if (passed < least * asked || passed > most * asked)
    throw new Error(`${passed} of ${asked} passed where nearly all were ${load}`)
  return cost
}

/** Required ratio to the decisions per second of the fastest comparable library. */
const CASES = [
  { concurrency: 1, asked: undefined },
  { concurrency: 100, asked: atLeast(1.2) },
]

const limitsDecisions: Figure = {
  name: 'limits-decisions',
  title:
    'Decisions of sluice/limits over the fastest library that does the same: median of interleaved rounds, the first ' +
    'discarded; 100 keys in turn; CPU of the client, time inside scripts and calls to Redis per decision',
  headings: OTHERS,
  run: ({ redis, quick }) =>
    withClient(redis, (client) =>
      inTurn(CASES, ({ concurrency, asked }) =>
        inTurn(['allowed', 'refused'] as const, async (load) => {
          const names = Object.keys(CONTENDERS) as Contender[]
          const takes = new Map(names.map((name) => [name, CONTENDERS[name](client, LOADS[load].quota)]))
          const calling = { load, concurrency, ms: quick ? 150 : 1000 }
          const measured = await rounds(quick, names, (name) => decisions(client, takes.get(name) as Take, calling))
          return (Object.keys(COMPARABLE) as Ours[]).map((ours) => {
            const over: readonly Contender[] = COMPARABLE[ours]
            // What is compared with the log only is the nearest to it.
            const bound = ours === 'sliding-window-log' ? {} : { asked }
            return compared(`${ours}, ${concurrency} at once, ${load}`, measured, { ours, over, ...bound })
          })
        }),
      ),
    ),
}

const MANY = 1_000_000
const COMBINED: readonly LimiterOptions[] = [
  { name: 'per-second', algorithm: 'gcra', rate: { limit: MANY, period: 1000 }, burst: MANY },
  { name: 'per-hour', algorithm: 'sliding-window-counter', rate: { limit: MANY * 60, period: 3_600_000 } },
  { name: 'per-day', algorithm: 'fixed-window', rate: { limit: MANY * 60, period: 86_400_000 } },
]
const NAMES = COMBINED.map(({ name }) => name)
const UNION = 'rate-limiter-flexible RateLimiterUnion'

async function combinedRow(redis: Redis, quick: boolean, concurrency: number): Promise<Row> {
  const limiters = COMBINED.map((options) => createLimiter(redis, { ...options, timeoutMs: 5000 }))
  const all = combine(limiters)
  const union = [1, 3600, 86_400].map((seconds) => flexible(redis, `every-${seconds}`, MANY, seconds))
  const takes: Readonly<Record<string, Take>> = {
    ...Object.fromEntries(limiters.map((limiter) => [limiter.name, takeFrom(limiter)])),
    together: async (key) => (await all.take(Object.fromEntries(NAMES.map((name) => [name, key])))).allowed,
    [UNION]: passing(new RateLimiterUnion(...union)),
  }
  const calling = { load: 'allowed', concurrency, ms: quick ? 300 : 1000 } as const
  const costs = await rounds(quick, Object.keys(takes), (way) => decisions(redis, takes[way] as Take, calling))
  const mean = (values: readonly number[]) => sum(values) / values.length
  const measured = costs.map((round) => {
    return {
      ...round,
      'one alone': medianOf(
        NAMES.map((name) => round[name] as Cost),
        mean,
      ),
    }
  })
  return compared<string>(`three limits combined over one alone, ${concurrency} at once`, measured, {
    ...{ ours: 'together', over: ['one alone'], also: [UNION] },
    ...{ of: ({ scriptUs }) => scriptUs, asked: atMost(1.5) },
  })
}

const limitsCombined: Figure = {
  name: 'limits-combined',
  title:
    'Time inside scripts of a decision over gcra per second, a sliding counter per hour and a fixed window per day',
  headings: OTHERS,
  run: ({ redis, quick }) =>
    withClient(redis, (client) => inTurn([1, 100], (concurrency) => combinedRow(client, quick, concurrency))),
}

/** So many that no limit holds a job. */
const QUEUE_LIMITS: readonly QueueLimit[] = COMBINED.map(({ rate, ...limit }) => ({
  ...limit,
  rate: { ...(rate as { period: number }), limit: 10 * MANY },
})) as QueueLimit[]

const limitsDepartures: Figure = {
  name: 'limits-departures',
  title:
    'Drain of a queue with gcra per second, a sliding counter per hour and a fixed window per day beside one without',
  headings: ALONE,
  run: (bench) =>
    inTurn([50, 200], async (concurrency) => {
      const jobs = concurrency === 50 ? 15_000 : 20_000
      const measured = await rounds(bench.quick, ['none', 'limited'] as const, (way) =>
        drainOnce(bench, 'sluice', { concurrency, jobs, shape: way === 'limited' ? { limits: QUEUE_LIMITS } : {} }),
      )
      const bound = { ours: 'limited', over: ['none'], asked: atLeast(0.9) } as const
      return compared(`three limits over none, concurrency ${concurrency}`, measured, bound)
    }),
}

/** The cost of `spread: 'key'` without a cluster, where it has no benefit. */
const limitsSpread: Figure = {
  name: 'limits-spread',
  title: 'Decisions of a limit that is spread by key over those of one that is not, on one server; 100 keys in turn',
  headings: ['', 'asked', 'reached', 'ok', 'not spread'],
  run: ({ redis, quick }) =>
    withClient(redis, (client) =>
      inTurn([1, 100], async (concurrency) => {
        const rule = ruleOf('gcra', LOADS.allowed.quota)
        const takes = {
          together: takeFrom(createLimiter(client, { ...rule, name: 'together' })),
          spread: takeFrom(createLimiter(client, { ...rule, name: 'spread', spread: 'key' })),
        }
        const calling = { load: 'allowed', concurrency, ms: quick ? 300 : 1000 } as const
        const ways = ['together', 'spread'] as const
        const measured = await rounds(quick, ways, (way) => decisions(client, takes[way], calling))
        return compared(`gcra, ${concurrency} at once`, measured, { ours: 'spread', over: ['together'] })
      }),
    ),
}

const ASKED_PER_SECOND = 1_000_000
const LIMITERS = 3
const SYNC = { intervalMs: 50, share: 0.1, processes: LIMITERS }
/** Far above the load, and far below it: all of it passes from memory, or most is refused. */
const QUOTAS: readonly Quota[] = [
  { limit: 50_000_000, periodS: 1, burst: 10_000_000 },
  { limit: 10_000, periodS: 1, burst: 1000 },
]
/** After this many calls the event loop gets a turn, as between requests. */
const TOGETHER = 1000

/** Takes units of one key as fast as possible. @returns the number of calls, and when each allowed one passed, µs */
async function hammer(limiter: Limiter, untilMs: number): Promise<{ asked: number; passedUs: number[] }> {
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

async function localRow({ redis, quick }: Bench, quota: Quota): Promise<Row> {
  const { limit, burst, periodS } = quota
  const options = { ...ruleOf('gcra', quota), name: `local-${limit}`, sync: SYNC }
  const clients = Array.from({ length: LIMITERS }, () => new Redis(connectionTo(redis)))
  const limiters = clients.map((client) => createLimiter(client, options))
  // Connects the limiters and defines the limit; its burst is still full.
  for (const limiter of limiters) await limiter.peek()
  const startMs = performance.now()
  const done = await Promise.all(limiters.map((limiter) => hammer(limiter, startMs + (quick ? 1000 : 5000))))
  const perSecond = (sum(done.map(({ asked }) => asked)) / (performance.now() - startMs)) * 1000
  for (const client of clients) client.disconnect()
  const passedUs = ascending(done.flatMap((one) => one.passedUs))
  const above = Math.max(0, worstExcess(passedUs, { limit, burst, periodUs: periodS * 1e6 }))
  const bound = (limiters[0] as Limiter).overshootBound
  // Where the limit is reached, each returning unit takes a call to Redis.
  const fast = quota === QUOTAS[0]
  return {
    setup: `${LIMITERS} limiters on ${LIMITERS} connections, one process, one key, ${limit}/s, bursts of ${burst}`,
    asked: `${fast ? `>= ${ASKED_PER_SECOND}/s, ` : ''}<= ${Math.floor(bound)} above the limit`,
    reached: `${perSecond.toFixed(0)}/s, ${above} above the limit (${passedUs.length} passed)`,
    ok: (!fast || perSecond >= ASKED_PER_SECOND) && above <= bound,
    values: { perSecond, passed: passedUs.length, above, bound },
  }
}

const limitsLocal: Figure = {
  name: 'limits-local',
  title: `Local approximation (sync: ${JSON.stringify(SYNC)}): decisions, and the worst excess over the limit in any window`,
  headings: ALONE,
  run: async (bench) => {
    await bench.client.flushdb()
    return inTurn(QUOTAS, (quota) => localRow(bench, quota))
  },
}

const PERIOD_MS = 1000
/** Answers arrive some ms after the decision: windows are shortened by this, so that the delay cannot fill one more. */
const SLACK_MS = 10
const BEFORE_MS = 150
const AFTER_MS = 40
const OVERLOAD = 3
/** After this time, what a limiter at rest had accumulated is used up. */
const SETTLED_MS = 2 * PERIOD_MS
const QUOTA: Quota = { limit: 100, periodS: PERIOD_MS / 1000, burst: 100 }
/** Its burst is a second window in addition to the first: twice as much passes permanently. */
const TWO_LIMITS = 'rate-limiter-flexible BurstyRateLimiter'
/** More at once would be too slow for the critical moments. */
const ATTACKED_TOGETHER = 4

const until = (ms: number): Promise<void> => sleep(Math.max(0, ms - Date.now()))

/** Asks for so many units at once, and records when they passed, ms. */
async function ask(take: Take, key: string, units: number, passedMs: number[]): Promise<void> {
  const one = async () => {
    if (await take(key)) passedMs.push(Date.now())
  }
  await Promise.all(Array.from({ length: units }, one))
}

/** The largest number in any window of one period. */
const mostOf = (passedMs: readonly number[]): number => mostWithin(ascending(passedMs), PERIOD_MS - SLACK_MS)

/**
 * The boundary attack: the limit just before the end of a window, and again just after it. Windows begin at whole
 * seconds or with the first unit: both are tried, each with its own key.
 */
async function attack(take: Take, key: string): Promise<number> {
  const boundaryMs = (Math.floor(Date.now() / PERIOD_MS) + 2) * PERIOD_MS
  const once = async (opens: boolean) => {
    const passedMs: number[] = []
    await until(boundaryMs - PERIOD_MS + AFTER_MS / 2)
    if (opens) await ask(take, `${key}-${opens}`, 1, passedMs)
    await until(boundaryMs - BEFORE_MS)
    await ask(take, `${key}-${opens}`, QUOTA.limit, passedMs)
    await until(boundaryMs + AFTER_MS)
    await ask(take, `${key}-${opens}`, QUOTA.limit, passedMs)
    return mostOf(passedMs)
  }
  return Math.max(...(await Promise.all([false, true].map(once))))
}

/** Requests three times the limit, unit by unit, for several periods after it has settled. */
async function overload(take: Take, key: string, periods: number) {
  const passedMs: number[] = []
  const fromMs = Date.now() + SETTLED_MS
  const forMs = SETTLED_MS + periods * PERIOD_MS
  const asking: Promise<void>[] = []
  for (let atMs = 0; atMs < forMs; atMs += PERIOD_MS / QUOTA.limit / OVERLOAD) {
    await until(fromMs - SETTLED_MS + atMs)
    asking.push(ask(take, key, 1, passedMs))
  }
  await Promise.all(asking)
  const settledMs = passedMs.filter((ms) => ms >= fromMs)
  const counted = settledMs.filter((ms) => ms < fromMs + periods * PERIOD_MS).length
  return { most: mostOf(passedMs), mostSettled: mostOf(settledMs), share: counted / (QUOTA.limit * periods) }
}

/** The memory of all keys that belong to a limiter's key, including their names. */
async function bytesOf(redis: Redis, key: string): Promise<number> {
  const names: string[] = []
  for await (const page of redis.scanStream({ match: `*:${key}*` })) names.push(...(page as string[]))
  return sum(await Promise.all(names.map(async (name) => (await redis.memory('USAGE', name, 'SAMPLES', 0)) ?? 0)))
}

async function choosing(redis: Redis, periods: number): Promise<Row[]> {
  await redis.flushdb()
  const names = (Object.keys(CONTENDERS) as Contender[]).filter((name) => name !== TWO_LIMITS)
  const even = createLimiter(redis, { ...ruleOf('gcra', { ...QUOTA, burst: 1 }), name: 'even' })
  const takes: [string, Take][] = names.map((name) => [name, CONTENDERS[name](redis, QUOTA)])
  // Keys of equal length, since they count towards the bytes.
  const all = [...takes, ['gcra with burst 1', takeFrom(even)] as const].map(([name, take], i) => ({
    ...{ name, take, key: `user-${100 + i}` },
  }))
  await Promise.all(all.map(({ take, key }) => take(`first-${key}`)))
  const attacked: number[] = []
  for (let at = 0; at < all.length; at += ATTACKED_TOGETHER) {
    const together = all.slice(at, at + ATTACKED_TOGETHER)
    attacked.push(...(await Promise.all(together.map(({ take, key }) => attack(take, `attacked-${key}`)))))
  }
  const overloaded = all.map(async ({ name, take, key }, i): Promise<Row> => {
    const { most, mostSettled, share } = await overload(take, key, periods)
    const bytes = await bytesOf(redis, key)
    const cells = [attacked[i], most, mostSettled, share.toFixed(3), bytes].map(String)
    const values = { boundary: attacked[i], most, mostSettled, share, bytes }
    return { setup: name, reached: cells.join(', '), cells, values }
  })
  return Promise.all(overloaded)
}

const limitsChoosing: Figure = {
  name: 'limits-choosing',
  title:
    `100 per second, bursts of 100: the most within 1 s (less ${SLACK_MS} ms) under the boundary attack and under ` +
    'three times the limit, from rest and after 2 s; the share of the limit that passed then; bytes of a busy key',
  headings: ['', 'boundary attack', 'overload from rest', 'overload settled', 'share', 'bytes per key'],
  run: ({ redis, quick }) => withClient(redis, (client) => choosing(client, quick ? 3 : 10)),
}

export const limits: readonly Figure[] = [
  limitsDecisions,
  limitsCombined,
  limitsDepartures,
  limitsLocal,
  limitsSpread,
  limitsChoosing,
]
