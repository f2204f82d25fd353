import { createHash } from 'node:crypto'
import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { type HeldJob, membersOf } from '../departure/held-job.ts'
import { PauseQueueError } from '../errors.ts'
import { keysUnder } from '../limits/queue-limits.ts'
import { formatDuration } from '../plain-text.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { StoredShape } from '../shape/stored.ts'
import type { Feedback, Ok, RetryJob, Scope } from './feedback.ts'
import { LatencyLimit, type LimitedWorker } from './latency-limit.ts'
import { NO_OKS, type OkCount, OkReports, SubjectOks } from './ok-reports.ts'
import { type checkFeedbackOptions, isOfPool, limitOfScope } from './options.ts'
import {
  applyFeedback,
  encodeFeedbackRequest,
  type FeedbackReply,
  type RefusedJob,
  type RefusedTarget,
} from './request.ts'
import { sanitizeFeedback, sanitizeFindings } from './sanitize.ts'
import type { CallOutcome, Found } from './source.ts'

/** A worker whose calls are answered. */
export interface CallingWorker extends LimitedWorker {
  readonly backend: {
    readonly store: ShapeStore
    /** Sends the outcome of a job until Redis accepts it, renewing the job's lock meanwhile. */
    untilStored<T>(jobIds: readonly string[], send: () => Promise<T>): Promise<T>
  }
}

/** What happens to a job whose call failed. */
export type Verdict =
  /** As without feedback. */
  | { readonly kind: 'own' }
  /** It can never succeed. */
  | { readonly kind: 'fatal'; readonly reason: string }
  /** It failed for a reason other than the rate: its attempts and its backoff decide, or the given delay. */
  | { readonly kind: 'backoff'; readonly reason: string; readonly afterMs?: number }
  /** It was throttled, but Redis could not be reached. */
  | { readonly kind: 'unreported'; readonly reason: string }
  /** It is back at the head of its queue, or no longer belongs to this worker. */
  | { readonly kind: 'gone' }
  /** It was throttled and must be retried after this many ms. */
  | { readonly kind: 'later'; readonly afterMs: number; readonly reason: string }
  /** It was throttled too often. */
  | { readonly kind: 'given up'; readonly reason: string }

/** One call of a processor. */
export interface Attempt {
  readonly held: HeldJob
  /** When it began, ms of `performance.now()`. */
  readonly startedMs: number
  /** Open calls of the worker at that time, including this one. */
  readonly inflight: number
  /** Feedback given by the processor itself. */
  readonly given: Feedback[]
  /** The job's `attempts` option; undefined if not set. */
  readonly attempts: number | undefined
  /** The group of the job; undefined if it has none. */
  readonly group: string | undefined
  readonly keys: ShapedJobsOptions['keys']
  readonly tier: string | undefined
}

/** Evaluates the answers that one worker gets from the downstream, and applies them to the whole fleet. */
export class FeedbackLoop {
  readonly #worker: CallingWorker
  readonly #options: ReturnType<typeof checkFeedbackOptions>
  readonly #oks: OkReports
  readonly #subjectOks = new SubjectOks()
  readonly #targets = new CallTargets()
  readonly #latency: LatencyLimit | undefined
  /** Whether a missing limit for `feedbackScope` has been reported. */
  #hasWarnedOfScope = false

  constructor(worker: CallingWorker, options: ReturnType<typeof checkFeedbackOptions>) {
    this.#worker = worker
    this.#options = options
    this.#oks = new OkReports(options.adapt !== undefined)
    const { source, adapt } = options
    if (adapt && source?.concurrencyLimit) this.#latency = new LatencyLimit(worker, source.concurrencyLimit)
  }

  /** Number of jobs that may run in this worker, by the latency of its calls. */
  get concurrency(): number {
    return this.#latency?.limit ?? Number.POSITIVE_INFINITY
  }

  /** @param inflight open calls of the worker, including this one @param options those of the job */
  begin(
    held: HeldJob,
    inflight: number,
    options: Pick<ShapedJobsOptions, 'attempts' | 'group' | 'keys' | 'tier'> = {},
  ): Attempt {
    const { attempts, group, keys, tier } = options
    const own = { attempts, group: group?.id?.toString(), keys, tier }
    return { held, startedMs: performance.now(), inflight, given: [], ...own }
  }

