import { InvalidInputError, type Limit, LimiterUnavailableError, MAX_TIMER_MS, ONE_FOR_ALL } from 'sluice/internal'
import type { CombinedAnswer, CombinedLimiter, Lease, LimitAnswer, Limiter, LimitKey, WaitOptions } from 'sluice/limits'
import { type Entry, type HttpRequest, type HttpResponse, type Middleware, type Pass, pathOf } from '../middleware.ts'
import type { Policy } from '../responses/policy.ts'
import { problemResponse } from '../responses/problem.ts'
import { DEFAULT_FORMS, type HeaderForm, rateLimitFields } from '../responses/rate-limit-fields.ts'
import { refusalResponse } from '../responses/refusal.ts'
import { Allowed } from './allow-list.ts'
import { takeTurn, waitOptionsOf } from './burst-queue.ts'
import { ANONYMOUS, checkFunction, type KeyOf } from './key-functions.ts'
import {
  type ByLimit,
  type Cost,
  checkRateLimitOptions,
  type Limits,
  type RateLimitOptions,
  tiersOf,
} from './rate-limit-options.ts'

const PASS: Pass = {}

/**
 * Middleware that lets requests within a limit pass, and refuses the rest: 429 with `Retry-After`, problem type
 * `quota-exceeded`.
 *
 * ```ts
 * const logins = createLimiter(redis, { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' })
 * app.post('/login', { onRequest: fastifyHook(rateLimit({ limit: logins, key: byAddress() })) }, login)
 * ```
 * For limits combined by `combine`, the response reports the one with the longest wait, and names all that refuse. If
 * Redis does not decide, the response is 503, unless `onError: 'allow'` of the limiter lets the request pass. A place
 * under a limit of `concurrency` is held until the response was sent or the caller has disconnected.
 * @throws InvalidInputError
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  return new RateLimit(options)
}

class RateLimit implements Middleware {
  readonly #options: RateLimitOptions
  readonly #gates: ReadonlyMap<string, Gate>
  readonly #default: Gate
  readonly #allowed: Allowed

  constructor(options: RateLimitOptions) {
    checkRateLimitOptions(options)
    const { limit, key, cost = 1, allow = {}, burstQueue } = options
    const terms = { key, cost, waiting: burstQueue === undefined ? undefined : waitOptionsOf(burstQueue) }
    this.#options = options
    this.#gates = new Map([...tiersOf(limit)].map(([tier, one]) => [tier, new Gate(one, terms)]))
    this.#default = this.#gates.get('default') as Gate
    this.#allowed = new Allowed(allow)
  }

  async enter(request: HttpRequest): Promise<Entry> {
    const { skip, onLimit } = this.#options
    if ((skip && (await skip(request))) || this.#allowed.hasAddressOf(request)) return PASS
    const gate = this.#gates.size === 1 ? this.#default : await this.#gateOf(request)
    try {
      const keyed = gate.keysOf(request)
      const keys = keyed instanceof Promise ? await keyed : keyed
      if (this.#allowed.hasKey(keys)) return PASS
      const answer = await gate.ask(request, keys)
      if (answer.undecided && !answer.allowed) throw new LimiterUnavailableError(answer.policy, 'Redis did not decide')
      const answers = 'answers' in answer ? answer.answers : [answer]
      const known = this.#policiesOf(gate, keys, answers)
      const policies = known instanceof Promise ? await known : known
      if (answer.allowed) return this.#pass(answers, policies)
      const response = this.#refusal(request, answer, answers, policies)
      return { response: (onLimit && (await onLimit(request, response, answer))) ?? response }
    } catch (error) {
      const at = { instance: pathOf(request.url), policyName: gate.limiters[0]?.name ?? '', forms: this.#forms }
      const response = refusalResponse(error, at)
      if (!response) throw error
      return { response }
    }
  }

  async #gateOf(request: HttpRequest): Promise<Gate> {
    const { tier = (asked) => asked.identity?.tier } = this.#options
    return this.#gates.get((await tier(request)) ?? 'default') ?? this.#default
  }

  #pass(answers: readonly LimitAnswer[], policies: readonly Policy[]): Pass {
    const headers = rateLimitFields(policies, this.#forms)
    const { shadowHeader } = this.#options
    if (shadowHeader) {
      const shadowed = answers.filter(({ wouldRefuse }) => wouldRefuse).map(({ policy }) => policy)
      if (shadowed.length > 0) headers[shadowHeader.toLowerCase()] = shadowed.join(', ')
    }
    if (!answers.some(({ lease }) => lease)) return { headers }
    const leaves = answers.flatMap(({ lease }) => (lease ? [keepLease(lease)] : []))
    return { headers, leave: () => leaves.forEach((leave) => void leave()) }
  }

  #refusal(
    request: HttpRequest,
    binding: LimitAnswer,
    answers: readonly LimitAnswer[],
    policies: readonly Policy[],
  ): HttpResponse {
    const { policy, limit, remaining, retryAfterMs } = binding
    const others = answers.filter((answer) => !answer.allowed && answer.policy !== policy)
    return problemResponse({
      status: 429,
      kind: 'quota-exceeded',
      detail: `Limit "${policy}" allows it in ${retryAfterMs} ms.`,
      retryAfterMs,
      // The binding limit comes first.
      violatedPolicies: [policy, ...others.map((answer) => answer.policy)],
      limit,
      remaining,
      policies,
      forms: this.#forms,
      instance: pathOf(request.url),
    })
  }

  /** Policies that cannot be read now are left out: the decision has already been made. */
  #policiesOf(
    gate: Gate,
    keys: readonly LimitKey[],
    answers: readonly LimitAnswer[],
  ): readonly Policy[] | Promise<readonly Policy[]> {
    if (this.#forms.length === 0) return []
    const policies = policiesOf(gate.limiters, keys, answers, this.#options.bucket)
    return policies instanceof Promise ? policies.catch(() => []) : policies
  }

  get #forms(): readonly HeaderForm[] {
    return this.#options.headers ?? DEFAULT_FORMS
  }
}

