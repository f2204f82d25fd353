import { encodeRule, type LimitWire, quotaOf } from './definition.ts'
import { DEFAULT_SYNC_SHARE, type LocallyLimited, rulesOf, shareOf } from './local-options.ts'

/** Clocks of a time zone are put forward by two hours at most. */
const SHORTEST_DAY_US = 22 * 3_600_000_000

/**
 * The most units of one key that pass above what the limit itself allows, under `sync`; of tiers, the highest.
 *
 * Every unit is charged to the limit before it passes, and passes at most `intervalMs` (d) after. What passes in a time
 * from t to t + T was therefore charged between t - d and t + T.
 * - Buckets charge at most burst + (T + d) / I in that, d / I above their own bound: d times the rate.
 * - Windows of W: the part before t lies in at most ceil(d / W) windows, each charged `limit` at most. For fixed windows
 *   and the counter T is one of their windows; for the log, whose windows lie anywhere, it is any of W.
 * - What passes from t on and was charged before was in memory at t: each process has at most one share of a key there.
 *   With n processes that is n shares at most.
 *
 * A take that asked Redis itself passes when Redis decided, as it does without `sync`.
 */
export function overshootBound(options: LocallyLimited): number {
  const { sync } = options
  if (!sync) return 0
  const { intervalMs, share = DEFAULT_SYNC_SHARE, processes = Number.POSITIVE_INFINITY } = sync
  const bounds = rulesOf(options).map((rule) => {
    const wire = encodeRule(rule)
    return Math.min(processes * shareOf(quotaOf(wire), share), chargedIn(wire, intervalMs * 1000))
  })
  return Math.max(...bounds)
}

/** Units that the limit charges at most in a time, besides those that its own bound has in it. */
function chargedIn({ interval, window = 0, limit = 0, align }: LimitWire, us: number): number {
  if (interval !== undefined) return us / interval
  return limit * Math.ceil(us / (align === 'day' ? SHORTEST_DAY_US : window))
}
