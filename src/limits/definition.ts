import { InvalidLimitError } from '../errors.ts'
import { checkFields, type FieldCheck, numberFrom, oneOf, wholeFrom } from '../field-check.ts'
import type { ShapeMode } from '../mode.ts'
import { formatRate, gridIntervalUs, intervalUs, parseRate, type RateInput } from '../rate.ts'
import { encodeRate, isScheduled, type RateSchedule, type ScheduledRate, type StoredRate } from './schedule.ts'
import { zoneOffsets } from './time-zone.ts'

const CALENDAR = ['day', 'week', 'month'] as const
const WINDOWS = ['fixed-window', 'sliding-window-log', 'sliding-window-counter'] as const
const BUCKETS = ['gcra', 'token-bucket', 'leaky-bucket'] as const
export const ALGORITHMS = [...WINDOWS, ...BUCKETS, 'concurrency'] as const

export type BucketAlgorithm = (typeof BUCKETS)[number]
export type WindowAlgorithm = (typeof WINDOWS)[number]
export type Algorithm = (typeof ALGORITHMS)[number]

/**
 * Where the windows of `fixed-window` begin: at multiples of the window since 1970, at the first unit, or at midnight: of each
 * day, of Mondays, or of the first day of a month.
 */
export type WindowAlign = 'epoch' | 'first' | CalendarAlign
export type CalendarAlign = (typeof CALENDAR)[number]

/** The rule of one limit. The required fields depend on its algorithm. */
export interface LimitRule {
  /**
   * `gcra` (default), `token-bucket`, `leaky-bucket`, `fixed-window`, `sliding-window-log`, `sliding-window-counter` or
   * `concurrency`.
   */
  readonly algorithm?: Algorithm
  /** `'100/min'` or `{ limit, period }` (ms); for windows, the period is their length. Not for `concurrency`. */
  readonly rate?: RateInput | RateSchedule
  /** Buckets: units that may pass back to back after idling. Default 1: evenly spaced. */
  readonly burst?: number
  /**
   * `fixed-window`: where windows begin. `epoch` (default): at multiples of their length since 1970; `first`: with their
   * first unit; `day`, `week` (Monday) or `month`: as in the calendar.
   */
  readonly align?: WindowAlign
  /** The calendar's time zone: an IANA name, default `UTC`. */
  readonly timeZone?: string
  /** `concurrency`: how many may run at once. */
  readonly concurrency?: number
  /** `concurrency`: how many ms a lease lasts unless it is extended. Default 30,000. */
  readonly leaseMs?: number
  /** The share of the limit that queues leave to `take`: at least 0, below 1. Default 0. */
  readonly reservedShare?: number
  /** After this many ms without a `take`, queues may use the reserved share. Default: the time in which a used-up limit recovers. */
  readonly lendAfterMs?: number
}

/** A rule of a queue, whose quota may be spread. */
export interface SpreadRule extends LimitRule {
  readonly spread?: 'even' | 'key'
  readonly within?: string
  readonly minRate?: RateInput
}

/** The fields that a tier may override. */
export type TierRule = Pick<LimitRule, 'rate' | 'burst' | 'concurrency'>

export const TIER_FIELDS = ['rate', 'burst', 'concurrency'] as const

/** A limit in the form for scripts: times in µs. */
export interface LimitWire {
  readonly algorithm: Algorithm
  readonly mode: ShapeMode
  readonly interval?: number
  readonly burst?: number
  readonly limit?: number
  readonly window?: number
  readonly align?: WindowAlign
  readonly zone?: readonly number[]
  /** For a rate that follows the clock; `interval` is that of the fastest. */
  readonly schedule?: StoredRate[2]
  /** For a spread window: units back to back, and µs per unit at most; its schedule is that of its open hours. */
  readonly even?: number
  readonly slowest?: number
  readonly reserve?: number
  readonly lend?: number
  readonly maxKeys?: number | undefined
  /** The version of the definition. */
  readonly version?: number | undefined
}

const DEFAULT_LEASE_MS = 30_000
/** One unit, less the rounding error of doubles. */
const LEAST_LEFT = 1 - 1e-9

export function isBucket(algorithm: Algorithm): algorithm is BucketAlgorithm {
  return (BUCKETS as readonly Algorithm[]).includes(algorithm)
}

