import { hostname } from 'node:os'
import { type Departure, HOLD_CAUSES } from '../departure/departure.ts'
import type { Argument } from '../redis/commands.ts'
import { isOutOfMemory, isPassing } from '../redis/failures.ts'
import { seriesKey } from '../redis/keys.ts'
import type { StoredShape } from '../shape/stored.ts'
import { HeldClockMemory } from './held-clocks.ts'
import { LoopLoad } from './loop-load.ts'
import type { QueueClient } from './queue-clients.ts'
import { RecentEnds } from './recent-ends.ts'
import { readSample } from './series-sample.ts'
import { DEAD_FIELD, StartCounts } from './start-counts.ts'

/** All workers of a queue together report their starts about this often, ms. An idle worker does not report. */
const REPORT_MS = 2000
/** Longest interval between reports, ms: with jobs running or many starts, and with few starts. */
const RUNNING_MS = 10_000
const SLOW_MS = 60_000
/** Starts since the last report that count as many. */
const MANY_STARTS = 10
/** Interval of the series that covers two hours, s. */
const PAST_SECONDS = 15

/** The reply of `lua/verbs/report.lua`. */
type ReportReply = readonly [nowUs: string, heldUs?: string[], workers?: number, bypassingJob?: string]

/** What the reports need of their worker. */
interface ReportingWorker {
  readonly id: string
  readonly opts: { readonly name?: string | undefined }
  readonly concurrency: number
  readonly closing: Promise<void> | undefined
  isPaused(): boolean
  on(event: 'completed' | 'failed', listener: (job: EndedJob | undefined, outcome: unknown) => void): unknown
  emit(event: 'error', error: Error): unknown
  readonly backend: {
    readonly store: ReportStore
    readonly client: Promise<ReportClient>
    readonly deadLetter: string | undefined
  }
}

interface ReportStore {
  readonly base: string
  readonly memory: { readonly stored: StoredShape | undefined }
  prepared(): Promise<void> | undefined
  run(script: 'report' | 'shed', args: readonly Argument[]): Promise<unknown>
}

interface ReportClient {
  readonly status: string
  lrange(key: string, first: number, last: number): Promise<string[]>
}

/** The worker's current activity. */
interface Activity {
  readonly running: number
  readonly held: readonly unknown[]
  readonly roundTrip: { readonly ms: number }
  readonly clockErrorUs: number
}

/** A job with an ended attempt, for reports. */
interface EndedJob {
  /** undefined if the job is retried. */
  readonly finishedOn?: number | undefined
}

/** Handles starts that bypass the meter. */
interface Bypassing {
  /** Called when such jobs were just found; this is one of them. */
  found(jobId: string): void
  /** The clients that may have taken the jobs, for the report; undefined if none were found lately. */
  readonly clients: readonly QueueClient[] | undefined
  /** Redis's id of the connection by which the worker waits for jobs; undefined if unknown. */
  readonly clientId: number | undefined
}

/** A started job, for reports. */
export interface StartedJob {
  readonly timestamp: number
  /** BullMQ drops a job's `delay` once it has ended. */
  readonly opts: { readonly delay?: number }
  readonly attemptsStarted: number
}

/** Reports of a worker about itself and its starts, for views and metrics. No job's start depends on them. */
export class WorkerReports {
  readonly #worker: ReportingWorker
  readonly #activity: Activity
  readonly #overload: { readonly overloaded: boolean }
  readonly #bypassing: Bypassing
  readonly #clocks = new HeldClockMemory()
  readonly #load = new LoopLoad({ windowMs: REPORT_MS })
  readonly #recent = new RecentEnds()
  readonly #sinceMs = Date.now()
  #counts = new StartCounts()
  /** Reported already, except for the waits, which are split by the clocks in the reply. */
  #reported = new StartCounts()
  #audit: [slotUs: number, startedUs: number][] = []
  #started = 0
  #reports = 0
  #timer: NodeJS.Timeout | undefined
  #reportedAtMs = performance.now()
  #reporting = false
  #reportedState = ''
  #reportedRunning = false
  /** Workers of the queue that report. */
  #workers = 1

