import { defaultDeclarer } from '../declarer.ts'
import { InvalidLimitError, LimitConflictError, LimiterUnavailableError } from '../errors.ts'
import type { ShapeMode } from '../shape-mode.ts'
import { uniqueId } from '../unique-id.ts'
import { type LimitAnswer, readAnswer } from './answer.ts'
import { Decider, type Decision, type Part } from './decider.ts'
import type { LimitRule } from './definition.ts'
import { Lease } from './lease.ts'
import { LeaseLine } from './lease-line.ts'
import { type Limit, LimitSet } from './limit.ts'
import { type Arguments, LimitClient, type LimitRedis, type LimitScript } from './limit-client.ts'
import { type LimitKey, ONE_FOR_ALL } from './limit-keys.ts'
import { checkLimiterOptions, DEFAULT_TIMEOUT_MS, type LimiterOptions, type TierOf } from './limiter-options.ts'
import { LocalFront } from './local-front.ts'
import { type WaitOptions, waitForTurn } from './waiting.ts'

/** Whether the definition is in force; the one that is, and its version or ''. */
type DefineReply = [inForce: number, definition: string, version: string]

/** How many keys the scripts on one state take: its limit's control hash, itself, those who wait for it. */
const KEYS: { readonly [S in LimitScript]?: number } = { reserve: 3, 'cancel-reservation': 3 }

export interface TakeOptions {
  /** Units, default 1. */
  readonly cost?: number
}

/**
 * Makes a limiter: one limit, for any number of keys, the same for every process that uses its name.
 *
 * ```ts
 * const logins = createLimiter(redis, { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' })
 * const { allowed, retryAfterMs } = await logins.take([address, user])
 * ```
 * @param redis an ioredis client, `Redis` or `Cluster`
 * @throws InvalidLimitError, InvalidRateError
 */
export function createLimiter(redis: LimitRedis, options: LimiterOptions): Limiter {
  return new Limiter(redis, options)
}

/** See {@link createLimiter}. */
export class Limiter {
  readonly name: string
  readonly redis: LimitRedis
  readonly #client: LimitClient
  readonly #decider: Decider
  #limits: LimitSet
  readonly #options: LimiterOptions
  /** What is decided in memory, if anything is. */
  readonly #front: LocalFront | undefined
  /** How long to wait for Redis, ms. */
  readonly timeoutMs: number
  #leases: LeaseLine | undefined
  #defined: Promise<void> | undefined
  #isDefined = false

