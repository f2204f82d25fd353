import { InvalidLimitError } from '../errors.ts'
import { checkFields, type FieldCheck, numberAbove, wholeFrom } from '../field-check.ts'
import { parseRate, type RateInput } from '../rate.ts'
import { encodeRule, isBucket, type LimitRule, quotaOf } from './definition.ts'

/**
 * Decides in memory, from units that this process leases from the limit: most takes need no request. Leased units are
 * charged first and used at most `intervalMs` later, so that in any period no more passes than the limit grants in that
 * period and `intervalMs` more; see `limiter.overshootBound`. Units not used by then are dropped and stay charged:
 * lease no more than a process uses of one key in `intervalMs`. A key that is over its limit is refused from memory
 * until it may pass again. A block, a reset or a mode change takes effect at once in the limiter that makes it, and in
 * other processes when their leases and remembered refusals expire.
 */
export interface SyncOptions {
  /** How long leased units may be used, counted from the request for them. ms, and well above a round trip to Redis. */
  readonly intervalMs: number
  /** Share of the burst, or of the limit of a window, that is leased at a time. Above 0, at most 1; default 0.1. */
  readonly share?: number
  /** Maximum number of processes that use the limit at once, default unlimited. Only `overshootBound` depends on it. */
  readonly processes?: number
  /** Maximum number of keys that this process leases for at once; beyond it, the oldest is dropped. Default 10,000. */
  readonly maxLocalKeys?: number
}

/**
 * A token bucket for each key in this process, asked before the limit. It refuses excess requests from memory. Passing
 * requests go on to the limit, and count here even if the limit refuses them. Not used in `shadow` or `off`, as set by
 * the options or this limiter's `setMode`.
 */
export interface LocalOptions {
  /** At least this process's share of the limit's rate. */
  readonly rate: RateInput
  /** Units; at least this process's share of the limit's burst, or of its limit in a window. Default: that share. */
  readonly burst?: number
  /** Share of the limit that this process may use, above 0, at most 1. Default 1. */
  readonly share?: number
  /** Maximum number of keys with a bucket here at once; beyond it, the oldest is dropped. Default 10,000. */
  readonly maxLocalKeys?: number
}

export interface MitigationOptions {
  /** Maximum number of refused keys remembered at once; beyond it, the oldest is dropped. Default 10,000. */
  readonly maxKeys?: number
}

/** Decisions of a limiter in memory. `combine`, `peek` and `wait` still ask Redis. Not for `concurrency`. */
export interface LocalLimiting {
  /** Decides in memory, using units leased from the limit. Default: each take asks Redis. */
  readonly sync?: SyncOptions
  /** A token bucket for each key in this process, asked before the limit. Default: none. */
  readonly local?: LocalOptions
  /** Whether refusals are repeated from memory, without asking Redis. Default false. */
  readonly mitigation?: boolean | MitigationOptions
}

/** The limiter options that are read here. */
export interface LocallyLimited extends LimitRule, LocalLimiting {
  readonly tiers?: Readonly<Record<string, Partial<LimitRule>>>
}

export const DEFAULT_SYNC_SHARE = 0.1
export const DEFAULT_MAX_LOCAL_KEYS = 10_000

const SHARE: FieldCheck = {
  expected: 'a number above 0, at most 1',
  ok: (value) => typeof value === 'number' && value > 0 && value <= 1,
}
const LOCAL = { burst: wholeFrom(1), share: SHARE, maxLocalKeys: wholeFrom(1) }
const SYNC = { intervalMs: numberAbove(0, 'of ms'), share: SHARE, processes: wholeFrom(1), maxLocalKeys: wholeFrom(1) }
const MITIGATION = { maxKeys: wholeFrom(1) }

/**
 * Validates options for decisions in memory against the limit itself.
 * @throws InvalidLimitError, InvalidRateError
 */
export function checkLocalLimiting(options: LocallyLimited): void {
  const { sync, local, mitigation } = options
  const used = Object.entries({ sync, local, mitigation }).find(([, value]) => value)
  if (!used) return
  if (options.algorithm === 'concurrency') {
    throw new InvalidLimitError(
      `${used[0]} decides in memory, but other processes may give back places of a concurrency limit: leave it out`,
    )
  }
  if (sync) checkFields({ ...sync, intervalMs: sync.intervalMs ?? null }, SYNC, InvalidLimitError, 'sync.')
  if (local) checkFields(local, LOCAL, InvalidLimitError, 'local.')
  if (typeof mitigation === 'object') checkFields(mitigation, MITIGATION, InvalidLimitError, 'mitigation.')
  for (const rule of rulesOf(options)) {
    if (sync) checkInterval(rule, sync.intervalMs)
    if (local) checkNotStricter(rule, local)
  }
}

/** The rule of a limiter and those of its tiers. */
export function rulesOf({ tiers = {}, ...rule }: LocallyLimited): readonly LimitRule[] {
  return [rule, ...Object.values(tiers).map((ruled) => ({ ...rule, ...ruled }))]
}

/** A share of the quota in whole units, at least 1 and at most the quota. */
export function shareOf(quota: number, share: number): number {
  // 100 * 0.07 is slightly more than 7.
  return Math.min(quota, Math.max(1, Math.ceil(quota * share - 1e-9)))
}

function checkInterval(rule: LimitRule, intervalMs: number): void {
  const { algorithm = 'gcra', rate } = rule
  const { periodMs } = parseRate(rate as RateInput)
  if (isBucket(algorithm) || intervalMs <= periodMs) return
  throw new InvalidLimitError(
    `sync.intervalMs ${intervalMs} is longer than the window of ${periodMs} ms: set it to at most the window`,
  )
}

/** Local limits so strict that all processes together can never use up the limit are a mistake. */
function checkNotStricter(rule: LimitRule, { rate, burst, share = 1 }: LocalOptions): void {
  const own = parseRate(rate)
  const whole = parseRate(rule.rate as RateInput)
  const ownPerS = (own.limit / own.periodMs) * 1000
  const leastPerS = (whole.limit / whole.periodMs) * 1000 * share
  if (ownPerS < leastPerS * (1 - 1e-9)) {
    throw new InvalidLimitError(
      `local.rate of ${ownPerS}/s is stricter than this process's share of the limit, ${leastPerS}/s: ` +
        'set it to at least that',
    )
  }
  const least = shareOf(quotaOf(encodeRule(rule)), share)
  if (burst !== undefined && burst < least) {
    throw new InvalidLimitError(
      `local.burst ${burst} is stricter than this process's share of the limit, ${least} units at once: ` +
        'set it to at least that',
    )
  }
}