  constructor(
    worker: ReportingWorker,
    activity: Activity,
    overload: { readonly overloaded: boolean },
    bypassing: Bypassing,
  ) {
    this.#worker = worker
    this.#activity = activity
    this.#overload = overload
    this.#bypassing = bypassing
    worker.on('completed', () => this.#completed())
    worker.on('failed', (job, error) => this.#failedAttempt((error as Error).message, job?.finishedOn !== undefined))
  }

  /** Without a shape there are no reports, so nothing may accumulate for them. */
  get counts(): boolean {
    return this.#shape !== undefined
  }

  departed(job: StartedJob, departure: Departure): void {
    if (!this.counts) return
    this.#started += 1
    this.#counts.add(departure.departureTimeUs, departure.latenessUs, readyUs(job))
    if (this.#shape?.number('audit')) this.#audit.push([departure.departureTimeUs, departure.departedAtUs])
  }

  /** The cause that held a job longest before its first attempt, if known here. */
  heldBy(job: StartedJob, slotUs: number) {
    const fromUs = readyUs(job)
    return fromUs === undefined ? undefined : this.#clocks.longest(fromUs, slotUs)
  }

  /** Reports while the worker runs, including while it is paused. */
  async during<T>(run: Promise<T>): Promise<T> {
    this.#timer ??= setInterval(() => this.#tick(), REPORT_MS).unref()
    this.#begin().catch((error: Error) => this.#failed(error))
    try {
      return await run
    } finally {
      if (this.#worker.closing) this.leave()
    }
  }

  /**
   * The worker closes, and its jobs have ended. Not awaited: the connection may be down, and the command that closes it
   * follows.
   */
  leave(): void {
    if (!this.#timer) return
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#report(true).catch(() => undefined)
  }

  get #shape(): StoredShape | undefined {
    return this.#worker.backend.store.memory.stored
  }

  /** Nothing is reported before a shape is known. The series shows what held the queue before this worker started. */
  async #begin(): Promise<void> {
    const { store, client } = this.#worker.backend
    await store.prepared()
    if (!this.#shape) return
    const samples = await (await client).lrange(seriesKey(store.base, PAST_SECONDS), 0, -1)
    for (const { at, heldMs } of samples.reverse().flatMap((json) => readSample(json) ?? [])) {
      this.#clocks.add({ atUs: at.getTime() * 1000, heldUs: HOLD_CAUSES.map((cause) => heldMs[cause] * 1000) })
    }
    await this.#report(false)
  }

  #completed(): void {
    if (!this.#shape) return
    this.#counts.ended('completed')
    this.#recent.completed()
  }

  #failedAttempt(reason: string, isFinal: boolean): void {
    if (!this.#shape) return
    this.#counts.ended('failedAttempts', ...(isFinal ? (['failed'] as const) : []))
    this.#recent.failed(reason, isFinal)
  }

  #tick(): void {
    if (this.#isDue()) this.#report(false).catch((error: Error) => this.#failed(error))
  }

  #isDue(): boolean {
    // Reports count starts that bypass the meter, even reports of a worker that gets no job.
    if (this.#stateText() !== this.#reportedState || this.#bypassing.clients) return true
    // Ticks are a little early or late.
    const sinceMs = performance.now() - this.#reportedAtMs + REPORT_MS / 2
    const runs = this.#activity.running > 0
    if (runs && sinceMs >= RUNNING_MS) return true
    const { started } = this.#counts
    // The waits of the last starts are in the report after theirs.
    if (started + this.#reported.started === 0 && runs === this.#reportedRunning) return false
    const longestMs = started >= MANY_STARTS || runs !== this.#reportedRunning ? RUNNING_MS : SLOW_MS
    return sinceMs >= Math.min(this.#workers * REPORT_MS, longestMs)
  }

  /** The state that is reported as soon as it changes. */
  #stateText(): string {
    return `${this.#state()} ${this.#worker.concurrency}`
  }

  #state(): 'running' | 'paused' | 'overloaded' {
    if (this.#overload.overloaded) return 'overloaded'
    return this.#worker.isPaused() ? 'paused' : 'running'
  }

  /**
   * A report in flight while the worker closes may find the connection closed. A temporary failure only costs one
   * report; a lost connection reports itself.
   */
  #failed(error: Error): void {
    if (!this.#worker.closing && !isPassing(error)) this.#worker.emit('error', error)
  }

  /** A failed report is not repeated: Redis may have received it. */
  async #report(leaves: boolean): Promise<void> {
    const { id, backend } = this.#worker
    const client = await backend.client
    if (!this.#shape || client.status !== 'ready' || (this.#reporting && !leaves)) return
    const [counts, reported, audit, row] = [this.#counts, this.#reported, this.#audit, this.#row()]
    const fields = sumOf([
      counts.fields(),
      reported.waitFields(this.#clocks),
      leaves ? counts.waitFields(this.#clocks) : {},
      backend.deadLetter === undefined ? {} : { [DEAD_FIELD + backend.deadLetter]: 0 },
    ])
    this.#reported = counts
    this.#counts = new StartCounts()
    this.#audit = []
    this.#reportedAtMs = performance.now()
    this.#reportedState = this.#stateText()
    this.#reportedRunning = this.#activity.running > 0
    this.#reporting = true
    try {
      const reply = await backend.store.run('report', [
        id,
        leaves ? '' : JSON.stringify(row),
        JSON.stringify(fields),
        Math.round(counts.latenessMaxUs),
        audit.length > 0 ? JSON.stringify(audit) : '',
        ++this.#reports,
      ])
      this.#learn(reply as ReportReply)
    } catch (error) {
      if (!isOutOfMemory(error as Error)) throw error
      await backend.store.run('shed', [])
    } finally {
      this.#reporting = false
    }
  }

  #learn([nowUs, held, workers, bypassingJob]: ReportReply): void {
    if (bypassingJob) this.#bypassing.found(bypassingJob)
    if (held) this.#clocks.add({ atUs: Number(nowUs), heldUs: held.map(Number) })
    this.#workers = Math.max(1, workers ?? 1)
  }

  #row(): Record<string, unknown> {
    const { opts, concurrency } = this.#worker
    const { running, held, roundTrip, clockErrorUs } = this.#activity
    const { started, latenessMaxUs } = this.#counts
    const seconds = Math.max((performance.now() - this.#reportedAtMs) / 1000, 0.001)
    return {
      host: hostname(),
      pid: process.pid,
      ...(opts.name ? { name: opts.name } : {}),
      since: this.#sinceMs,
      concurrency,
      running,
      held: held.length,
      started: this.#started,
      perSecond: Number((started / seconds).toPrecision(4)),
      latenessMaxUs: Math.round(latenessMaxUs),
      rttUs: Math.round(roundTrip.ms * 1000),
      ...(Number.isFinite(clockErrorUs) ? { clockErrorUs: Math.round(clockErrorUs) } : {}),
      utilisation: Number(this.#load.utilisation().toFixed(3)),
      state: this.#state(),
      ...this.#recent.report(),
      ...(this.#bypassing.clientId === undefined ? {} : { clientId: this.#bypassing.clientId }),
      ...(this.#bypassing.clients ? { bypassedBy: this.#bypassing.clients } : {}),
    }
  }
}

/** When it could have started; undefined if an earlier attempt has started. */
function readyUs({ timestamp, opts, attemptsStarted }: StartedJob): number | undefined {
  return attemptsStarted <= 1 ? (timestamp + (opts.delay ?? 0)) * 1000 : undefined
}

function sumOf(counts: readonly Record<string, number>[]): Record<string, number> {
  const sum: Record<string, number> = {}
  for (const fields of counts) for (const [name, value] of Object.entries(fields)) sum[name] = (sum[name] ?? 0) + value
  return sum
}
