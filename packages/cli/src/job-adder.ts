import type { ShapedQueue } from 'sluice'
import { isRefusal, PlaceLine } from 'sluice/internal'
import { CommandError } from './cli.ts'
import { failureOf } from './failure.ts'
import type { JobLine } from './job-file.ts'

/** Maximum number of jobs sent at once while the queue has places. */
const MAX_AT_ONCE = 64

export interface JobAdderOptions {
  /** Identifies the run: each line of a run is added once. */
  readonly key: string
  /** For how long a run is remembered, ms. */
  readonly ttlMs: number
  /** How long a job may wait for its place, ms; undefined: without limit; 0: not at all. */
  readonly timeoutMs: number | undefined
  readonly signal: AbortSignal
}

/** How many jobs were added, and how many an earlier run had already added. */
export interface AddedCounts {
  added: number
  present: number
}

/**
 * Adds jobs in order: many at a time while the queue has places, one at a time while it is full. A refused job is
 * retried at the time that its refusal gives.
 */
export class JobAdder {
  readonly counts: AddedCounts = { added: 0, present: 0 }
  readonly #queue: ShapedQueue
  readonly #options: JobAdderOptions
  readonly #line = new PlaceLine()
  #atOnce = 1

  constructor(queue: ShapedQueue, options: JobAdderOptions) {
    this.#queue = queue
    this.#options = options
  }

  /**
   * @param onProgress called after each part
   * @throws CommandError naming the line; the signal's reason; what reading a job throws
   */
  async addAll(jobs: AsyncIterable<JobLine>, onProgress: () => void): Promise<void> {
    let part: JobLine[] = []
    this.#atOnce = await this.#room()
    for await (const job of jobs) {
      part.push(job)
      if (part.length < this.#atOnce) continue
      await this.#addPart(part)
      onProgress()
      part = []
    }
    await this.#addPart(part)
    onProgress()
  }

  async #addPart(part: readonly JobLine[]): Promise<void> {
    this.#options.signal.throwIfAborted()
    const [first, ...others] = part
    if (!first) return
    const refused = others.length === 0 ? await this.#addWhenFree(first) : await this.#addTogether(part)
    this.#atOnce = refused ? 1 : await this.#room()
  }

  /**
   * How many jobs to send together: no more than there are places, or a later job might take a place after an earlier
   * one was refused.
   */
  async #room(): Promise<number> {
    const { depth, capacity = Number.POSITIVE_INFINITY } = await this.#queue.meter()
    return Math.min(Math.max(1, capacity - depth), MAX_AT_ONCE)
  }

  /** @returns whether the queue was full */
  async #addTogether(part: readonly JobLine[]): Promise<boolean> {
    const outcomes = await Promise.allSettled(part.map((job) => this.#add(job)))
    const refused: JobLine[] = []
    for (const [i, job] of part.entries()) {
      const outcome = outcomes[i]
      if (outcome?.status !== 'rejected') continue
      if (!isRefusal(outcome.reason)) throw lineError(job, outcome.reason)
      refused.push(job)
    }
    for (const job of refused) await this.#addWhenFree(job)
    return refused.length > 0
  }

  /** @returns whether the queue was full */
  async #addWhenFree(job: JobLine): Promise<boolean> {
    const { timeoutMs, signal } = this.#options
    let attempts = 0
    const attempt = () => {
      attempts += 1
      return this.#add(job)
    }
    try {
      if (timeoutMs === 0) await attempt()
      else await this.#line.wait(this.#queue.name, attempt, { timeoutMs, signal })
    } catch (error) {
      if (signal.aborted) throw signal.reason
      throw lineError(job, error)
    }
    return attempts > 1
  }

  async #add({ name, data, opts, line, fingerprint }: JobLine): Promise<void> {
    if (opts.jobId !== undefined) {
      // Its own id makes the job unique.
      await this.#queue.add(name, data, opts)
      this.counts.added += 1
      return
    }
    const { key, ttlMs } = this.#options
    const once = { key: `sluice enqueue ${key} ${line}`, fingerprint, ttlMs }
    const { replayed } = await this.#queue.addOnce([{ name, data, opts }], once)
    this.counts[replayed ? 'present' : 'added'] += 1
  }
}

/** The failure of a job, with its line number. */
function lineError({ line }: JobLine, cause: unknown): CommandError {
  const { exitCode, message } = failureOf(cause)
  return new CommandError(exitCode, `line ${line}: ${message}`, { cause })
}
