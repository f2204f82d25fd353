import { checkCallOptions, gotText, wrongCallOptions } from '../call-options.ts'
import { InvalidInputError, InvalidLimitError, LimiterUnavailableError } from '../errors.ts'
import type { ShapeMode } from '../mode.ts'
import { useFunctions } from '../redis/functions.ts'
import { uniqueId } from '../redis/ids.ts'
import type { LimitScript } from '../redis/scripts.ts'
import { type LimitAnswer, readAnswer } from './answer.ts'
import { Decider } from './decider.ts'
import { Decision, type Part } from './decision.ts'
import { Lease } from './lease.ts'
import { LeaseLine } from './lease-line.ts'
import type { Limit } from './limit.ts'
import type { Arguments, LimitRedis } from './limit-client.ts'
import { type LimitKey, ONE_FOR_ALL } from './limit-keys.ts'
import { checkLimiterOptions, DEFAULT_TIMEOUT_MS, type LimiterOptions } from './limiter-options.ts'
import { LocalFront } from './local-front.ts'
import { NamedLimit } from './named-limit.ts'
import { noteLimiter } from './same-names.ts'
import { type ReserveReply, type WaitOptions, waitForTurn } from './waiting.ts'

const TAKE_OPTIONS = ['cost']
const WAIT_OPTIONS = ['cost', 'timeoutMs', 'signal', 'maxWaiting', 'nodelay']

const PER_CALL = ['rate', 'points', 'duration', 'customDuration', 'limit', 'window', 'windowMs']

/** Refuses options of a call. For a window of its own, the message names the alternative. */
function wrongOptions(call: string, options: unknown, known: readonly string[]): InvalidInputError | undefined {
  const own = PER_CALL.find((name) => (options as Readonly<Record<string, unknown>> | null)?.[name] !== undefined)
  if (own === undefined) return wrongCallOptions(call, options, known)
  return new InvalidInputError(
    `${call} has no option '${own}': all calls about a key count in one window. Give the keys tiers (tiers, tierOf), or ` +
      'create a limiter for each window and combine them',
  )
}

export interface TakeOptions {
  /** Units, default 1. */
  readonly cost?: number
}

/**
 * Creates a limiter: one limit for any number of keys, shared by every process that uses its name.
 *
 * ```ts
 * const logins = createLimiter(redis, { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' })
 * const { allowed, retryAfterMs } = await logins.take([address, user])
 * ```
 * @param redis an ioredis client, `Redis` or `Cluster`
 * @throws InvalidLimitError, InvalidRateError, UnsupportedVersionError
 */
export function createLimiter(redis: LimitRedis, options: LimiterOptions): Limiter {
  return new Limiter(redis, options)
}

/** See {@link createLimiter}. */
export class Limiter {
  readonly name: string
  readonly redis: LimitRedis
  readonly #decider: Decider
  readonly #named: NamedLimit
  readonly #options: LimiterOptions
  /** Decides in memory, if the options ask for it. */
  readonly #front: LocalFront | undefined
  /** How long to wait for Redis, ms. */
  readonly timeoutMs: number
  /** Callers waiting for leases, by control key. */
  readonly #leases = new Map<string, LeaseLine>()

