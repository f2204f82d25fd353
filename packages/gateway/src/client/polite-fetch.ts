import type { HttpAnswer } from 'sluice/egress'
import {
  type HttpSignals,
  LimitExceededError,
  MAX_PAUSE_MS,
  oneLine,
  type QuotaSignal,
  readHttpSignals,
  throttled,
  waitOfQuotas,
} from 'sluice/internal'
import { Buckets, type Route, routeOf } from './buckets.ts'
import type { Clock } from './clock.ts'
import type { Pass, Quota } from './gate.ts'
import { type Block, Line } from './line.ts'
import { type Fetch, type PoliteFetchOptions, type ResolvedOptions, resolveOptions } from './options.ts'

/** Failures that may be transient. (429 and 503 with a time are refusals.) */
const REPEATED = [408, 425, 429, 500, 502, 503, 504]

/** How an attempt ended: with an answer, or with an error that `fetch` threw. */
type Outcome = { readonly response: Response; readonly reading: Reading } | { readonly error: unknown }

/** One call of `fetch`, from its first attempt to its last. */
interface Course {
  readonly call: Call
  readonly input: string | URL | Request
  readonly init: RequestInit | undefined
  readonly deadlineMs: number
  /** The number of the call: earlier calls go first. */
  readonly place: number
}

/** The state of a client, and how it handles each call. */
export class PoliteClient {
  readonly #options: ResolvedOptions
  readonly #clock: Clock
  readonly #buckets: Buckets
  readonly #line: Line
  readonly #budget = new RetryBudget()
  #calls = 0

  /** @throws InvalidInputError */
  constructor(options: PoliteFetchOptions, clock: Clock) {
    this.#options = resolveOptions(options)
    this.#clock = clock
    this.#buckets = new Buckets(this.#options)
    this.#line = new Line(clock)
  }

