import { checkArgument, checkCallOptions } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import { uniqueId } from '../redis/ids.ts'
import { bindingOf, type CombinedAnswer, type LimitAnswer } from './answer.ts'
import { Decider } from './decider.ts'
import type { Part } from './decision.ts'
import type { Limit } from './limit.ts'
import { hashTag, type LimitKey, ONE_FOR_ALL } from './limit-keys.ts'
import type { Limiter } from './limiter.ts'

/** Keys by limit name. A limit that is left out shares one state among all requests. */
export type CombinedKeys = Readonly<Record<string, LimitKey>>

export interface CombinedTakeOptions {
  /** Units taken from each limit, default 1. */
  readonly cost?: number
  /** Units for particular limits, by name; they override `cost`. */
  readonly costs?: Readonly<Record<string, number>>
}

interface Asked {
  readonly limiter: Limiter
  readonly limit: Limit
  readonly key: LimitKey
  readonly part: Part
}

/**
 * Combines several limits: a request is charged to all of them, or to none. Keys and windows may differ: per second and
 * per day; per user, per address and global; by region, account, method and client. The tightest one binds.
 *
 * ```ts
 * const api = combine([perSecond, perDay, everybody])
 * const { allowed, policy, retryAfterMs } = await api.take({ perSecond: user, perDay: user }, { costs: { perDay: 5 } })
 * ```
 * On a single Redis this is one script, and also on a cluster if the limits share a hash tag (`prefix: '{acme}'`), or
 * are spread (`spread: 'key'`) and given the same key. Otherwise, a cluster is asked slot by slot, and charges are
 * given back if a later slot refuses. Until then they count, so that other requests may be refused because of them, and
 * a process that dies in between leaves them charged.
 * @throws InvalidLimitError
 */
export function combine(limiters: readonly Limiter[]): CombinedLimiter {
  return new CombinedLimiter(limiters)
}

/** See {@link combine}. */
export class CombinedLimiter {
  readonly limiters: readonly Limiter[]
  readonly #decider: Decider
  readonly #timeoutMs: number

  constructor(limiters: readonly Limiter[]) {
    checkArgument(
      Array.isArray(limiters),
      'combine: its argument',
      'a list of limiters, made by createLimiter',
      limiters,
    )
    const [first] = limiters
    if (!first) throw new InvalidLimitError('combine needs at least one limit; got none')
    const other = limiters.find((limiter) => typeof limiter?.limitOf !== 'function')
    if (other !== undefined) {
      throw new InvalidLimitError(
        `combine takes a list of limiters, made by createLimiter; got ${JSON.stringify(other)}`,
      )
    }
    const foreign = limiters.find(({ redis }) => redis !== first.redis)
    if (foreign)
      throw new InvalidLimitError(`limits "${first.name}" and "${foreign.name}" have different clients: use one`)
    const twice = limiters.find(({ name }, i) => limiters.findIndex((other) => other.name === name) !== i)
    if (twice) throw new InvalidLimitError(`limit "${twice.name}" is given twice: combined limits need different names`)
    this.limiters = [...limiters]
    this.#decider = Decider.of(first.redis)
    this.#timeoutMs = Math.max(...limiters.map(({ timeoutMs }) => timeoutMs))
  }

  /**
   * Asks whether a request may pass, and charges it to every limit if it may.
   * @throws the errors of `limiter.take`
   */
  take(keys: CombinedKeys = {}, options: CombinedTakeOptions = {}): Promise<CombinedAnswer> {
    return this.#ask(keys, options, true)
  }

  /** Answers as `take` would, and charges nothing. */
  peek(keys: CombinedKeys = {}, options: CombinedTakeOptions = {}): Promise<CombinedAnswer> {
    return this.#ask(keys, options, false)
  }

