import { DelayedError, type Job, type LockManager, UnrecoverableError, WaitingError } from 'bullmq'
import type { HeldJob } from '../departure/held-job.ts'
import type { FeedbackLoop, Verdict } from '../feedback/loop.ts'
import type { AnyWorker } from './events.ts'
import { listen } from './shaped-job.ts'

/** Errors by which a processor tells BullMQ that it has moved the job itself. */
const MOVED = new Set(['DelayedError', 'WaitingError', 'WaitingChildrenError', 'RateLimitError'])

export function hasMoved(error: unknown): boolean {
  return MOVED.has((error as Error | undefined)?.name ?? '')
}

/**
 * For jobs without a backoff: exponential with full jitter (AWS architecture blog, "Exponential Backoff And Jitter").
 */
const BACKOFF = { type: 'exponential', delay: 1000, jitter: 1 } as const

const VERDICTS = { later: 'retryJob', backoff: 'retryJob', fatal: 'fatal', 'given up': 'givenUp' } as const

/** Calls processors and applies the downstream's verdicts to their jobs. */
export class Attempts {
  readonly #worker: AnyWorker
  readonly #loop: FeedbackLoop
  readonly #locks: LockManager
  /** How many processors run. */
  running = 0
  #whenIdle: (() => void)[] = []

  /**
   * @param worker emits verdicts on single jobs; those on the queue are changes of its feedback
   * @param locks of the worker
   */
  constructor(worker: AnyWorker, loop: FeedbackLoop, locks: LockManager) {
    this.#worker = worker
    this.#loop = loop
    this.#locks = locks
  }

  /** Resolves once no processor runs. */
  async idle(): Promise<void> {
    if (this.running > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve))
  }

  /** @param call runs the processor */
  async run<T>(job: Job, held: HeldJob, call: () => Promise<T>): Promise<T> {
    this.running += 1
    const attempt = this.#loop.begin(held, this.running, job.opts)
    listen(job, (feedback) => this.#loop.give(attempt, feedback))
    let result: T
    try {
      result = await call()
      this.#ended()
    } catch (error) {
      this.#ended()
      if (hasMoved(error)) throw error
      await this.#applyVerdict(await this.#loop.threw(attempt, error), job, held, error)
      throw error
    } finally {
      listen(job, undefined)
    }
    if (!this.#loop.watchesReturns) return result
    await this.#applyVerdict(await this.#loop.returned(attempt, result, this.running), job, held, undefined)
    return result
  }

  #ended(): void {
    this.running -= 1
    if (this.running > 0) return
    for (const idle of this.#whenIdle.splice(0)) idle()
  }

  async #applyVerdict(verdict: Verdict, job: Job, { id, token }: HeldJob, error: unknown): Promise<void> {
    if (verdict.kind in VERDICTS) {
      const { kind, reason, afterMs } = verdict as { kind: keyof typeof VERDICTS; reason: string; afterMs?: number }
      this.#worker.emit('verdict', job, { kind: VERDICTS[kind], reason, ...(afterMs === undefined ? {} : { afterMs }) })
    }
    if (verdict.kind === 'fatal' || verdict.kind === 'given up') throw finalError(verdict.reason, error)
    if (verdict.kind === 'backoff') setBackoff(job, verdict.afterMs)
    // A job that must be retried has not completed, even if its processor returned.
    if (verdict.kind === 'unreported' || verdict.kind === 'backoff') {
      throw error ?? new Error(`the processor returned a failure: ${verdict.reason}`)
    }
    if (verdict.kind === 'gone') {
      this.#locks.untrackJob(id)
      throw new WaitingError()
    }
    if (verdict.kind === 'later') {
      await job.moveToDelayed(Date.now() + verdict.afterMs, token)
      this.#locks.untrackJob(id)
      throw new DelayedError()
    }
  }
}

/** A delay given by the answer overrides the job's own backoff. */
function setBackoff({ opts }: Job, afterMs: number | undefined): void {
  if (afterMs === undefined) opts.backoff ??= BACKOFF
  else opts.backoff = { type: 'fixed', delay: afterMs }
}

/** Fails the job at once, with the processor's error as its cause. */
function finalError(reason: string, error: unknown): Error {
  if (!(error instanceof Error)) return new UnrecoverableError(reason)
  if (error.name === 'UnrecoverableError') return error
  const final: Error = new UnrecoverableError(`${error.message} (${reason})`)
  final.cause = error
  if (error.stack) final.stack = error.stack
  return final
}