  /** How many requests wait, and how many buckets are remembered. */
  get size(): { readonly waiting: number; readonly buckets: number } {
    return { waiting: this.#line.length, buckets: this.#buckets.size }
  }

  readonly fetch: Fetch = async (input, init) => {
    const call = callOf(input, init)
    const deadlineMs = this.#clock.nowMs() + this.#options.timeoutMs
    const course = { call, input, init, deadlineMs, place: ++this.#calls }
    this.#budget.deposit()
    let last: Response | undefined
    let notBeforeMs = Number.NEGATIVE_INFINITY
    for (let attempt = 1; ; attempt++) {
      const passes = await this.#wait(course, attempt, notBeforeMs, last)
      if (!passes) return last as Response
      void last?.body?.cancel().catch(() => {})
      const outcome = await this.#attempt(course)
      const waitMs = this.#settle(course, outcome, passes, attempt)
      if (waitMs === undefined) {
        if ('error' in outcome) throw outcome.error
        return outcome.response
      }
      notBeforeMs = this.#clock.nowMs() + waitMs
      last = 'response' in outcome ? outcome.response : undefined
    }
  }

  /** The passes of its turn; undefined if that would come too late and there is an answer to return. */
  async #wait(course: Course, attempt: number, notBeforeMs: number, last: Response | undefined) {
    const { call, deadlineMs, place } = course
    const { onWait, timeoutMs } = this.#options
    const report = ({ atMs, reason, gate }: Block, nowMs: number) =>
      onWait?.({ waitMs: atMs - nowMs, reason, bucket: gate?.name ?? call.route.origin, attempt })
    const gates = () => this.#buckets.gatesOf(call.route)
    try {
      const turn = { place, gates, notBeforeMs, deadlineMs, signal: call.signal, onWait: report }
      const admission = await this.#line.wait(turn)
      if ('passes' in admission) return admission.passes
      if (last) return undefined
      const retryAfterMs = Math.max(1, Math.ceil(admission.lateUntilMs - this.#clock.nowMs()))
      throw new LimitExceededError(call.route.origin, `no turn within ${timeoutMs} ms`, retryAfterMs)
    } catch (error) {
      void last?.body?.cancel().catch(() => {})
      throw error
    }
  }

  /** Sends the request and reads the answer, in the time that is left. */
  async #attempt({ call, input, init, deadlineMs }: Course): Promise<Outcome> {
    const late = new AbortController()
    const stopTimer = this.#clock.after(Math.max(0, deadlineMs - this.#clock.nowMs()), () =>
      late.abort(new DOMException(`no answer within ${this.#options.timeoutMs} ms`, 'TimeoutError')),
    )
    // Only until the headers arrive: the caller may read the body at its own pace.
    const signal = call.signal ? AbortSignal.any([call.signal, late.signal]) : late.signal
    try {
      const response = await this.#options.fetch(input, { ...init, signal })
      const answer = await receivedAnswer(response, call, this.#clock.epochMs())
      return { response, reading: readReading(answer, call.route.origin) }
    } catch (error) {
      return { error }
    } finally {
      stopTimer()
    }
  }

  /** Records what an attempt showed. @returns how long to wait for the next one, ms; undefined after the last one */
  #settle(
    { call, deadlineMs }: Course,
    outcome: Outcome,
    passes: readonly Pass[],
    attempt: number,
  ): number | undefined {
    const nowMs = this.#clock.nowMs()
    const jitterMs = fullJitterMs(this.#options, attempt - 1, this.#clock.random())
    const saidMs = 'reading' in outcome ? outcome.reading.waitMs : undefined
    // Never before the given time: the jitter comes on top.
    const waitMs = (saidMs ?? 0) + jitterMs
    if ('reading' in outcome) this.#learn(call, outcome.reading, passes, { nowMs, jitterMs, waitMs })
    else for (const pass of passes) pass.done(nowMs, false)
    this.#line.pump()
    const isOver = attempt >= this.#options.attempts || call.signal?.aborted || nowMs >= deadlineMs
    if (isOver || !mayRepeat(call, outcome)) return undefined
    return saidMs !== undefined || this.#budget.withdraw(nowMs) ? waitMs : undefined
  }

  #learn(call: Call, reading: Reading, passes: readonly Pass[], times: Times): void {
    const { nowMs, jitterMs, waitMs } = times
    const { names, quotas, refusal, isGood } = reading
    if (names.length > 0) this.#buckets.learn(call.route, names)
    const quotaOf = (name: string): Quota | undefined => {
      const quota = quotas.get(name)
      return quota?.remaining === 0 ? { ...quota, resetMs: quota.resetMs + jitterMs } : quota
    }
    for (const pass of passes) pass.done(nowMs, isGood, quotaOf(pass.gate.name))
    const passed = passes.map(({ gate }) => gate.name)
    for (const name of names.filter((one) => !passed.includes(one))) {
      // The request counted against a bucket that was not known yet. Its success does not answer a probe.
      this.#buckets.gate(name).enter(nowMs).done(nowMs, false, quotaOf(name))
    }
    for (const name of refusal?.buckets ?? []) this.#buckets.gate(name).hold(nowMs + waitMs)
  }
}

interface Times {
  readonly nowMs: number
  readonly jitterMs: number
  readonly waitMs: number
}

/** A refused request was not processed. A failed one may have been, so only idempotent ones are repeated. */
function mayRepeat({ idempotent, repeatable }: Call, outcome: Outcome): boolean {
  if (!repeatable) return false
  if ('error' in outcome) return idempotent
  if (outcome.reading.refusal) return true
  return idempotent && REPEATED.includes(outcome.response.status)
}

interface Backoff {
  /** ms */
  readonly baseMs: number
  /** ms */
  readonly capMs: number
}

/**
 * Full jitter: random, from 0 to `min(cap, base × 2^attempt)`, attempts counted from 0. (AWS Architecture Blog,
 * "Exponential Backoff And Jitter")
 * @param random at least 0, below 1
 */
function fullJitterMs({ baseMs, capMs }: Backoff, attempt: number, random: number): number {
  return random * Math.min(capMs, baseMs * 2 ** attempt)
}

/** Finagle's RetryBudget: 20% of the calls and 10 a second, over 10 s. In calls, so that the sums are whole. */
const PER_REPEAT = 5
const PER_SECOND = 10 * PER_REPEAT
const MOST = 10 * PER_SECOND

/**
 * Bounds the retries after failures that name no time: when everything fails, retries must not multiply the load. A
 * token bucket instead of Finagle's window.
 */
class RetryBudget {
  #calls = MOST
  #filledMs: number | undefined

  /** Counts a call. */
  deposit(): void {
    this.#calls = Math.min(MOST, this.#calls + 1)
  }

