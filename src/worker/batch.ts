import { AsyncResource } from 'node:async_hooks'
import { type BatchedJob, outcomeOf, putInto } from './shaped-job.ts'

interface Member {
  readonly job: BatchedJob
  readonly signal: AbortSignal | undefined
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

/** One processor call for several jobs, each of which ends by itself. */
export class Batch {
  readonly #members: Member[] = []
  /** The context of the first job: spans of the processor belong to its span. */
  #context: AsyncResource | undefined

  /** @returns the result of the job, once the processor has ended */
  join(job: BatchedJob, signal: AbortSignal | undefined): Promise<unknown> {
    this.#context ??= new AsyncResource('sluice.batch')
    return new Promise((resolve, reject) => this.#members.push({ job, signal, resolve, reject }))
  }

  /** @param call calls the processor with the first job */
  start(call: (first: BatchedJob, signal: AbortSignal | undefined) => Promise<unknown>): void {
    const [first] = this.#members
    if (!first) return
    const jobs = this.#members.map(({ job }) => job)
    for (const job of jobs) putInto(job, jobs)
    const running = this.#context?.runInAsyncScope(async () => call(first.job, this.#signal()))
    running?.then(
      (result) => this.#settle(({ resolve }) => resolve(result)),
      (error: unknown) => this.#settle(({ reject }) => reject(error)),
    )
  }

  /** Aborted once all jobs are cancelled: one cancelled job does not abort the others. */
  #signal(): AbortSignal | undefined {
    const signals = this.#members.flatMap(({ signal }) => signal ?? [])
    if (signals.length === 0) return undefined
    const controller = new AbortController()
    for (const signal of signals) {
      signal.addEventListener('abort', () => {
        if (signals.every(({ aborted }) => aborted)) controller.abort(signal.reason)
      })
    }
    return controller.signal
  }

  #settle(byDefault: (member: Member) => void): void {
    for (const member of this.#members) {
      const outcome = outcomeOf(member.job)
      putInto(member.job, undefined)
      if (!outcome) byDefault(member)
      else if ('error' in outcome) member.reject(outcome.error)
      else member.resolve(outcome.result)
    }
  }
}