  /** Feedback that a processor gives while it runs. */
  async give(attempt: Attempt, feedback: Feedback): Promise<void> {
    attempt.given.push(feedback)
    if (feedback.kind !== 'retryJob' && feedback.kind !== 'fatal')
      await this.#send(this.#request(attempt, [{ feedback }]))
  }

  /**
   * Whether {@link returned} must be called. Without a profile, a pause set by a processor must end as well, and a
   * reduced rate must rise again.
   */
  get watchesReturns(): boolean {
    return this.#options.source !== undefined || this.#stored?.isFed === true
  }

  get #stored(): StoredShape | undefined {
    return this.#worker.backend.store.memory.stored
  }

  /**
   * The processor returned: the job completes, even if the answer is `fatal`, unless it asks for a retry.
   * @param inflight calls that are still open
   */
  async returned(attempt: Attempt, result: unknown, inflight: number): Promise<Verdict> {
    const found = this.#listen(attempt, { returned: result })
    const refusals = found.filter(decides).map(({ feedback }) => feedback.kind)
    if (refusals.includes('pause') || refusals.includes('retryJob')) return this.#refused(attempt, found)
    const forFleet = found.filter(({ feedback }) => feedback.kind === 'slow' || feedback.kind === 'concurrency')
    if (forFleet.length > 0) await this.#send(this.#request(attempt, forFleet)).catch((error) => this.#failed(error))
    else if (attempt.given.every(({ kind }) => kind === 'ok')) this.#wentWell(attempt, found, inflight)
    return { kind: 'own' }
  }

  /** The processor threw. */
  async threw(attempt: Attempt, error: unknown): Promise<Verdict> {
    const found = isPauseQueueError(error) ? [pauseOf(error)] : this.#listen(attempt, { threw: error })
    const all = [...found, ...attempt.given.map((feedback) => ({ feedback }))]
    // An error that rules out another run takes precedence.
    const final = error instanceof Error && error.name === 'UnrecoverableError'
    return this.#refused(attempt, all, final)
  }

  #listen({ startedMs }: Attempt, outcome: CallOutcome): readonly Found[] {
    const { source } = this.#options
    if (!source) return []
    const onWrong = (error: unknown) => this.#failed(error)
    try {
      const latencyMs = performance.now() - startedMs
      const found = sanitizeFindings(source.listen(outcome, { receivedAtMs: Date.now(), latencyMs }), onWrong)
      const own = this.#ownScope()
      return found.map((one) => within(one, own))
    } catch (error) {
      // The processor's own outcome stands: a completed job is not repeated.
      onWrong(error)
      return []
    }
  }

  async #refused(attempt: Attempt, found: readonly Found[], final = false): Promise<Verdict> {
    const fatal = found.find(({ feedback }) => feedback.kind === 'fatal')
    const retry = found.map(({ feedback }) => feedback).find((one): one is RetryJob => one.kind === 'retryJob')
    const once = (attempt.attempts ?? 1) <= 1
    const forFleet = found.filter(
      ({ feedback }) => !['ok', 'fatal', 'retryJob'].includes(feedback.kind) && !(once && mayBeDone(feedback)),
    )
    const throttled = !final && !fatal && (forFleet.some(decides) || retry?.afterMs !== undefined)
    try {
      if (throttled) return await this.#throttled(attempt, forFleet, retry, targetIn(found))
      if (forFleet.length > 0) await this.#send(this.#request(attempt, forFleet))
    } catch (error) {
      this.#failed(error)
      // The worker closes or lacks permission: the job fails or is retried as without feedback.
      if (throttled) return { kind: 'unreported', reason: (forFleet[0]?.feedback ?? retry)?.reason as string }
    }
    if (fatal) return { kind: 'fatal', reason: fatal.feedback.reason }
    return retry ? { kind: 'backoff', reason: retry.reason } : { kind: 'own' }
  }

  async #throttled(
    attempt: Attempt,
    forFleet: readonly Found[],
    retry: RetryJob | undefined,
    target: string | undefined,
  ): Promise<Verdict> {
    this.#latency?.refused()
    const { giveUpAfterMs } = this.#options
    const reason = (forFleet[0]?.feedback ?? retry)?.reason as string
    const job: RefusedJob = {
      held: attempt.held,
      head: retry?.afterMs === undefined,
      giveUpAfterMs,
      reason,
      retried: retry !== undefined,
      target: this.#targets.refused(target),
    }
    const request = this.#request(attempt, withoutGiven(attempt, forFleet), job)
    const reply = await this.#worker.backend.untilStored([attempt.held.id], () => this.#send(request))
    if (reply.throttled === 0 || reply.back) return { kind: 'gone' }
    if (reply.isGivenUp) {
      const times = `throttled ${reply.throttled} ${reply.throttled === 1 ? 'time' : 'times'}`
      return {
        kind: 'given up',
        reason: `given up after ${formatDuration(giveUpAfterMs)}: ${times}, most recently for ${reason}`,
      }
    }
    if (reply.usesAttempt) return backoffOf(reason, retry?.afterMs ?? longestPauseMs(forFleet))
    const afterMs = retry?.afterMs ?? (reply.afterMs || undefined)
    return afterMs === undefined ? { kind: 'gone' } : { kind: 'later', afterMs, reason }
  }

  #wentWell(attempt: Attempt, found: readonly Found[], inflight: number): void {
    const { slotUs } = attempt.held
    this.#targets.wentWell(targetIn(found), slotUs)
    const oks = found.flatMap(({ feedback }) => (feedback.kind === 'ok' ? feedback : []))
    const subjectOf = (scope: Scope) => this.#subjectOf(attempt, scope)
    const subjects = ['group' as const, this.#ownScope(), ...oks.map(({ scope }) => scope)].flatMap(
      (scope) => subjectOf(scope) ?? [],
    )
    for (const subject of new Set(subjects)) this.#subjectOks.wentWell(subject, slotUs)
    this.#latency?.wentWell(performance.now() - attempt.startedMs, attempt.inflight)
    const report = this.#oks.next(slotUs, oks, this.#stored, inflight, subjectOf)
    if (!report) return
    const isOfQueue = report.quotas.some(({ scope }) => scope === 'queue')
    const reported = isOfQueue ? report.quotas : [...report.quotas, PLAIN_OK]
    const findings = reported.map((feedback) => ({ feedback }))
    this.#send(this.#request(attempt, findings, undefined, report)).catch((error) => this.#failed(error))
  }

  #request(
    attempt: Attempt,
    found: readonly Found[],
    job?: RefusedJob,
    oks: OkCount = job ? this.#oks.take() : NO_OKS,
  ): string {
    const { held, group, keys, tier } = attempt
    const isOfLimit = found.some(({ feedback: { scope } }) => typeof scope === 'object' && 'limit' in scope)
    return encodeFeedbackRequest({
      found,
      sentUs: held.slotUs,
      by: this.#worker.id,
      adapt: this.#options.adapt,
      oks: oks.count,
      okUs: oks.lastUs,
      okAgoMs: oks.agoMs,
      group,
      ...(isOfLimit && { keys, tier, members: membersOf(held) }),
      calls: this.#callsOf(attempt, found),
      ...(job && { job }),
    })
  }

  async #send(request: string): Promise<FeedbackReply> {
    const reply = await applyFeedback(this.#worker.backend.store, request)
    for (const change of reply.changes) this.#worker.emit('feedback', change)
    return reply
  }

  #failed(error: unknown): void {
    this.#worker.emit('error', error as Error)
  }

  /** The calls of the first refused subject: they are the evidence. */
  #callsOf(attempt: Attempt, found: readonly Found[]): OkCount | undefined {
    if (found.every(({ feedback }) => feedback.kind === 'ok')) return undefined
    const subject = found
      .map(({ feedback }) => this.#subjectOf(attempt, feedback.scope))
      .find((one) => one !== undefined)
    return subject === undefined ? undefined : this.#subjectOks.take(subject)
  }

  /** The scope that an answer about the queue holds. */
  #ownScope(): Scope {
    const { scope } = this.#options
    if (typeof scope === 'string') return scope
    if (isOfPool(scope)) return { limit: scope.pool }
    try {
      const limits = this.#stored?.limits ?? []
      return { limit: limitOfScope(scope, limits).name }
    } catch (error) {
      if (!this.#hasWarnedOfScope) this.#failed(error)
      this.#hasWarnedOfScope = true
      return NO_GROUP
    }
  }

  /** The group or the value of a limit, if it is that of the job. */
  #subjectOf({ held, group, keys }: Attempt, scope: Scope): string | undefined {
    if (typeof scope === 'object' && 'limit' in scope) {
      const member = membersOf(held)?.[scope.limit]
      if (member !== undefined) return JSON.stringify([scope.limit, member])
      const limit = this.#stored?.limits.find(({ name, by }) => by !== undefined && name === scope.limit)
      const values = limit && Object.values(keysUnder(limit, group, keys as Readonly<Record<string, string>>))
      return values?.every((value) => value !== undefined) ? JSON.stringify([scope.limit, ...values]) : undefined
    }
    const named = scope === 'group' ? group : typeof scope === 'object' ? scope.group : undefined
    return named !== undefined && named === group ? `group ${group}` : undefined
  }
}