  constructor(redis: LimitRedis, options: LimiterOptions) {
    if (typeof redis?.defineCommand !== 'function') {
      throw new InvalidLimitError(`a limiter needs an ioredis client, Redis or Cluster; got ${gotText(String(redis))}`)
    }
    checkLimiterOptions(options)
    this.name = options.name
    noteLimiter(options.name)
    this.redis = redis
    useFunctions(redis, options.functions)
    this.#decider = Decider.of(redis)
    this.#options = options
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS
    this.#front = LocalFront.of(options, {
      limitOf: (key) => this.#named.limitOf(key),
      take: (limit, key, cost) => this.#decide(limit, key, cost, true),
      outage: (key, error) => this.outage(key, error),
      nowMs: () => this.nowMs,
    })
    this.#named = new NamedLimit(options, this.#decider, this.timeoutMs, (inForce) => this.#front?.follow(inForce))
  }

  /**
   * The maximum number of units of one key that can pass above the limit because processes lease shares of it (`sync`).
   * Bucket: the rate times `sync.intervalMs`, in any period. Window: the limit, in one window. Both: at most one share
   * for each of `sync.processes`. 0 without `sync`.
   */
  get overshootBound(): number {
    return this.#front?.overshootBound ?? 0
  }

  /**
   * Asks whether a request may pass, and charges it if it may. With `sync`, `remaining` of a passing request is the
   * rest of this process's share.
   * @param key default: the one state of all calls without a key
   * @throws InvalidKeyError, InvalidCostError, CostTooHighError, LimitConflictError, LimiterUnavailableError
   */
  take(key: LimitKey = ONE_FOR_ALL, options: TakeOptions = {}): Promise<LimitAnswer> {
    const wrong = wrongOptions('take', options, TAKE_OPTIONS)
    if (wrong) return Promise.reject(wrong)
    const { cost = 1 } = options
    if (!this.#front) return this.#ask(key, cost, true)
    return this.#named.isDefined ? this.#front.take(key, cost) : this.#takeFirst(this.#front, key, cost)
  }

  /** Answers as `take` would, but charges nothing. */
  peek(key: LimitKey = ONE_FOR_ALL, options: TakeOptions = {}): Promise<LimitAnswer> {
    const wrong = wrongOptions('peek', options, TAKE_OPTIONS)
    return wrong ? Promise.reject(wrong) : this.#ask(key, options.cost ?? 1, false)
  }

  /**
   * Waits for a turn, in order. The turn is reserved, so that Redis is not asked again, except for `concurrency`.
   * @throws LimitExceededError if too many callers wait, or the turn would come too late; the errors of `take`
   */
  async wait(key: LimitKey = ONE_FOR_ALL, options: WaitOptions = {}): Promise<LimitAnswer> {
    checkCallOptions('wait', options, WAIT_OPTIONS)
    const limit = await this.limitOf(key)
    if (limit.algorithm !== 'concurrency') return waitForTurn(this, limit, key, options)
    const { limit: place, state } = limit.placeOf(key)
    const line = this.#leases.get(place.control) ?? new LeaseLine(this.redis, `${place.control}:wake`)
    this.#leases.set(place.control, line)
    return line.wait(this.name, state, () => this.#ask(key, options.cost ?? 1, true), options)
  }

  /** Charges units unconditionally: a key may owe more than the limit for a while. */
  penalty(key: LimitKey = ONE_FOR_ALL, units = 1): Promise<LimitAnswer> {
    return this.#settle(key, units)
  }

  /** Gives units back. */
  reward(key: LimitKey = ONE_FOR_ALL, units = 1): Promise<LimitAnswer> {
    return this.#settle(key, -units)
  }

  /** Refuses a key for a while, even if it has units left. It never shortens a longer block; 0 lifts the block. */
  async block(key: LimitKey | undefined, ms: number): Promise<void> {
    if (!(Number.isFinite(ms) && ms >= 0)) throw new InvalidLimitError(`block needs a number of ms >= 0; got ${ms}`)
    const named = key ?? ONE_FOR_ALL
    await this.run('block-key', named, [ms]).finally(() => this.#front?.forget(named))
  }

  /** Deletes the state of a key, a block included. */
  async reset(key: LimitKey = ONE_FOR_ALL): Promise<void> {
    await this.run('reset-key', key, []).finally(() => this.#front?.forget(key))
  }

  /**
   * Sets the mode for every process at once; null restores the mode given in the code. For a spread limit, every part
   * has the mode once this resolves; if it rejects, only some may have it: call it again.
   */
  async setMode(mode: ShapeMode | null): Promise<void> {
    checkLimiterOptions({ name: this.name, ...(mode === null ? {} : { mode }) })
    await this.#named.setMode(mode).finally(() => this.#front?.setMode(mode))
  }

  /** The rule for a key, once it is known whether a newer program has replaced it. */
  async limitOf(key: LimitKey): Promise<Limit> {
    if (!this.#named.isDefined) await this.#named.define()
    return this.#named.limitOf(key)
  }

  /** As `limitOf`, but synchronous if the rule is known. */
  ruleOf(key: LimitKey): Limit | Promise<Limit> {
    return this.#named.isDefined ? this.#named.limitOf(key) : this.limitOf(key)
  }

  /** The rule for a key after a newer definition was seen. */
  relearn(key: LimitKey): Promise<Limit> {
    this.#named.outdate()
    return this.limitOf(key)
  }

  /** Estimate of Redis's time, ms since 1970, never ahead of it. Local time before the first decision. */
  get nowMs(): number {
    return this.#decider.nowMs
  }

  /** The answer for one part of a decision; a place granted under `concurrency` comes with its lease. */
  read(limit: Limit, part: Part, decision: Decision, index = 0): LimitAnswer {
    const answer = readAnswer(this.name, limit.quota, decision, index)
    if (part.lease === undefined || !decision.allowed || answer.wouldRefuse) return answer
    return { ...answer, lease: new Lease(this.#run, part, limit.leaseUs, decision.nowUs) }
  }

  /** Runs a script on the control hash and a state of this limit, within `timeoutMs`. */
  async run<T>(script: LimitScript, key: LimitKey, args: Arguments): Promise<T> {
    const { limit, state } = (await this.limitOf(key)).placeOf(key)
    const keys = [limit.control, state]
    return this.#run<T>(script, script === 'cancel-reservation' ? [...keys, waitingKey(state)] : keys, args)
  }

  /** Reserves a turn, within `timeoutMs`: once, even if the call is sent twice. */
  async reserve(key: LimitKey, id: string, args: Arguments): Promise<ReserveReply> {
    const { limit, state } = (await this.limitOf(key)).placeOf(key)
    const keys = [limit.control, state, waitingKey(state), `${state}~turn:${id}`]
    return this.#decider.runBefore(this.name, this.timeoutMs, 'reserve', keys, args)
  }

  /** Answers an error by `onError`. @throws the error by default, and if Redis did not cause it */
  outage(key: LimitKey, error: unknown): LimitAnswer {
    const { onError = 'throw', onFailure } = this.#options
    if (!(error instanceof LimiterUnavailableError)) throw error
    onFailure?.(error, key)
    if (onError === 'throw') throw error
    const allowed = onError === 'allow'
    const { quota } = this.#named.base
    const common = {
      limit: quota,
      remaining: 0,
      resetAt: new Date(this.nowMs),
      policy: this.name,
      undecided: true,
    } as const
    return { allowed, retryAfterMs: allowed ? 0 : 1000, ...common }
  }

  /** If the rule is known, only the question and the answer are allocated: this runs a hundred thousand times per s. */
  #ask(key: LimitKey, cost: number, takes: boolean): Promise<LimitAnswer> {
    const limit = this.#named.isDefined ? this.#named.limitOf(key) : undefined
    if (!limit || limit instanceof Promise) return this.#askFirst(key, cost, takes)
    try {
      return this.#decide(limit, key, cost, takes)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async #askFirst(key: LimitKey, cost: number, takes: boolean): Promise<LimitAnswer> {
    try {
      if (!this.#named.isDefined) await this.#defineFor(key, cost)
    } catch (error) {
      return this.outage(key, error)
    }
    return this.#decide(await this.#named.limitOf(key), key, cost, takes)
  }

  /** A cost that can never pass is refused before anything is stored. With a version, a newer rule may allow it. */
  async #defineFor(key: LimitKey, cost: number): Promise<void> {
    if (this.#options.version === undefined) (await this.#named.limitOf(key)).part(key, cost)
    await this.#named.define()
  }

  async #takeFirst(front: LocalFront, key: LimitKey, cost: number): Promise<LimitAnswer> {
    try {
      await this.#defineFor(key, cost)
    } catch (error) {
      return this.outage(key, error)
    }
    return front.take(key, cost)
  }

  #decide(limit: Limit, key: LimitKey, cost: number, takes: boolean): Promise<LimitAnswer> {
    const part = limit.part(key, cost, takes && limit.algorithm === 'concurrency' ? uniqueId() : undefined)
    return this.#decider.decide([part], takes, this.timeoutMs).then(
      (decision) => {
        if (!decision.isOutdated) return this.read(limit, part, decision)
        this.#named.outdate()
        return this.#ask(key, cost, takes)
      },
      (error: unknown) => this.outage(key, error),
    )
  }

  async #settle(key: LimitKey, units: number): Promise<LimitAnswer> {
    if (!Number.isFinite(units)) throw new InvalidLimitError(`units must be a number; got ${units}`)
    const limit = await this.limitOf(key)
    if (limit.algorithm === 'concurrency') {
      throw new InvalidLimitError(`limit "${this.name}" counts leases: release or extend them, they cannot be charged`)
    }
    const { limit: place, state } = limit.placeOf(key)
    const [keys, args] = [
      [place.control, state],
      [limit.wire, units, uniqueId()],
    ]
    const settling = this.#decider.runBefore<readonly number[]>(this.name, this.timeoutMs, 'settle-limit', keys, args)
    const reply = await settling.finally(() => {
      if (units < 0) this.#front?.gaveBack(key)
    })
    const decision = new Decision(reply, 1)
    if (!decision.isOutdated) return readAnswer(this.name, limit.quota, decision, 0)
    this.#named.outdate()
    return this.#settle(key, units)
  }

  readonly #run = <T>(script: LimitScript, keys: readonly string[], args: Arguments): Promise<T> => {
    return this.#decider.run<T>(this.name, this.timeoutMs, script, keys, args)
  }
}

/** The callers that wait for turns of a key. No encoded key contains `~`. */
function waitingKey(state: string): string {
  return `${state}~waiting`
}
