import type { ShapeMode } from '../mode.ts'
import type { LimitAnswer } from './answer.ts'
import type { Limit } from './limit.ts'
import type { LimitKey } from './limit-keys.ts'
import { overshootBound } from './local-bound.ts'
import { LocalBuckets } from './local-buckets.ts'
import { checkLocalLimiting, DEFAULT_MAX_LOCAL_KEYS, type LocallyLimited } from './local-options.ts'
import { LocalShares, type TakeFromRedis } from './local-shares.ts'
import { localName } from './local-table.ts'
import { Refusals } from './mitigation.ts'

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

  /** See local-bound.ts. */
  get overshootBound(): number {
    return this.#overshootBound
  }

  /** The limit has another definition now. */
  follow(options: LocallyLimited): void {
    this.#overshootBound = overshootBound(options)
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