/**
 * Validates a limit and encodes it for the scripts.
 * @throws InvalidLimitError, InvalidRateError
 */
export function encodeRule(given: SpreadRule, mode: ShapeMode = 'enforce'): LimitWire {
  const rule = completeRule(given)
  const { algorithm = 'gcra' } = rule
  checkRule(algorithm, rule)
  const wire = { algorithm, mode, ...encodeAlgorithm(algorithm, rule), ...encodeReserve(rule) }
  if (wire.reserve && isBucket(algorithm) && (wire.burst ?? 1) * (1 - wire.reserve) < LEAST_LEFT) {
    const burst = Math.ceil(1 / (1 - wire.reserve))
    throw new InvalidLimitError(
      `reservedShare ${wire.reserve} leaves queues less than 1 of burst ${wire.burst}: set burst to at least ${burst}`,
    )
  }
  return wire
}

/** Units that the limit allows at once: a higher cost can never pass. */
export function quotaOf(wire: LimitWire): number {
  return (wire.burst ?? wire.limit) as number
}

/**
 * The common definition of all users of a name, in a fixed order of fields.
 * @throws InvalidLimitError for a rate that follows the clock
 */
export function describeRule(rule: SpreadRule): string {
  const { algorithm = 'gcra', rate, burst, align, timeZone, concurrency, leaseMs, reservedShare, lendAfterMs } = rule
  const bucket = isBucket(algorithm)
  if (isScheduled(rate) || rule.spread === 'even') {
    const what = isScheduled(rate) ? 'a rate with a schedule' : "spread: 'even'"
    throw new InvalidLimitError(`${what} needs a limit of one queue: a limiter and a shared limit have a fixed rate`)
  }
  return JSON.stringify({
    algorithm,
    rate: rate === undefined ? undefined : formatRate(parseRate(rate)),
    burst: bucket ? (burst ?? 1) : undefined,
    align: algorithm === 'fixed-window' ? (align ?? 'epoch') : undefined,
    timeZone: isCalendar(align) ? (timeZone ?? 'UTC') : undefined,
    concurrency,
    leaseMs: algorithm === 'concurrency' ? (leaseMs ?? DEFAULT_LEASE_MS) : undefined,
    reservedShare: reservedShare || undefined,
    lendAfterMs,
  })
}

function encodeAlgorithm(algorithm: Algorithm, rule: SpreadRule): Partial<LimitWire> {
  if (algorithm === 'concurrency') {
    return { limit: rule.concurrency as number, window: (rule.leaseMs ?? DEFAULT_LEASE_MS) * 1000 }
  }
  if (isScheduled(rule.rate)) return encodeSchedule(algorithm, rule)
  const rate = parseRate(rule.rate as RateInput)
  if (isBucket(algorithm)) {
    // GCRA adds up intervals.
    const interval = algorithm === 'gcra' ? gridIntervalUs(rate.limit, rate.periodMs) : intervalUs(rate)
    return { interval, burst: rule.burst ?? 1 }
  }
  if (!Number.isInteger(rate.periodMs)) {
    throw new InvalidLimitError(
      `the window of ${algorithm} must be a whole number of ms, at least 1; got ${rate.periodMs}`,
    )
  }
  const window = { limit: rate.limit, window: rate.periodMs * 1000 }
  if (algorithm !== 'fixed-window') return window
  const { align = 'epoch', timeZone = 'UTC' } = rule
  if (!isCalendar(align)) return { ...window, align }
  const expected = `10000/${align}`
  if (rate.periodMs !== parseRate(expected).periodMs) {
    throw new InvalidLimitError(`align '${align}' needs a rate per ${align}, as '${expected}'; got ${formatRate(rate)}`)
  }
  return { ...window, align, zone: zoneOffsets(timeZone), ...(rule.spread === 'even' ? encodeSpread(rule) : {}) }
}

/** The remaining units of its window are spread over its remaining hours. */
function encodeSpread({ within, minRate, timeZone = 'UTC', burst = 1 }: SpreadRule): Partial<LimitWire> {
  const [, days, from, to] = /^(?:([a-z,-]+) )?(\d\d:\d\d)-(\d\d:\d\d)$/i.exec(within ?? '00:00-24:00') ?? []
  if (from === undefined || to === undefined) {
    throw new InvalidLimitError(
      `within must be hours such as '08:00-20:00' or 'mon-fri 08:00-20:00'; got ${JSON.stringify(within)}`,
    )
  }
  const hours: ScheduledRate = { ...(days ? { days } : {}), from, to, rate: '1/s' }
  const [, , schedule] = encodeRate({ schedule: within ? [hours, { rate: 0 }] : [{ rate: '1/s' }], timeZone })
  const slowest = minRate === undefined ? {} : { slowest: intervalUs(parseRate(minRate)) }
  return { schedule, even: burst, ...slowest }
}