  /** Takes a retry, if one is left. @returns whether one was */
  withdraw(nowMs: number): boolean {
    const elapsedMs = nowMs - (this.#filledMs ?? nowMs)
    this.#filledMs = nowMs
    this.#calls = Math.min(MOST, this.#calls + (elapsedMs / 1000) * PER_SECOND)
    if (this.#calls < PER_REPEAT) return false
    this.#calls -= PER_REPEAT
    return true
  }
}

/** Repeating them has no further effect. (RFC 9110, section 9.2.2) */
const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'TRACE']

/** What a call requests, as far as waiting and repeating depend on it. */
interface Call {
  readonly url: string
  readonly method: string
  readonly route: Route
  readonly signal: AbortSignal | undefined
  /** Whether it may be sent again even if it may have been processed. */
  readonly idempotent: boolean
  /** Whether its body can be sent again; a stream cannot. */
  readonly repeatable: boolean
}

/**
 * Reads the arguments of `fetch` without consuming a body.
 * @throws TypeError as `fetch` does for an invalid URL or headers
 */
function callOf(input: string | URL | Request, init: RequestInit = {}): Call {
  const request = typeof input === 'object' && 'url' in input ? input : undefined
  const url = new URL(request?.url ?? String(input), baseUrl())
  const method = (init.method ?? request?.method ?? 'GET').toUpperCase()
  const headers = new Headers(init.headers ?? request?.headers)
  const signal = init.signal === undefined ? request?.signal : init.signal
  const body = init.body === undefined ? request?.body : init.body
  return {
    url: url.href,
    method,
    route: routeOf(method, url),
    // A signal of its own: many calls may share one, and Node warns of more than ten listeners.
    signal: signal ? AbortSignal.any([signal]) : undefined,
    idempotent: IDEMPOTENT.includes(method) || headers.has('idempotency-key'),
    repeatable: !isStream(body),
  }
}

/** In browsers, paths are relative to the page. */
function baseUrl(): string | undefined {
  return (globalThis as { readonly location?: { readonly href: string } }).location?.href
}

function isStream(body: unknown): boolean {
  return typeof body === 'object' && body !== null && ('getReader' in body || Symbol.asyncIterator in body)
}

/** Bodies of refusals are small; longer ones are not used. */
const MAX_BYTES = 65_536

/**
 * A response in the form that parsers read. The body of a refusal is read from a clone, so that the response holds its
 * whole body in memory, and its connection is free while another attempt waits.
 */
async function receivedAnswer(
  response: Response,
  request: { readonly url: string; readonly method: string },
  receivedAtMs: number,
): Promise<HttpAnswer> {
  const { status } = response
  const body = status === 403 || status === 429 || status >= 500 ? await readBody(response) : undefined
  return {
    protocol: 'http',
    failed: status >= 400,
    text: '',
    name: '',
    code: '',
    status,
    headers: Object.fromEntries(response.headers),
    body,
    receivedAtMs,
    url: response.url || request.url,
    method: request.method,
  }
}

async function readBody(response: Response): Promise<unknown> {
  const text = await readText(response).catch(() => undefined)
  if (text === undefined) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

async function readText(response: Response): Promise<string | undefined> {
  if (!response.body) return undefined
  const reader = (response.clone().body as ReadableStream<Uint8Array>).getReader()
  const decoder = new TextDecoder()
  let text = ''
  for (let bytes = 0; ; ) {
    const { done, value } = await reader.read()
    if (done) return text + decoder.decode()
    bytes += value.byteLength
    if (bytes > MAX_BYTES) {
      // Settles only once the response's own half is cancelled too.
      void reader.cancel()
      return undefined
    }
    text += decoder.decode(value, { stream: true })
  }
}

/** Further policies of a longer list are ignored. */
const MAX_NAMES = 8

/** What one answer means for a client. Buckets have the names of their gates. */
interface Reading {
  /** The buckets that the request counted against, as far as the answer names them. */
  readonly names: readonly string[]
  /** What is left, by bucket. */
  readonly quotas: ReadonlyMap<string, Quota>
  /** Set if the request was not processed because there were too many. */
  readonly refusal: RateRefusal | undefined
  /** When to retry, ms from the arrival of the answer. */
  readonly waitMs: number | undefined
  /** Whether the downstream can take more. */
  readonly isGood: boolean
}

interface RateRefusal {
  /** The buckets to hold. */
  readonly buckets: readonly string[]
}

/**
 * Finds the buckets that an answer reports on or refuses. `Retry-After` and its forms in ms take precedence over the
 * reset of an exhausted quota. (draft-ietf-httpapi-ratelimit-headers-10, section 5)
 */
function readReading(answer: HttpAnswer, origin: string): Reading {
  const signals = readHttpSignals(answer)
  const { wait, quotas, problem } = signals
  const shared = sharedName(answer, origin)
  const named = quotas.filter(({ name }) => name !== undefined)
  // If policies have names, figures without a name repeat theirs.
  const meant = named.length > 0 ? named : quotas
  const nameOf = (quota: QuotaSignal) => policyName(quota, origin) ?? shared ?? origin
  const names = [...new Set([...(shared ? [shared] : []), ...named.map(nameOf)])].slice(0, MAX_NAMES)
  const byName = new Map<string, Quota>()
  for (const quota of meant) {
    const name = nameOf(quota)
    const figures = figuresOf(quota, wait?.ms)
    if (figures && !byName.has(name) && (name === origin || names.includes(name))) byName.set(name, figures)
  }
  const exhausted = [...byName].filter(([, { remaining }]) => remaining === 0).map(([name]) => name)
  const waitMs = waitOf(answer, signals, exhausted.length > 0)
  const violated = problem?.violated.map((name) => policyName({ name }, origin))
  const guilty = [names.filter((name) => violated?.includes(name)), exhausted, names]
  const refusal = isRefused(answer.status, waitMs)
    ? { buckets: isOfAll(answer) ? [origin] : (guilty.find((some) => some.length > 0) ?? [origin]) }
    : undefined
  return {
    names,
    quotas: byName,
    refusal,
    waitMs,
    isGood: answer.status < 500 && !refusal,
  }
}

/** Discord names buckets that several paths share, GitHub the resource to which paths belong. */
function sharedName({ headers }: HttpAnswer, origin: string): string | undefined {
  for (const field of ['x-ratelimit-bucket', 'x-ratelimit-resource']) {
    if (headers[field]) return `${origin} ${oneLine(`${field}=${headers[field]}`)}`
  }
  return undefined
}

function policyName({ name, partition }: Pick<QuotaSignal, 'name' | 'partition'>, origin: string): string | undefined {
  if (name === undefined) return undefined
  return `${origin} ${oneLine(`ratelimit=${name}${partition === undefined ? '' : `;pk=${partition}`}`)}`
}

/**
 * Only requests can be paced by counting them; of other units it only matters when they are used up.
 * @param waitMs from `Retry-After`, which takes precedence over a reset
 */
function figuresOf({ remaining, limit, resetMs, unit }: QuotaSignal, waitMs: number | undefined): Quota | undefined {
  if (remaining === undefined || resetMs === undefined || unit === 'concurrent-requests') return undefined
  if (unit !== 'requests' && remaining > 0) return undefined
  const untilMs = remaining === 0 && waitMs !== undefined ? waitMs : resetMs
  return { remaining, limit, resetMs: Math.min(untilMs, MAX_PAUSE_MS) }
}

/** A reset is a time to retry only if a quota caused the refusal. */
function waitOf(answer: HttpAnswer, signals: HttpSignals, isExhausted: boolean): number | undefined {
  if (answer.status === 429) return throttled(answer, signals).find((said) => said.kind === 'pause')?.forMs
  const wait = signals.wait ?? (answer.status === 403 && isExhausted ? waitOfQuotas(signals) : undefined)
  return wait && Math.min(wait.ms, MAX_PAUSE_MS)
}

/** 429 always, 503 with a time, 403 with a time or an exhausted quota, as GitHub sends it. */
function isRefused(status: number, waitMs: number | undefined): boolean {
  return status === 429 || ([403, 503].includes(status) && waitMs !== undefined)
}

/** 503 is about the server, not about the client's quota. (RFC 9110, section 15.6.4) */
function isOfAll({ status, headers }: HttpAnswer): boolean {
  return status === 503 || headers['x-ratelimit-global'] === 'true' || headers['x-ratelimit-scope'] === 'global'
}
