import { InvalidInputError, ONE_FOR_ALL } from 'sluice/internal'
import type { CombinedAnswer, CombinedLimiter, LimitAnswer, Limiter, LimitKey, WaitOptions } from 'sluice/limits'
import type { HttpRequest } from '../middleware.ts'
import { takeTurn } from './burst-queue.ts'
import { ANONYMOUS, checkFunction, type KeyOf } from './key-functions.ts'
import type { ByLimit, Cost, Limits } from './rate-limit-options.ts'

export interface GateTerms {
  readonly key: ByLimit<KeyOf>
  readonly cost: ByLimit<Cost>
  /** undefined: requests do not wait. */
  readonly waiting: WaitOptions | undefined
}

/** A value, or how it is found. */
type Given<T> = T | ((request: HttpRequest) => T | Promise<T>)

/** A limit, and how requests are charged to it. */
export class Gate {
  readonly limiters: readonly Limiter[]
  readonly #combined: CombinedLimiter | undefined
  readonly #terms: GateTerms

  /** @throws InvalidInputError */
  constructor(limit: Limits, terms: GateTerms) {
    this.#combined = 'limiters' in limit ? limit : undefined
    this.limiters = 'limiters' in limit ? limit.limiters : [limit]
    this.#terms = terms
    this.#check('key', terms.key, (value) => checkFunction('key', value))
    this.#check('cost', terms.cost, (value) => {
      if (typeof value !== 'number') checkFunction('cost', value)
      else if (!(Number.isFinite(value) && value > 0)) throw new InvalidInputError(`cost must be above 0; got ${value}`)
    })
    if (terms.waiting && this.#combined) {
      throw new InvalidInputError('burstQueue needs one limit: limits that are combined have no queue')
    }
  }

  /** One key for each limiter. Returns a promise only if a key function does, since this runs for each request. */
  keysOf(request: HttpRequest): readonly LimitKey[] | Promise<readonly LimitKey[]> {
    const known = (keys: readonly (LimitKey | undefined)[]) => keys.map((key) => key ?? ANONYMOUS)
    return whenKnown(this.#forEach<LimitKey | undefined>(this.#terms.key, request, ONE_FOR_ALL), known)
  }

  /**
   * Charges the request if it may pass.
   * @throws CallerGoneError, what `take` throws
   */
  async ask(request: HttpRequest, keys: readonly LimitKey[]): Promise<LimitAnswer | CombinedAnswer> {
    const costs = this.#forEach<number>(this.#terms.cost, request, 1)
    return this.#take(request, keys, costs instanceof Promise ? await costs : costs)
  }

  #take(
    request: HttpRequest,
    keys: readonly LimitKey[],
    costs: readonly number[],
  ): Promise<LimitAnswer | CombinedAnswer> {
    if (this.#combined) return this.#combined.take(this.#byName(keys), { costs: this.#byName(costs) })
    const [limiter, key, cost] = [this.limiters[0] as Limiter, keys[0] as LimitKey, costs[0] as number]
    const { waiting } = this.#terms
    if (!waiting) return limiter.take(key, { cost })
    return takeTurn(limiter, key, { ...waiting, cost, signal: request.signal })
  }

  /** The value for each limiter; `absent` for one that is not among those given by limit. */
  #forEach<T>(given: ByLimit<Given<T>>, request: HttpRequest, absent: T): readonly T[] | Promise<readonly T[]> {
    const found = (one: Given<T>) => (typeof one === 'function' ? (one as (of: HttpRequest) => T)(request) : one)
    if (typeof given !== 'object') return whenKnown(found(given), (one) => this.limiters.map(() => one))
    const byName = given as Readonly<Record<string, Given<T>>>
    return Promise.all(
      this.limiters.map(({ name }) => (Object.hasOwn(byName, name) ? found(byName[name] as Given<T>) : absent)),
    )
  }

  #byName<T>(values: readonly T[]): Readonly<Record<string, T>> {
    return Object.fromEntries(this.limiters.map(({ name }, i) => [name, values[i] as T]))
  }

  /** Checks the value, or each value given by limit name. @throws InvalidInputError */
  #check<T>(option: string, given: ByLimit<T>, check: (value: unknown) => void): void {
    if (typeof given !== 'object' || given === null) {
      check(given)
      return
    }
    const names = this.limiters.map(({ name }) => name)
    for (const [name, value] of Object.entries(given)) {
      if (!names.includes(name)) {
        throw new InvalidInputError(`${option} names limit '${name}'; the limits are ${names.join(', ')}`)
      }
      check(value)
    }
  }
}

function whenKnown<T, R>(value: T | Promise<T>, then: (value: T) => R): R | Promise<R> {
  return value instanceof Promise ? value.then(then) : then(value)
}