/** Completes a rule whose fields follow from others: a spread limit counts in the windows of its rate. */
export function completeRule<T extends SpreadRule>(rule: T): T {
  if (rule.spread !== 'even') return rule
  const { periodMs } = parseRate(rule.rate as RateInput)
  const align = CALENDAR.find((one) => parseRate(`1/${one}`).periodMs === periodMs)
  return { algorithm: 'fixed-window', ...(align && { align }), ...rule }
}

function encodeSchedule(algorithm: Algorithm, { rate, burst = 1 }: LimitRule): Partial<LimitWire> {
  if (!isBucket(algorithm)) {
    throw new InvalidLimitError(
      `a rate with a schedule needs algorithm ${BUCKETS.join(', ')}; got ${algorithm}, which counts in windows`,
    )
  }
  const [limit, periodMs, schedule] = encodeRate(rate)
  return { interval: gridIntervalUs(limit, periodMs), burst, schedule }
}

/** Whether windows follow the calendar of a time zone. */
export function isCalendar(align: WindowAlign | undefined): align is CalendarAlign {
  return (CALENDAR as readonly unknown[]).includes(align)
}

function encodeReserve({ reservedShare, lendAfterMs, ...rule }: LimitRule): Partial<LimitWire> {
  if (!reservedShare) return {}
  return { reserve: reservedShare, lend: (lendAfterMs ?? recoveryMs(rule)) * 1000 }
}

/** How long a fully used limit takes to recover. */
function recoveryMs({ algorithm = 'gcra', rate, burst = 1, leaseMs = DEFAULT_LEASE_MS }: LimitRule): number {
  if (algorithm === 'concurrency') return leaseMs
  const [limit, periodMs] = encodeRate(rate)
  return isBucket(algorithm) ? (intervalUs({ limit, periodMs }) * burst) / 1000 : periodMs
}

const SPREAD_ONLY = ['within', 'minRate'] as const
const CHECKS: { readonly [F in keyof LimitRule]?: FieldCheck } = {
  burst: wholeFrom(1),
  align: oneOf('epoch', 'first', ...CALENDAR),
  concurrency: wholeFrom(1),
  leaseMs: wholeFrom(1, 'of ms'),
  reservedShare: {
    expected: 'a number from 0 to below 1',
    ok: (value) => typeof value === 'number' && value >= 0 && value < 1,
  },
  lendAfterMs: numberFrom(0, 'of ms'),
}

function checkRule(algorithm: Algorithm, rule: SpreadRule): void {
  if (!ALGORITHMS.includes(algorithm)) {
    const names = ALGORITHMS.map((name) => `'${name}'`).join(', ')
    throw new InvalidLimitError(`algorithm must be one of ${names}; got ${JSON.stringify(algorithm)}`)
  }
  const needed = algorithm === 'concurrency' ? 'concurrency' : 'rate'
  const unwanted = algorithm === 'concurrency' ? 'rate' : 'concurrency'
  if (rule[needed] === undefined) throw new InvalidLimitError(`a limit of ${algorithm} needs ${needed}; got none`)
  if (rule[unwanted] !== undefined)
    throw new InvalidLimitError(`a limit of ${algorithm} has no ${unwanted}: it needs ${needed}`)
  checkFields(rule, CHECKS, InvalidLimitError)
  const odd = SPREAD_ONLY.find((field) => rule.spread !== 'even' && rule[field] !== undefined)
  if (odd) throw new InvalidLimitError(`${odd} is about a quota that is spread: set spread: 'even'`)
  if (rule.spread === 'even' && !(algorithm === 'fixed-window' && isCalendar(rule.align))) {
    throw new InvalidLimitError(
      `spread: 'even' needs a fixed-window with a rate per day, week or month, as '5000/day'; got ${algorithm}, align ${JSON.stringify(rule.align ?? 'epoch')}`,
    )
  }
}
