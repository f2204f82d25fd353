import { CostTooHighError } from '../errors.ts'
import type { ShapeMode } from '../mode.ts'
import { intervalUs, parseRate } from '../rate.ts'
import type { LimitAnswer } from './answer.ts'
import { encodeRule, isCalendar, type LimitWire, quotaOf } from './definition.ts'
import type { Limit } from './limit.ts'
import { encodeKey, type LimitKey, ONE_FOR_ALL } from './limit-keys.ts'
import {
  checkLocalLimiting,
  DEFAULT_MAX_LOCAL_KEYS,
  DEFAULT_SYNC_SHARE,
  type LocallyLimited,
  type LocalOptions,
  rulesOf,
  type SyncOptions,
  shareOf,
} from './local-options.ts'

/** Decides if memory does not: the limiter and, through it, Redis. */
export interface Behind {
  limitOf(key: LimitKey): Limit | Promise<Limit>
  /** Takes from the limit in Redis. */
  take(limit: Limit, key: LimitKey, cost: number): Promise<LimitAnswer>
  /** Returns the answer for an error, or throws it. */
  outage(key: LimitKey, error: unknown): LimitAnswer
  /** Redis's time, ms since 1970, as far as known. */
  nowMs(): number
}

export interface FrontOptions extends LocallyLimited {
  readonly mode?: ShapeMode
}

/**
 * The decisions of a limiter in memory before it asks Redis: first by its local bucket, then by its leased units, then
 * by remembered refusals.
 */
export class LocalFront {
  readonly #behind: Behind
  readonly #sync: SyncOptions | undefined
  readonly #codeMode: ShapeMode
  /** As far as this process knows. */
  #mode: ShapeMode
  readonly #buckets: LocalBuckets | undefined
  readonly #shares: LocalShares | undefined
  readonly #refusals: Refusals | undefined
  #overshootBound: number

  private constructor(options: FrontOptions, behind: Behind) {
    const { sync, local, mitigation, mode = 'enforce' } = options
    this.#behind = behind
    this.#sync = sync
    this.#codeMode = this.#mode = mode
    this.#overshootBound = overshootBound(options)
    this.#buckets = local && new LocalBuckets(local, () => behind.nowMs())
    if (!sync && !mitigation) return
    const remembered = typeof mitigation === 'object' ? mitigation.maxKeys : sync?.maxLocalKeys
    this.#refusals = new Refusals(remembered ?? DEFAULT_MAX_LOCAL_KEYS)
    this.#shares = sync && new LocalShares(sync, this.#refusals, this.#takeFromRedis)
  }

  /**
   * @returns undefined if nothing is decided in memory
   * @throws InvalidLimitError, InvalidRateError
   */
  static of(options: FrontOptions, behind: Behind): LocalFront | undefined {
    checkLocalLimiting(options)
    const { sync, local, mitigation } = options
    return sync || local || mitigation ? new LocalFront(options, behind) : undefined
  }