  constructor(redis: LimitRedis, options: LimiterOptions) {
    checkLimiterOptions(options)
    this.#limits = new LimitSet(options)
    this.name = options.name
    this.redis = redis
    this.#client = LimitClient.of(redis)
    this.#decider = Decider.of(redis)
    this.#options = options
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS
    this.#front = LocalFront.of(options, {
      limitOf: (key) => this.limitOf(key),
      take: (limit, key, cost) => this.#decide(limit, limit.part(key, cost), true),
      outage: (limit, key, error) => this.outage(limit, key, error),
    })
  }

  /**
   * The most units of one key that pass above the limit, because this process and others lease shares of it (`sync`): of
   * a bucket, the rate times `sync.intervalMs` in any time; of a window, the limit in one window; in both no more than one
   * share for each of `sync.processes`. 0 without `sync`.
   */
  get overshootBound(): number {
    return this.#front?.overshootBound ?? 0
  }

  /**
   * Asks whether a request may pass, and charges it if it may. With `sync`, `remaining` is what is left of this process's
   * share where it passes.
   * @param key default: one for all
   * @throws InvalidKeyError, InvalidCostError, CostTooHighError, LimitConflictError, LimiterUnavailableError
   */
  take(key: LimitKey = ONE_FOR_ALL, { cost = 1 }: TakeOptions = {}): Promise<LimitAnswer> {
    return this.#front?.take(key, cost) ?? this.#ask(key, cost, true)
  }

  /** Answers as `take` would, and charges nothing. */
  peek(key: LimitKey = ONE_FOR_ALL, { cost = 1 }: TakeOptions = {}): Promise<LimitAnswer> {
    return this.#ask(key, cost, false)
  }

  /**
   * Waits for its turn, in order; the turn is reserved, and nothing is asked again meanwhile.
   * @throws LimitExceededError where too many wait, or the turn would come too late; what `take` throws
   */
  async wait(key: LimitKey = ONE_FOR_ALL, options: WaitOptions = {}): Promise<LimitAnswer> {
    const limit = await this.limitOf(key)
    if (limit.algorithm !== 'concurrency') return waitForTurn(this, limit, key, options)
    this.#leases ??= new LeaseLine(this.redis, `${limit.control}:wake`)
    return this.#leases.wait(this.name, limit.state(key), () => this.#ask(key, options.cost ?? 1, true), options)
  }

  /** Charges units without asking: a key may owe more than the limit for a while. */
  penalty(key: LimitKey, units = 1): Promise<LimitAnswer> {
    return this.#settle(key, units)
  }

  /** Gives units back. */
  reward(key: LimitKey, units = 1): Promise<LimitAnswer> {
    return this.#settle(key, -units)
  }

  /** Refuses a key for a while, whatever it has left. A later end is never brought forward; 0 lifts the block. */
  async block(key: LimitKey, ms: number): Promise<void> {
    if (!(Number.isFinite(ms) && ms >= 0)) throw new InvalidLimitError(`block needs a number of ms >= 0; got ${ms}`)
    await this.run('block-key', key, [ms]).finally(() => this.#front?.forget(key))
  }

  /** Forgets what is known of a key, a block included. */
  async reset(key: LimitKey = ONE_FOR_ALL): Promise<void> {
    await this.run('reset-key', key, []).finally(() => this.#front?.forget(key))
  }

  /** Sets the mode for every process at once; null goes back to what the code says. */
  async setMode(mode: ShapeMode | null): Promise<void> {
    checkLimiterOptions({ name: this.name, ...(mode === null ? {} : { mode }) })
    const done = this.#run('set-limit-mode', [this.#limits.control], [mode ?? ''])
    await done.finally(() => this.#front?.setMode(mode))
  }

  /** The rule that holds for a key. */
  limitOf(key: LimitKey): Limit | Promise<Limit> {
    const { tierOf } = this.#options
    if (tierOf === undefined) return this.#limits.base
    const tier = tierFor(tierOf, key)
    if (typeof tier === 'string' || tier === undefined) return this.#limits.ofTier(tier)
    return tier.then((found) => this.#limits.ofTier(found))
  }

  /** Stores what the name stands for, once. */
  define(): Promise<void> | undefined {
    if (this.#isDefined) return undefined
    this.#defined ??= this.#define().finally(() => {
      this.#defined = undefined
    })
    return this.#defined
  }

  /** The answer of one part of a decision; a place under a limit of `concurrency` comes with its lease. */
  read(limit: Limit, part: Part, decision: Decision, index = 0): LimitAnswer {
    const said = readAnswer(this.name, limit.quota, decision, decision.parts[index] as Decision['parts'][number])
    if (limit.algorithm !== 'concurrency' || !decision.allowed || part.lease === undefined) return said
    return { ...said, lease: new Lease(this.#client, part, limit.leaseUs, decision.nowUs) }
  }

  /** Runs a script on the control hash and a state of this limit, in time. */
  async run<T>(script: LimitScript, key: LimitKey, args: readonly (string | number)[]): Promise<T> {
    const limit = await this.limitOf(key)
    await this.define()
    const state = limit.state(key)
    return this.#run<T>(script, [limit.control, state, `${state}:waiting`].slice(0, KEYS[script] ?? 2), args)
  }

  /** What `onError` makes of an error. @throws it, by default, and whatever is no fault of Redis */
  outage(limit: Limit, key: LimitKey, error: unknown): LimitAnswer {
    const { onError = 'throw', onFailure } = this.#options
    if (!(error instanceof LimiterUnavailableError)) throw error
    onFailure?.(error, key)
    if (onError === 'throw') throw error
    const allowed = onError === 'allow'
    const said = { limit: limit.quota, remaining: 0, resetAt: new Date(), policy: this.name, undecided: true } as const
    return { allowed, retryAfterMs: allowed ? 0 : 1000, ...said }
  }

  async #ask(key: LimitKey, cost: number, takes: boolean): Promise<LimitAnswer> {
    const found = this.limitOf(key)
    const limit = found instanceof Promise ? await found : found
    const part = limit.part(key, cost, takes && limit.algorithm === 'concurrency' ? uniqueId() : undefined)
    try {
      return await this.#decide(limit, part, takes)
    } catch (error) {
      return this.outage(limit, key, error)
    }
  }

  async #decide(limit: Limit, part: Part, takes: boolean): Promise<LimitAnswer> {
    if (!this.#isDefined) await this.define()
    return this.read(limit, part, await this.#decider.decide([part], takes, this.timeoutMs))
  }

  async #settle(key: LimitKey, units: number): Promise<LimitAnswer> {
    if (!Number.isFinite(units)) throw new InvalidLimitError(`units must be a number; got ${units}`)
    const limit = await this.limitOf(key)
    if (limit.algorithm === 'concurrency') {
      throw new InvalidLimitError(`limit "${this.name}" counts leases: release or extend them, they can not be charged`)
    }
    const settling = this.run<number[]>('settle-limit', key, [limit.wire, units])
    const [nowUs, , waitUs, left, resetUs] = await settling.finally(() => {
      if (units < 0) this.#front?.gaveBack(key)
    })
    const part = { waitUs, left, resetUs } as Decision['parts'][number]
    const decision = { nowUs: nowUs as number, allowed: part.waitUs === 0, sharesKey: false, parts: [part] }
    return readAnswer(this.name, limit.quota, decision, part)
  }

  async #define(): Promise<void> {
    const { version = Number.NEGATIVE_INFINITY } = this.#options
    const { control, definition, name } = this.#limits
    const args = [definition, this.#options.version ?? '', defaultDeclarer()]
    const [inForce, stored, storedVersion] = await this.#run<DefineReply>('define-limit', [control], args)
    if (inForce !== 1) {
      // A newer program was here: its rule holds for this one too.
      if (storedVersion === '' || Number(storedVersion) <= version)
        throw new LimitConflictError(name, definition, stored)
      const inForce = { ...this.#options, ...(JSON.parse(stored) as LimitRule) }
      this.#limits = new LimitSet(inForce)
      this.#front?.follow(inForce)
    }
    this.#isDefined = true
  }

  #run<T>(script: LimitScript, keys: readonly string[], args: Arguments): Promise<T> {
    return this.#decider.run<T>(this.name, this.timeoutMs, script, keys, args)
  }
}

function tierFor(tierOf: TierOf, key: LimitKey): string | undefined | Promise<string | undefined> {
  if (typeof tierOf === 'function') return tierOf(key)
  return Object.hasOwn(tierOf, String(key)) ? tierOf[String(key)] : undefined
}