/** A finding about the queue, turned into one about this scope. */
function within(found: Found, scope: Scope): Found {
  const { feedback } = found
  return feedback.scope === 'queue' ? { ...found, feedback: { ...feedback, scope } } : found
}

/** The scope of a job without one: it waits alone. */
const NO_GROUP: Scope = { group: '' }

const PLAIN_OK: Ok = { kind: 'ok', scope: 'queue', source: 'status', reason: 'calls went well' }

/** A rule with a counter affects the queue once it has counted enough, but not the job. */
function decides({ rule }: Found): boolean {
  return rule?.trigger === undefined
}

/** A call that may have taken effect is only repeated if the job allows retries. */
function mayBeDone(feedback: Feedback): boolean {
  return feedback.kind === 'pause' && feedback.mayBeDone === true
}

function backoffOf(reason: string, afterMs: number | undefined): Verdict {
  return { kind: 'backoff', reason, ...(afterMs !== undefined && { afterMs }) }
}

function targetIn(found: readonly Found[]): string | undefined {
  return found.find(({ target }) => target !== undefined)?.target
}

function longestPauseMs(forFleet: readonly Found[]): number | undefined {
  const times = forFleet.flatMap(({ feedback }) => (feedback.kind === 'pause' ? (feedback.forMs ?? []) : []))
  return times.length > 0 ? Math.max(...times) : undefined
}

