import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../figure.ts'
import { redisCpuUs, scriptUsage } from '../measure/redis-usage.ts'
import { sum } from '../measure/statistics.ts'
import { FLEET, type Outcome, Outlet } from './outlet.ts'
import type { Arrivals, Contender, Limit } from './protocol.ts'

export const LIMIT: Limit = { perSecond: FLEET.perSecond / 2, burst: 10 }

/** The rate counts as recovered after this many seconds at this share of it. */
const RECOVERED_FOR = 2
const RECOVERED_SHARE = 0.95

/** The phases: no limit, the limit, and the recovery afterwards, s. */
export interface Phases {
  readonly free: number
  readonly limited: number
  /** Maximum; ends as soon as the previous rate is reached again. */
  readonly after: number
}

/** The result of one contender. Each list has an entry per second. */
export interface LimitedRun {
  readonly contender: Contender
  readonly imposedAt: Date
  readonly free: readonly Arrivals[]
  readonly limited: readonly Arrivals[]
  readonly after: readonly Arrivals[]
  /** From the end of the limit until the previous rate was reached again, s; undefined: not in the given time. */
  readonly recoveredAfterS: number | undefined
  /** While the limit held, per accepted job. */
  readonly scriptCalls: number
  readonly redisUs: number
  readonly outcome: Outcome
}

export const accepted = (all: readonly Arrivals[]): number =>
  sum(all.map(({ sent, refused, bad }) => sent - refused - bad))
export const secondsOf = (all: readonly Arrivals[]): number => sum(all.map(({ ms }) => ms)) / 1000

/** The rate of accepted calls. */
export function rateOf(all: readonly Arrivals[]): number {
  return accepted(all) / secondsOf(all)
}

export async function watch(
  outlet: Outlet,
  seconds: number,
  enough?: (seen: Arrivals[]) => boolean,
): Promise<Arrivals[]> {
  const seen: Arrivals[] = []
  while (seen.length < seconds && !enough?.(seen)) {
    await sleep(1000)
    seen.push(await outlet.server.call('arrivals'))
  }
  return seen
}

async function usage({ client }: Bench): Promise<{ calls: number; us: number }> {
  return { calls: (await scriptUsage(client)).calls, us: await redisCpuUs(client) }
}

/** Runs one contender through all phases, with a backlog that never runs dry. */
export async function limitedRun(bench: Bench, contender: Contender, phases: Phases): Promise<LimitedRun> {
  const jobs = Math.ceil(FLEET.perSecond * (phases.free + phases.limited + phases.after) * 1.1) + 1000
  const outlet = await Outlet.open(bench, contender, jobs)
  await sleep(1000)
  await outlet.server.call('arrivals')
  const free = await watch(outlet, phases.free)
  const before = await usage(bench)
  const imposedAt = new Date()
  await outlet.server.call('impose', LIMIT)
  const limited = await watch(outlet, phases.limited)
  limited.push(await outlet.server.call('impose', undefined))
  const used = await usage(bench)
  const isBack = (seen: Arrivals[]) => {
    const last = seen.slice(-RECOVERED_FOR)
    return last.length === RECOVERED_FOR && rateOf(last) >= RECOVERED_SHARE * rateOf(free)
  }
  const after = await watch(outlet, phases.after, isBack)
  return {
    contender,
    imposedAt,
    free,
    limited,
    after,
    recoveredAfterS: isBack(after) ? secondsOf(after.slice(0, -RECOVERED_FOR)) : undefined,
    scriptCalls: (used.calls - before.calls) / accepted(limited),
    redisUs: (used.us - before.us) / accepted(limited),
    outcome: await outlet.close(),
  }
}
