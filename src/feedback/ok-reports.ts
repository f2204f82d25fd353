import type { StoredShape } from '../shape/stored.ts'
import type { Ok } from './feedback.ts'

/** Reports for each quiet period: so the fleet's count is known well enough, and costs Redis next to nothing. */
const PER_QUIET = 20
const LEAST_MS = 100
/** Word of a quota is news for so many ms at most. */
const QUOTA_MS = 250

/** Calls that went well so long ago are no news where nobody waited for word of them. */
const STALE_MS = 1000

/** Calls that went well. */
export interface OkCount {
  readonly count: number
  /** Departure of the last of all, µs; undefined: none did. */
  readonly lastUs: number | undefined
  /** How long ago the last of all ended, ms; undefined: none did. */
  readonly agoMs: number | undefined
}

/** What is worth telling of calls that went well. */
export interface OkReport extends OkCount {
  readonly quotas: readonly Ok[]
}

/** Most calls that go well are not worth a word: decides which are. */
export class OkReports {
  readonly #adapts: boolean
  #count = 0
  #countedFromMs = Number.NEGATIVE_INFINITY
  #lastUs: number | undefined
  #endedMs: number | undefined
  #toldMs = Number.NEGATIVE_INFINITY
  #quotaMs = Number.NEGATIVE_INFINITY

  constructor(adapts: boolean) {
    this.#adapts = adapts
  }

  /**
   * Counts one call.
   * @param sentUs when it departed @param running calls of this worker that are under way
   */
  next(sentUs: number, oks: readonly Ok[], shape: StoredShape | undefined, running: number): OkReport | undefined {
    const nowMs = performance.now()
    const everyMs = reportEveryMs(shape)
    this.#add(sentUs, nowMs, everyMs)
    const quotas = nowMs - this.#quotaMs < QUOTA_MS ? [] : oks.filter((ok) => this.#isNews(ok, shape, running))
    const due = everyMs !== undefined && nowMs - this.#toldMs >= everyMs
    if (quotas.length === 0 && !due && !shape?.isProbing) return undefined
    if (quotas.length > 0) this.#quotaMs = nowMs
    this.#toldMs = nowMs
    return { ...this.take(), quotas }
  }

  /** What was counted since it was told last, to be told now. */
  take(): OkCount {
    const count = this.#count
    this.#count = 0
    const agoMs = this.#endedMs === undefined ? undefined : performance.now() - this.#endedMs
    return { count, lastUs: this.#lastUs, agoMs }
  }

  #add(sentUs: number, nowMs: number, everyMs: number | undefined): void {
    if (everyMs === undefined && nowMs - this.#countedFromMs > STALE_MS) this.#count = 0
    if (this.#count === 0) this.#countedFromMs = nowMs
    this.#count += 1
    this.#endedMs = nowMs
    this.#lastUs = Math.max(this.#lastUs ?? 0, sentUs)
  }

  /** Whether it says that the rate in force is too high, or that nothing is left. */
  #isNews(ok: Ok, shape: StoredShape | undefined, running: number): boolean {
    const { remaining, resetMs = 0, scope } = ok
    if (remaining === 0 && resetMs > 0) return true
    if (!this.#adapts || scope !== 'queue') return false
    const intervalUs = shape?.pacedIntervalUs ?? 0
    return isAbovePolicy(ok, intervalUs) || (remaining !== undefined && resetMs > 0 && this.#paces(ok, shape, running))
  }

  /** Whether the quota would be used up before its reset, or was thought to be. */
  #paces({ remaining = 0, resetMs = 0 }: Ok, shape: StoredShape | undefined, running: number): boolean {
    const intervalUs = shape?.pacedIntervalUs
    if (intervalUs === undefined || shape?.feedback.quota) return true
    return (resetMs * 1000) / intervalUs > Math.max(0, remaining - running)
  }
}

/** undefined: nobody waits for word of them. */
function reportEveryMs(shape: StoredShape | undefined): number | undefined {
  const { pace, pauses, doubt, concurrency } = shape?.feedback ?? {}
  if (doubt || pauses || concurrency?.wall !== undefined) return LEAST_MS
  return pace && Math.max(LEAST_MS, pace.quietMs / PER_QUIET)
}

function isAbovePolicy({ policyRate }: Ok, intervalUs: number): boolean {
  return policyRate !== undefined && intervalUs * 1.001 < (policyRate.period * 1000) / policyRate.limit
}
