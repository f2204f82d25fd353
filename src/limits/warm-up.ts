import { checkCallOptions, gotText } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'

/**
 * A warm-up plan, for a limit with `by`: each value (a mail domain, a sending IP) has the quota of its own day of the
 * plan. A day counts if a job departed on it, in the `timeZone` of the limit; after the last one its quota stays. Give
 * `plan`, or `start`, `factor` and `until`.
 */
export interface WarmUp {
  /** Quotas from a day of the plan on, ascending from day 1; a last quota of null lifts the limit. At most 400 days. */
  readonly plan?: readonly WarmUpDay[]
  /** The quota of day 1, its daily growth factor, and the final quota. */
  readonly start?: number
  readonly factor?: number
  readonly until?: number
  /**
   * With `by: 'group'`: the plan continues to its next day only if the downstream refused less than this share of the
   * last day's started jobs, as feedback reports it; otherwise the day is repeated. Default: it continues.
   */
  readonly maxRefused?: number
}

export interface WarmUpDay {
  readonly day: number
  readonly quota: number | null
}

const FIELDS = ['plan', 'start', 'factor', 'until', 'maxRefused'] as const
const MOST_DAYS = 400

/**
 * The quota of each day; the last one may be null.
 * @param name of the limit
 * @throws InvalidLimitError
 */
export function quotasOf(name: string, warmUp: unknown): readonly (number | null)[] {
  const what = `warmUp of limit "${name}"`
  if (typeof warmUp !== 'object' || warmUp === null) {
    throw new InvalidLimitError(
      `${what} must be { plan: [{ day, quota }] } or { start, factor, until }; got ${gotText(warmUp)}`,
    )
  }
  checkCallOptions(what, warmUp, FIELDS)
  const { plan, start, factor, until, maxRefused } = warmUp as WarmUp
  const grows = start !== undefined || factor !== undefined || until !== undefined
  if (grows === (plan !== undefined)) {
    throw new InvalidLimitError(
      `${what} must have either plan, or start, factor and until; got ${grows ? 'both' : 'none'}`,
    )
  }
  if (maxRefused !== undefined && !(typeof maxRefused === 'number' && maxRefused > 0 && maxRefused < 1)) {
    throw new InvalidLimitError(`maxRefused of ${what} must be a number above 0 and below 1; got ${maxRefused}`)
  }
  return plan === undefined ? growing(what, warmUp as WarmUp) : planned(what, plan)
}

function growing(what: string, { start, factor, until }: WarmUp): readonly number[] {
  if (!isQuota(start)) throw new InvalidLimitError(`start of ${what} must be a whole number >= 1; got ${start}`)
  if (!(typeof factor === 'number' && factor > 1 && Number.isFinite(factor)))
    throw new InvalidLimitError(`factor of ${what} must be a number above 1; got ${factor}`)
  if (!isQuota(until) || until < start)
    throw new InvalidLimitError(`until of ${what} must be a whole number >= its start, ${start}; got ${until}`)
  const quotas = [start]
  for (let quota = start * factor; quota < until && quotas.length <= MOST_DAYS; quota *= factor)
    quotas.push(Math.floor(quota))
  if (until > start) quotas.push(until)
  if (quotas.length <= MOST_DAYS) return quotas
  throw new InvalidLimitError(`${what} takes more than ${MOST_DAYS} days to reach ${until}: raise its factor`)
}

function planned(what: string, plan: unknown): readonly (number | null)[] {
  const quotas: (number | null)[] = []
  const days: readonly unknown[] = Array.isArray(plan) ? plan : []
  if (days.length === 0)
    throw new InvalidLimitError(`plan of ${what} must be a list of { day, quota }; got ${gotText(plan)}`)
  for (const [i, entry] of days.entries()) {
    const { day, quota } = (entry ?? {}) as Partial<WarmUpDay>
    const least = quotas.length + 1
    const isDay = isQuota(day) && (i === 0 ? day === 1 : day >= least && day <= MOST_DAYS)
    if (!isDay) {
      const expected = i === 0 ? '1' : `a whole number from ${least} to ${MOST_DAYS}`
      throw new InvalidLimitError(`day of plan[${i}] of ${what} must be ${expected}; got ${gotText(day)}`)
    }
    const lifts = quota === null && i > 0 && i === days.length - 1
    if (!isQuota(quota) && !lifts) {
      const expected = 'a whole number >= 1, or null as the last one'
      throw new InvalidLimitError(`quota of plan[${i}] of ${what} must be ${expected}; got ${gotText(quota)}`)
    }
    while (quotas.length < day - 1) quotas.push(quotas.at(-1) as number)
    quotas.push(quota)
  }
  return quotas
}

function isQuota(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1
}
