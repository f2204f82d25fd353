import { DelayedError, type Job, UnrecoverableError, WaitingError } from 'bullmq'
import type { HeldJob } from '../departure/held-job.ts'
import type { FeedbackLoop, Verdict } from '../feedback/loop.ts'
import { listen } from './shaped-job.ts'

/** Errors by which a processor tells BullMQ that it has moved the job itself. */
const MOVED = new Set(['DelayedError', 'WaitingError', 'WaitingChildrenError', 'RateLimitError'])

/**
 * For jobs without a backoff: exponential with full jitter (AWS architecture blog, "Exponential Backoff And Jitter").
 */
const BACKOFF = { type: 'exponential', delay: 1000, jitter: 1 } as const

/** What a downstream answer decides about one job alone. */
export interface JobVerdict {
  /**
   * `retryJob`: it is retried, after `afterMs` without using up an attempt, or by its attempts and its backoff;
   * `fatal`: it fails for good; `givenUp`: it fails because it was throttled for `giveUpAfterMs`.
   */
  readonly kind: 'retryJob' | 'fatal' | 'givenUp'
  /** One line: the part of the answer that the verdict is based on. */
  readonly reason: string
  readonly afterMs?: number
}

const VERDICTS = { later: 'retryJob', backoff: 'retryJob', fatal: 'fatal', 'given up': 'givenUp' } as const

/** Calls processors and applies the downstream's verdicts to their jobs. */
export class Attempts {
  readonly #loop: FeedbackLoop
  readonly #untrack: (jobId: string) => void
  readonly #onVerdict: (job: Job, verdict: JobVerdict) => void
  #running = 0
  #whenIdle: (() => void)[] = []

  /**
   * @param untrack ends the renewal of a job's lock
   * @param onVerdict receives verdicts on single jobs; those on the queue are changes of its feedback
   */
  constructor(
    loop: FeedbackLoop,
    untrack: (jobId: string) => void,
    onVerdict: (job: Job, verdict: JobVerdict) => void,
  ) {
    this.#loop = loop
    this.#untrack = untrack
    this.#onVerdict = onVerdict
  }

  /** How many processors run. */
  get running(): number {
    return this.#running
  }

  /** Resolves once no processor runs. */
  async idle(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve))
  }

  /** @param call runs the processor */
  async run<T>(job: Job, held: HeldJob, call: () => Promise<T>): Promise<T> {
    this.#running += 1
    const attempt = this.#loop.begin(held, this.#running, job.opts)
    listen(job, (feedback) => this.#loop.say(attempt, feedback))
    let result: T
    try {
      result = await call()
      this.#ended()
    } catch (error) {
      this.#ended()
      if (MOVED.has((error as Error | undefined)?.name ?? '')) throw error
      await this.#obey(await this.#loop.threw(attempt, error), job, held, error)
      throw error
    } finally {
      listen(job, undefined)
    }
    if (!this.#loop.hearsReturns) return result
    await this.#obey(await this.#loop.returned(attempt, result, this.#running), job, held, undefined)
    return result
  }

  #ended(): void {
    this.#running -= 1
    if (this.#running > 0) return
    for (const idle of this.#whenIdle.splice(0)) idle()
  }

  async #obey(verdict: Verdict, job: Job, { id, token }: HeldJob, error: unknown): Promise<void> {
    if (verdict.kind in VERDICTS) {
      const { kind, reason, afterMs } = verdict as { kind: keyof typeof VERDICTS; reason: string; afterMs?: number }
      this.#onVerdict(job, { kind: VERDICTS[kind], reason, ...(afterMs === undefined ? {} : { afterMs }) })
    }
    if (verdict.kind === 'fatal' || verdict.kind === 'given up') throw finalError(verdict.reason, error)
    if (verdict.kind === 'backoff') setBackoff(job, verdict.afterMs)
    // A job that must be retried has not completed, even if its processor returned.
    if (verdict.kind === 'unreported' || verdict.kind === 'backoff') throw error ?? failureOf(verdict.reason)
    if (verdict.kind === 'gone') {
      this.#untrack(id)
      throw new WaitingError()
    }
    if (verdict.kind === 'later') {
      await job.moveToDelayed(Date.now() + verdict.afterMs, token)
      this.#untrack(id)
      throw new DelayedError()
    }
  }
}

/** A delay given by the answer overrides the job's own backoff. */
function setBackoff({ opts }: Job, afterMs: number | undefined): void {
  if (afterMs === undefined) opts.backoff ??= BACKOFF
  else opts.backoff = { type: 'fixed', delay: afterMs }
}

/** For a failure that was returned, not thrown. */
function failureOf(reason: string): Error {
  return new Error(`the processor returned a failure: ${reason}`)
}

/** Fails the job at once, with what the processor threw as its cause. */
function finalError(reason: string, error: unknown): Error {
  if (!(error instanceof Error)) return new UnrecoverableError(reason)
  if (error.name === 'UnrecoverableError') return error
  const final: Error = new UnrecoverableError(`${error.message} (${reason})`)
  final.cause = error
  if (error.stack) final.stack = error.stack
  return final
}