/** Without the feedback given by the processor itself, which was applied immediately. */
function withoutGiven({ given }: Attempt, forFleet: readonly Found[]): readonly Found[] {
  return forFleet.filter(({ feedback }) => !given.includes(feedback))
}

/** Compared by name: a processor may run in a process of its own, or with another copy of the package. */
function isPauseQueueError(error: unknown): error is PauseQueueError {
  return error instanceof Error && error.name === PauseQueueError.name
}

function pauseOf({ retryAfterMs, hard, message }: PauseQueueError): Found {
  const pause = { kind: 'pause', forMs: retryAfterMs, hard, scope: 'queue', source: 'user', reason: message } as const
  return { feedback: sanitizeFeedback(pause) as Feedback }
}

const MOST = 100
const ID_LENGTH = 16

/** Last successes of the last 100 targets of one worker: they show whether only one of the targets is refused. */
export class CallTargets {
  /** Departure (µs) of the last successful call; the target with the most recent success comes last. */
  readonly #wentWellUs = new Map<string, number>()

  wentWell(target: string | undefined, sentUs: number): void {
    if (target === undefined) return
    const before = this.#wentWellUs.get(target) ?? 0
    this.#wentWellUs.delete(target)
    this.#wentWellUs.set(target, Math.max(before, sentUs))
    if (this.#wentWellUs.size <= MOST) return
    const [oldest] = this.#wentWellUs.keys()
    this.#wentWellUs.delete(oldest as string)
  }

  /** The target's id is a hash, because targets may contain secrets. */
  refused(target: string | undefined): RefusedTarget | undefined {
    if (target === undefined) return undefined
    const others = [...this.#wentWellUs].flatMap(([name, sentUs]) => (name === target ? [] : sentUs))
    return {
      id: createHash('sha256').update(target).digest('base64url').slice(0, ID_LENGTH),
      sameUs: this.#wentWellUs.get(target),
      othersUs: others.length > 0 ? Math.max(...others) : undefined,
    }
  }
}
