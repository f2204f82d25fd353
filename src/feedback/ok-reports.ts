import type { StoredShape } from '../shape/stored.ts'
import { isOfGroup, type Ok, type Scope } from './feedback.ts'

/** Reports per quiet period: enough for the fleet's count, at almost no cost to Redis. */
const PER_QUIET = 20
const LEAST_MS = 100
/** Minimum time between reports of a quota of the queue, or of one value of a limit, ms. */
const QUOTA_MS = 250

/** While no reports are needed, a count that started longer ago than this starts again. */
const STALE_MS = 1000

/** Successful calls. */
export interface OkCount {
  readonly count: number
  /** Departure of the most recent one, µs; undefined if there is none. */
  readonly lastUs: number | undefined
  /** How long ago the most recent one ended, ms; undefined if there is none. */
  readonly agoMs: number | undefined
}

/** A report of successful calls. */
export interface OkReport extends OkCount {
  readonly quotas: readonly Ok[]
}

export const NO_OKS: OkCount = { count: 0, lastUs: undefined, agoMs: undefined }
const MOST_SUBJECTS = 1000

/**
 * Successful calls of the last 1000 groups, and values of limits, of one worker. They are reported only with the
 * subject's next refusal.
 */
export class SubjectOks {
  readonly #counts = new Map<string, { count: number; lastUs: number; endedMs: number }>()

  wentWell(subject: string, sentUs: number): void {
    const { count, lastUs } = this.#counts.get(subject) ?? { count: 0, lastUs: 0 }
    const endedMs = performance.now()
    setLatest(this.#counts, subject, { count: count + 1, lastUs: Math.max(lastUs, sentUs), endedMs })
  }

  /** The count since the last report of the subject. */
  take(subject: string): OkCount {
    const known = this.#counts.get(subject)
    if (!known) return NO_OKS
    this.#counts.delete(subject)
    return { count: known.count, lastUs: known.lastUs, agoMs: performance.now() - known.endedMs }
  }
}

/** Decides which successful calls to report: most need no report. */
export class OkReports {
  readonly #adapts: boolean
  #count = 0
  #countedFromMs = Number.NEGATIVE_INFINITY
  #lastUs: number | undefined
  #endedMs: number | undefined
  #reportedMs = Number.NEGATIVE_INFINITY
  /** When quotas were last reported, by their subjects. */
  readonly #quotasMs = new Map<string, number>()

  constructor(adapts: boolean) {
    this.#adapts = adapts
  }

  /**
   * Counts one call.
   * @param sentUs when it departed @param running open calls of this worker
   * @param subjectOf names the group, or the value of a limit, of a scope
   */
  next(
    sentUs: number,
    oks: readonly Ok[],
    shape: StoredShape | undefined,
    running: number,
    subjectOf: (scope: Scope) => string | undefined = () => undefined,
  ): OkReport | undefined {
    const nowMs = performance.now()
    const everyMs = reportEveryMs(shape)
    this.#add(sentUs, nowMs, everyMs)
    const about = ({ scope }: Ok) => subjectOf(scope) ?? JSON.stringify(scope)
    const isSoon = (ok: Ok) => nowMs - (this.#quotasMs.get(about(ok)) ?? Number.NEGATIVE_INFINITY) < QUOTA_MS
    const quotas = oks.filter((ok) => (isOfGroup(ok.scope) || !isSoon(ok)) && this.#isNews(ok, shape, running))
    const due = everyMs !== undefined && nowMs - this.#reportedMs >= everyMs
    if (quotas.length === 0 && !due && !shape?.isProbing) return undefined
    for (const ok of quotas) if (!isOfGroup(ok.scope)) setLatest(this.#quotasMs, about(ok), nowMs)
    this.#reportedMs = nowMs
    return { ...this.take(), quotas }
  }

  /** The count since the last report, for the next one. */
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

  /**
   * Whether it shows that the current rate is too high, the remaining units of a limit, or that the quota is used up.
   */
  #isNews(ok: Ok, shape: StoredShape | undefined, running: number): boolean {
    const { remaining, resetMs = 0, scope } = ok
    if (remaining === 0 && resetMs > 0) return true
    if (typeof scope === 'object' && 'limit' in scope)
      return remaining !== undefined && shape?.limits.some(({ name }) => name === scope.limit) === true
    if (!this.#adapts || scope !== 'queue') return false
    const intervalUs = shape?.pacedIntervalUs ?? 0
    return isAbovePolicy(ok, intervalUs) || (remaining !== undefined && resetMs > 0 && this.#paces(ok, shape, running))
  }

  /** Whether the quota would be used up before its reset, or was expected to be. */
  #paces({ remaining = 0, resetMs = 0 }: Ok, shape: StoredShape | undefined, running: number): boolean {
    const intervalUs = shape?.pacedIntervalUs
    if (intervalUs === undefined || shape?.feedback.quota) return true
    return (resetMs * 1000) / intervalUs > Math.max(0, remaining - running)
  }
}

/** Keeps the last {@link MOST_SUBJECTS} entries, the latest last. */
function setLatest<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key)
  map.set(key, value)
  if (map.size <= MOST_SUBJECTS) return
  const [oldest] = map.keys()
  map.delete(oldest as string)
}

/** undefined: no reports are needed. */
function reportEveryMs(shape: StoredShape | undefined): number | undefined {
  const { pace, pauses, doubt, concurrency } = shape?.feedback ?? {}
  if (doubt || pauses || concurrency?.wall !== undefined) return LEAST_MS
  return pace && Math.max(LEAST_MS, pace.quietMs / PER_QUIET)
}

function isAbovePolicy({ policyRate }: Ok, intervalUs: number): boolean {
  return policyRate !== undefined && intervalUs * 1.001 < (policyRate.period * 1000) / policyRate.limit
}