  /** If memory decides, only the answer and its promise are allocated: this runs a million times a second. */
  take(key: LimitKey, cost: number): Promise<LimitAnswer> {
    try {
      const limit = this.#behind.limitOf(key)
      if (limit instanceof Promise) return limit.then((found) => this.#decide(found, key, cost))
      return this.#decide(limit, key, cost)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** See {@link overshootBound}. */
  get overshootBound(): number {
    return this.#overshootBound
  }

  /** The limit has another rule now. What is decided in memory is this program's choice. */
  follow(rule: LocallyLimited): void {
    this.#overshootBound = overshootBound(rule, this.#sync)
  }

  /** Units of a key were given back: it may no longer be over its limit. */
  gaveBack(key: LimitKey): void {
    this.#refusals?.forget(localName(key))
  }

  /** A key was blocked or reset: data about it in memory is stale. */
  forget(key: LimitKey): void {
    const name = localName(key)
    this.#shares?.forget(name)
    this.#refusals?.forget(name)
  }

  /** @param mode null for the mode given in the code */
  setMode(mode: ShapeMode | null): void {
    this.#mode = mode ?? this.#codeMode
    this.#shares?.forgetAll()
    this.#refusals?.forgetAll()
  }

  #decide(limit: Limit, key: LimitKey, cost: number): Promise<LimitAnswer> {
    // A newer program may count places: each needs a lease of its own, and others may give theirs back.
    if (limit.algorithm === 'concurrency') return this.#behind.take(limit, key, cost)
    // Throws for an invalid cost.
    if (!(typeof cost === 'number' && cost > 0 && cost <= limit.quota)) limit.part(key, cost)
    const name = localName(key)
    const nowMs = performance.now()
    const answer =
      (this.#mode === 'enforce' ? this.#buckets?.refusal(name, limit, cost, nowMs) : undefined) ??
      this.#shares?.pass(name, limit, cost, nowMs) ??
      this.#refusals?.refusal(name, limit, cost, nowMs)
    return answer ? Promise.resolve(answer) : this.#ask(limit, name, key, cost)
  }

  async #ask(limit: Limit, name: string, key: LimitKey, cost: number): Promise<LimitAnswer> {
    try {
      return await (this.#shares?.take(name, limit, key, cost) ?? this.#takeFromRedis(limit, name, key, cost))
    } catch (error) {
      return this.#behind.outage(key, error)
    }
  }

  readonly #takeFromRedis: TakeFromRedis = async (limit, name, key, cost) => {
    const refusals = this.#refusals
    const epoch = refusals?.epoch
    const answer = await this.#behind.take(limit, key, cost)
    if (!answer.allowed && refusals?.epoch === epoch) refusals?.note(name, limit, cost, answer)
    return answer
  }
}

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
 * A take that asked Redis passes when Redis decided, as it does without `sync`. Places of `concurrency` are never leased
 * in memory.
 */
export function overshootBound(options: LocallyLimited, sync = options.sync): number {
  if (!sync || options.algorithm === 'concurrency') return 0
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

/** The resolution of the monotonic clock; sums of its readings are rounded. */
const PRECISION_MS = 1e-6

interface Bucket {
  /** When all its tokens are available again, on the monotonic clock. */
  fullAtMs: number
}

/** A token bucket for each key, in this process. (Envoy: local rate limit) */
class LocalBuckets {
  readonly #intervalMs: number
  readonly #options: LocalOptions
  readonly #nowMs: () => number
  readonly #buckets: LocalTable<Bucket>

  /** @param nowMs the clock of answers, ms since 1970 */
  constructor(options: LocalOptions, nowMs: () => number) {
    this.#options = options
    this.#nowMs = nowMs
    this.#intervalMs = intervalUs(parseRate(options.rate)) / 1000
    this.#buckets = new LocalTable(options.maxLocalKeys ?? DEFAULT_MAX_LOCAL_KEYS)
  }

  /**
   * Takes from the bucket of a key.
   * @returns the refusal; undefined if it passes
   * @throws CostTooHighError
   */
  refusal(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const burst = this.#options.burst ?? shareOf(limit.quota, this.#options.share ?? 1)
    if (cost > burst) throw new CostTooHighError(cost, burst, limit.name)
    const bucket = this.#buckets.get(name)
    const fullAtMs = Math.max(bucket?.fullAtMs ?? 0, nowMs)
    const waitMs = fullAtMs - nowMs + (cost - burst) * this.#intervalMs
    if (waitMs > PRECISION_MS) return this.#refuse(limit, burst, fullAtMs - nowMs, waitMs)
    const chargedMs = fullAtMs + cost * this.#intervalMs
    if (bucket) bucket.fullAtMs = chargedMs
    else this.#buckets.set(name, { fullAtMs: chargedMs })
    return undefined
  }

  /** @param fullInMs until the bucket is full */
  #refuse({ name }: Limit, burst: number, fullInMs: number, waitMs: number): LimitAnswer {
    const nowMs = this.#nowMs()
    return {
      allowed: false,
      limit: burst,
      remaining: Math.max(0, Math.floor(burst - fullInMs / this.#intervalMs)),
      retryAfterMs: Math.ceil(waitMs),
      retryAt: new Date(Math.ceil(nowMs + waitMs)),
      resetAt: new Date(Math.ceil(nowMs + fullInMs)),
      policy: name,
    }
  }
}

/** Takes from the limit in Redis. */
type TakeFromRedis = (limit: Limit, name: string, key: LimitKey, cost: number) => Promise<LimitAnswer>

interface WaitingTake {
  readonly key: LimitKey
  readonly cost: number
  readonly resolve: (answer: LimitAnswer) => void
  readonly reject: (error: unknown) => void
}

/** This process's lease for one key. */
class Share {
  readonly limit: Limit
  /** Units that may be used until `untilMs`, on the monotonic clock. */
  left = 0
  untilMs = 0
  /** Redis's answer to the lease. */
  answer: LimitAnswer | undefined
  /** Takes that wait for a lease, in order. */
  readonly waiting: WaitingTake[] = []
  /** Changes when the key is forgotten: a lease in flight at that time leaves nothing in memory. */
  epoch = 0
  /** Replaced by another share: it only serves the takes that still wait for it. */
  isReplaced = false

  constructor(limit: Limit) {
    this.limit = limit
  }

  pass(cost: number, nowMs: number): LimitAnswer | undefined {
    if (cost > this.left || nowMs >= this.untilMs) return undefined
    this.left -= cost
    const { limit, resetAt, policy, sharesKey } = this.answer as LimitAnswer
    const remaining = Math.floor(this.left)
    if (sharesKey) return { allowed: true, limit, remaining, retryAfterMs: 0, resetAt, policy, sharesKey }
    return { allowed: true, limit, remaining, retryAfterMs: 0, resetAt, policy }
  }

  empty(): void {
    this.left = 0
    this.epoch++
  }
}

/**
 * Shares of a limit, each leased by one ordinary take and used in memory. Each key has at most one lease under way;
 * callers that arrive meanwhile wait for it, in order. For how much may pass above the limit, see `overshootBound`.
 */
class LocalShares {
  readonly #options: SyncOptions
  readonly #refusals: Refusals
  readonly #takeFromRedis: TakeFromRedis
  readonly #shares: LocalTable<Share>

  constructor(options: SyncOptions, refusals: Refusals, takeFromRedis: TakeFromRedis) {
    this.#options = options
    this.#refusals = refusals
    this.#takeFromRedis = takeFromRedis
    this.#shares = new LocalTable(options.maxLocalKeys ?? DEFAULT_MAX_LOCAL_KEYS, (share) => {
      share.isReplaced = true
      share.empty()
    })
  }

  /** Answers from memory if it can. Callers that wait for a lease go first. */
  pass(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const share = this.#shares.get(name)
    if (share === undefined || share.limit !== limit || share.waiting.length > 0) return undefined
    return share.pass(cost, nowMs)
  }

  /** Requests a lease, or waits for the one under way. */
  take(name: string, limit: Limit, key: LimitKey, cost: number): Promise<LimitAnswer> {
    const found = this.#shares.get(name)
    const share = found?.limit === limit ? found : new Share(limit)
    if (share !== found) this.#shares.set(name, share)
    return new Promise((resolve, reject) => {
      share.waiting.push({ key, cost, resolve, reject })
      if (share.waiting.length === 1) void this.#serve(name, share)
    })
  }

  /** Drops the leased units of a key. */
  forget(name: string): void {
    this.#shares.get(name)?.empty()
  }

  forgetAll(): void {
    this.#shares.clear()
  }

  async #serve(name: string, share: Share): Promise<void> {
    const { waiting, limit } = share
    let served = 0
    try {
      for (; served < waiting.length; served++) {
        const { cost, resolve } = waiting[served] as WaitingTake
        const nowMs = performance.now()
        const known = share.pass(cost, nowMs) ?? this.#refusals.refusal(name, limit, cost, nowMs)
        if (known) {
          resolve(known)
          continue
        }
        waiting.splice(0, served)
        served = 0
        resolve(await this.#lease(name, share, waiting[0] as WaitingTake))
      }
      waiting.length = 0
    } catch (error) {
      // One failure rejects all takes that waited for the lease: each would wait as long for the same error.
      for (const { reject } of waiting.splice(0)) reject(error)
    }
  }

  /** Leases a share, or the rest of one, or only the cost. @returns the answer to the first waiting take */
  async #lease(name: string, share: Share, { key, cost }: WaitingTake): Promise<LimitAnswer> {
    const { limit, epoch } = share
    const whole = share.isReplaced
      ? cost
      : Math.max(cost, shareOf(limit.quota, this.#options.share ?? DEFAULT_SYNC_SHARE))
    let units = whole
    for (;;) {
      const sentMs = performance.now()
      const answer = await this.#takeFromRedis(limit, name, key, units)
      // In shadow, a take that would be refused is not charged: none of it may be used later.
      if (answer.allowed && !answer.wouldRefuse) {
        if (share.epoch === epoch) this.#fill(share, units - cost, sentMs, answer)
        return { ...answer, remaining: Math.floor(share.left) }
      }
      if (units === cost) return answer
      units = units === whole && answer.remaining > cost && answer.remaining < whole ? answer.remaining : cost
    }
  }

  /**
   * The take that asked for the lease first uses up the rest of the last one, if that is still valid: those units
   * expire before the new ones. So a process never has more than one share.
   */
  #fill(share: Share, units: number, sentMs: number, answer: LimitAnswer): void {
    const kept = performance.now() < share.untilMs ? share.left : 0
    share.left = kept + units
    // Redis charges the lease after it was sent, so its use ends within `intervalMs` of the charge.
    share.untilMs = sentMs + this.#options.intervalMs
    share.answer = answer
  }
}

interface Remembered {
  readonly limit: Limit
  readonly cost: number
  readonly answer: LimitAnswer
  /** On the monotonic clock. */
  readonly untilMs: number
}

/**
 * Keys over their limit, for the time given by Redis: until then a refused cost, or a higher one, need not be asked
 * again. (Cloudflare: mitigation cache)
 */
class Refusals {
  readonly #remembered: LocalTable<Remembered>
  /** Changes when keys are forgotten: a refusal requested before that is not remembered. */
  epoch = 0

  constructor(maxKeys: number) {
    this.#remembered = new LocalTable(maxKeys)
  }

  /** The remembered refusal of a key, while it holds. */
  refusal(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const found = this.#remembered.get(name)
    if (found === undefined || found.limit !== limit || cost < found.cost) return undefined
    const leftMs = found.untilMs - nowMs
    if (leftMs <= 0) {
      this.#remembered.delete(name)
      return undefined
    }
    // Sums of the clock are rounded: the wait must not exceed Redis's.
    return { ...found.answer, retryAfterMs: Math.min(found.answer.retryAfterMs, Math.ceil(leftMs)) }
  }

  /** Remembers a refusal by Redis, counted from its arrival. */
  note(name: string, limit: Limit, cost: number, answer: LimitAnswer): void {
    this.#remembered.set(name, { limit, cost, answer, untilMs: performance.now() + answer.retryAfterMs })
  }

  forget(name: string): void {
    this.epoch++
    this.#remembered.delete(name)
  }

  forgetAll(): void {
    this.epoch++
    this.#remembered.clear()
  }
}

const COLON = ':'
/** Longer names are hashed, so that caller input takes no more memory than that. */
const LONGEST = 64

/**
 * The name of a key in this process: the same for all forms of a key, and never that of another key. Cheaper than the
 * name in Redis, because hardly anything is hashed.
 * @throws InvalidKeyError
 */
function localName(key: LimitKey): string {
  if (typeof key === 'string') {
    if (key.length > LONGEST || key.length === 0) return COLON + encodeKey(key)
    // The parts of an array have colons between them, but none before the first.
    return key.includes(COLON) ? COLON + key : key
  }
  if (key === ONE_FOR_ALL) return COLON
  if (Array.isArray(key) && key.length === 1 && !Array.isArray(key[0])) return localName(key[0] as LimitKey)
  return encodeKey(key)
}

/** A map by local name that drops the oldest entry when it has too many. */
class LocalTable<T> {
  readonly #entries = new Map<string, T>()
  readonly #most: number
  readonly #onDrop: ((entry: T) => void) | undefined

  constructor(most: number, onDrop?: (entry: T) => void) {
    this.#most = most
    this.#onDrop = onDrop
  }

  get(name: string): T | undefined {
    return this.#entries.get(name)
  }

  /** Makes the entry the newest one. */
  set(name: string, entry: T): void {
    this.delete(name)
    this.#entries.set(name, entry)
    if (this.#entries.size <= this.#most) return
    for (const oldest of this.#entries.keys()) {
      this.delete(oldest)
      return
    }
  }

  delete(name: string): void {
    const entry = this.#entries.get(name)
    if (entry !== undefined && this.#entries.delete(name)) this.#onDrop?.(entry)
  }

  clear(): void {
    for (const name of [...this.#entries.keys()]) this.delete(name)
  }
}
