import { LimiterUnavailableError, MAX_TIMER_MS } from 'sluice/internal'
import type { Lease, LimitAnswer, LimitKey } from 'sluice/limits'
import { type Entry, type HttpRequest, type HttpResponse, type Middleware, type Pass, pathOf } from '../middleware.ts'
import type { Policy } from '../responses/policy.ts'
import { problemResponse } from '../responses/problem.ts'
import { DEFAULT_FORMS, type HeaderForm, rateLimitFields } from '../responses/rate-limit-fields.ts'
import { refusalResponse } from '../responses/refusal.ts'
import { Allowed } from './allow-list.ts'
import { waitOptionsOf } from './burst-queue.ts'
import { Gate } from './gate.ts'
import { policiesOf } from './policies.ts'
import { checkRateLimitOptions, type RateLimitOptions, tiersOf } from './rate-limit-options.ts'

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