/** Extensions per lease: two may fail before it expires. */
const PARTS = 3

/**
 * Extends a lease until it is released. It does not keep the process alive. While Redis is unavailable, extensions are
 * retried, and a lease that cannot be released expires.
 * @returns releases it
 */
export function keepLease(lease: Lease): () => void {
  const extend = () => {
    lease.extend().then(
      (isKept) => {
        if (!isKept) clearInterval(timer)
      },
      () => {},
    )
  }
  const timer = setInterval(extend, Math.min(lease.leaseMs / PARTS, MAX_TIMER_MS)).unref()
  return () => {
    clearInterval(timer)
    lease.release().catch(() => {})
  }
}

interface GateTerms {
  readonly key: ByLimit<KeyOf>
  readonly cost: ByLimit<Cost>
  /** undefined: requests do not wait. */
  readonly waiting: WaitOptions | undefined
}

/** A value, or how it is found. */
type Given<T> = T | ((request: HttpRequest) => T | Promise<T>)

/** A limit, and how requests are charged to it. */
class Gate {
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

/** A limiter's times are rounded up to whole ms: with this subtracted, an hour is reported as 3600 s, not 3601. */
const ROUNDED_UP_MS = 1
/** Fields report windows in whole seconds: a shorter one would look like a much lower rate. */
const LEAST_WINDOW_MS = 1000

/**
 * The policies that are reported for the limits. A limit in shadow mode that would have refused is not reported, nor is
 * one that Redis did not decide.
 */
function policiesOf(
  limiters: readonly Limiter[],
  keys: readonly LimitKey[],
  answers: readonly LimitAnswer[],
  bucket: string | undefined,
): readonly Policy[] | Promise<readonly Policy[]> {
  const reported = answers.filter((answer) => !answer.wouldRefuse && !answer.undecided)
  const rules = reported.map(({ policy }) => {
    const at = limiters.findIndex(({ name }) => name === policy)
    return (limiters[at] as Limiter).ruleOf(keys[at] as LimitKey)
  })
  const clockMs = limiters[0]?.nowMs
  const policies = (known: readonly Limit[]) =>
    reported.map((answer, i) => ({ ...policyOf(answer, known[i] as Limit, bucket), clockMs }))
  return rules.some((rule) => rule instanceof Promise) ? Promise.all(rules).then(policies) : policies(rules as Limit[])
}

function policyOf(answer: LimitAnswer, limit: Limit, bucket: string | undefined): Policy {
  const { policy, remaining } = answer
  const { windowMs = 0 } = limit
  return {
    name: policy,
    quota: answer.limit,
    remaining,
    windowMs: windowMs >= LEAST_WINDOW_MS ? windowMs : undefined,
    ...resetOf(answer, limit),
    unit: limit.algorithm === 'concurrency' ? 'concurrent-requests' : 'requests',
    bucket,
  }
}

/** From the stored instant: computed from now, it would differ in each response. */
function resetOf(answer: LimitAnswer, limit: Limit): Pick<Policy, 'resetAtMs' | 'resetMs'> {
  const { allowed, retryAt, retryAfterMs } = answer
  if (allowed) return { resetAtMs: nextUnitAtMs(answer, limit) }
  return retryAt ? { resetAtMs: retryAt.getTime() - ROUNDED_UP_MS } : { resetMs: retryAfterMs }
}

/**
 * When more units are available than now, ms since 1970 on Redis's clock; undefined if none are used. A bucket refills
 * unit by unit, until it is full; all units of a window are back at its end.
 */
function nextUnitAtMs(answer: LimitAnswer, { algorithm, intervalMs = 0 }: Limit): number | undefined {
  const missing = answer.limit - answer.remaining
  // A place becomes free when a lease is released, at an unknown time.
  if (missing <= 0 || algorithm === 'concurrency') return undefined
  return answer.resetAt.getTime() - ROUNDED_UP_MS - (missing - 1) * intervalMs
}
