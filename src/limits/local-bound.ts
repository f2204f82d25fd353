import { encodeRule, isCalendar, type LimitWire, quotaOf } from './definition.ts'
import { DEFAULT_SYNC_SHARE, type LocallyLimited, rulesOf, shareOf } from './local-options.ts'

const DAY_US = 86_400_000_000
/** Time zones put their clocks forward by at most two hours. */
const CLOCK_CHANGE_US = 7_200_000_000
const SHORTEST_DAYS = { day: 1, week: 7, month: 28 }

/**
 * The maximum number of units of one key that can pass above the limit's own bound, under `sync`; the highest over all
 * tiers.
 *
 * Every unit is charged to the limit before it passes, and passes at most `intervalMs` (d) later. So units that pass
 * from t to t + T were charged between t - d and t + T.
 * - Buckets charge at most burst + (T + d) / I in that time, d / I above their own bound: d times the rate.
 * - Windows of W: the part before t is in at most ceil(d / W) windows, each charged at most `limit`. For fixed windows
 *   and the counter, T is one of their windows; for the log, whose windows begin anywhere, it is any period of W.
 * - Units that pass from t on but were charged before were in memory at t, where each process has at most one share of
 *   a
 *   key. With n processes that is at most n shares.
 *
 * A take that asked Redis passes when Redis decided, as it does without `sync`.
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

/** The maximum number of units that the limit charges in a period of `us`, besides those within its own bound. */
function chargedIn({ interval, window = 0, limit = 0, align }: LimitWire, us: number): number {
  if (interval !== undefined) return us / interval
  return limit * Math.ceil(us / (isCalendar(align) ? SHORTEST_DAYS[align] * DAY_US - CLOCK_CHANGE_US : window))
}
