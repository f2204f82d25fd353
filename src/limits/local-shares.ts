import type { LimitAnswer } from './answer.ts'
import type { Limit } from './limit.ts'
import type { LimitKey } from './limit-keys.ts'
import { DEFAULT_MAX_LOCAL_KEYS, DEFAULT_SYNC_SHARE, type SyncOptions, shareOf } from './local-options.ts'
import { LocalTable } from './local-table.ts'
import type { Refusals } from './mitigation.ts'

/** Takes from the limit in Redis. */
export type TakeFromRedis = (limit: Limit, name: string, key: LimitKey, cost: number) => Promise<LimitAnswer>

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
 * callers that arrive meanwhile wait for it, in order. For how much may pass above the limit, see local-bound.ts.
 */
export class LocalShares {
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
