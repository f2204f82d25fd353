import { LimitExceededError } from 'sluice/internal'
import { Buckets } from './buckets.ts'
import { type Call, callOf } from './call.ts'
import type { Clock } from './clock.ts'
import type { Pass, Quota } from './gate.ts'
import { type Block, Line } from './line.ts'
import { type Fetch, type PoliteFetchOptions, type ResolvedOptions, resolveOptions } from './options.ts'
import { type Reading, readReading } from './reading.ts'
import { receivedAnswer } from './received.ts'

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

  /** @throws InvalidPoliteFetchOptionError */
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

/** Finagle's RetryBudget: 20 % of the calls and 10 a second, over 10 s. In calls, so that the sums are whole. */
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