  async #ask(keys: CombinedKeys, options: CombinedTakeOptions, takes: boolean): Promise<CombinedAnswer> {
    this.#checkIsObject('keys', keys)
    this.#checkIsObject('options', options)
    checkCallOptions(takes ? 'take' : 'peek', options, ['cost', 'costs'])
    if (options.costs !== undefined) this.#checkIsObject('costs', options.costs)
    this.#checkNames({ ...keys, ...options.costs })
    let answers: readonly LimitAnswer[]
    try {
      answers = await this.#untilDecided(keys, options, takes)
    } catch (error) {
      // The strictest `onError` of all limits decides.
      answers = this.limiters.map((limiter) => limiter.outage(keyOf(limiter, keys), error))
    }
    const binding = bindingOf(answers)
    const retryAfterMs = Math.max(...answers.map((answer) => answer.retryAfterMs))
    const lease = binding.allowed ? answers.find((answer) => answer.lease)?.lease : undefined
    return { ...binding, retryAfterMs, ...(lease ? { lease } : undefined), answers }
  }

  /** Asks again under the newer definition if a limit has one. */
  async #untilDecided(
    keys: CombinedKeys,
    options: CombinedTakeOptions,
    takes: boolean,
  ): Promise<readonly LimitAnswer[]> {
    for (;;) {
      const asked = await Promise.all(this.limiters.map((limiter) => askedOf(limiter, keys, options, takes)))
      const answers = await this.#decide(asked, takes)
      if (answers) return answers
      await Promise.all(asked.map(({ limiter, key }) => limiter.relearn(key)))
    }
  }

  /** @returns undefined if a limit has a newer definition: nothing is charged */
  async #decide(asked: readonly Asked[], takes: boolean): Promise<readonly LimitAnswer[] | undefined> {
    const answers = new Map<Asked, LimitAnswer>()
    const charged: Asked[] = []
    for (const group of this.#groups(asked)) {
      const decision = await this.#decider.decide(partsOf(group), takes, this.#timeoutMs)
      if (decision.isOutdated) {
        await giveBack(charged, answers)
        return undefined
      }
      group.forEach((one, i) => {
        answers.set(one, one.limiter.read(one.limit, one.part, decision, i))
      })
      if (decision.allowed) charged.push(...group)
      else {
        if (takes) await giveBack(charged, answers)
        break
      }
    }
    // Limits after one that refused were not asked: they have no answer.
    return asked.flatMap((one) => answers.get(one) ?? [])
  }

  /** On a cluster, each hash slot must be asked separately. */
  #groups(asked: readonly Asked[]): readonly (readonly Asked[])[] {
    if (!this.#decider.isCluster) return [asked]
    const groups = new Map<string | undefined, Asked[]>()
    for (const one of asked) {
      const tag = hashTag(one.part.limit.control)
      groups.set(tag, [...(groups.get(tag) ?? []), one])
    }
    return [...groups.values()]
  }

  /** Untyped callers may pass the key of a single limiter instead of an object of keys. */
  #checkIsObject(what: 'keys' | 'options' | 'costs', given: unknown): void {
    if (typeof given === 'object' && given !== null && !Array.isArray(given)) return
    const [{ name }] = this.limiters as [Limiter]
    const expected = {
      keys: `an object of keys by the names of the limits, such as { ${JSON.stringify(name)}: 'ada' }`,
      options: 'an object, such as { cost: 2 }',
      costs: `an object of costs by the names of the limits, such as { ${JSON.stringify(name)}: 2 }`,
    }[what]
    throw new InvalidLimitError(
      `${what} of combined limits must be ${expected}; got ${JSON.stringify(given) ?? String(given)}`,
    )
  }

  #checkNames(named: Readonly<Record<string, unknown>>): void {
    const names = this.limiters.map(({ name }) => name)
    const unknown = Object.keys(named).find((name) => !names.includes(name))
    if (unknown !== undefined) {
      throw new InvalidLimitError(
        `there is no limit "${unknown}" here; there are ${names.map((name) => `"${name}"`).join(', ')}`,
      )
    }
  }
}

async function askedOf(
  limiter: Limiter,
  keys: CombinedKeys,
  { cost = 1, costs = {} }: CombinedTakeOptions,
  takes: boolean,
): Promise<Asked> {
  const key = keyOf(limiter, keys)
  const limit = await limiter.limitOf(key)
  const lease = takes && limit.algorithm === 'concurrency' ? uniqueId() : undefined
  return { limiter, limit, key, part: limit.part(key, costs[limiter.name] ?? cost, lease) }
}

function keyOf({ name }: Limiter, keys: CombinedKeys): LimitKey {
  return keys[name] ?? ONE_FOR_ALL
}

function partsOf(group: readonly Asked[]): readonly Part[] {
  return group.map(({ part }) => part)
}

async function giveBack(charged: readonly Asked[], answers: ReadonlyMap<Asked, LimitAnswer>): Promise<void> {
  await Promise.all(
    charged.map((one) => {
      const answer = answers.get(one)
      // A limit in shadow that would have refused has charged nothing.
      if (answer?.wouldRefuse) return undefined
      return answer?.lease?.release() ?? one.limiter.reward(one.key, one.part.cost)
    }),
  )
}
