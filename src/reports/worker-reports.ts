// reports/: what workers report about themselves to Redis, and the attributes of telemetry spans. It must not know what
// reads the reports.

import { hostname } from 'node:os'
import type { Departure } from '../departure/departure.ts'
import type { Argument } from '../redis/commands.ts'
import { isOutOfMemory } from '../redis/failures.ts'
import { seriesKey } from '../redis/keys.ts'
import type { StoredShape } from '../shape/stored.ts'
import { HeldClockMemory } from './held-clocks.ts'
import { LoopLoad } from './loop-load.ts'
import { readSample } from './series-sample.ts'
import { StartCounts } from './start-counts.ts'

/** Report intervals of a worker that starts jobs and of one whose jobs only run, ms. An idle worker does not report. */
const REPORT_MS = 2000
const RUNNING_MS = 10_000
/** The list of the series that covers two hours. */
const PAST_SECONDS = 15

/** What the reports need of their worker. */
interface ReportingWorker {
  readonly id: string
  readonly opts: { readonly name?: string | undefined }
  readonly concurrency: number
  readonly closing: Promise<void> | undefined
  isPaused(): boolean
  emit(event: 'error', error: Error): unknown
  readonly backend: { readonly store: ReportStore; readonly client: Promise<ReportClient> }
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
  readonly held: readonly string[]
  readonly roundTrip: { readonly ms: number }
  readonly clockErrorUs: number
}

/** A started job, as far as reports need it. */
export interface StartedJob {
  readonly timestamp: number
  /** BullMQ drops a job's `delay` once it has ended. */
  readonly opts: { readonly delay?: number }
  readonly attemptsStarted: number
}

/** What a worker reports to Redis about itself and its starts, for people. Nothing that starts jobs depends on it. */
export class WorkerReports {
  readonly #worker: ReportingWorker
  readonly #activity: Activity
  readonly #overload: { readonly overloaded: boolean }
  readonly #clocks = new HeldClockMemory()
  readonly #load = new LoopLoad({ windowMs: REPORT_MS })
  readonly #sinceMs = Date.now()
  #counts = new StartCounts()
  /** Reported already, except for the waits, which are split by the clocks in the reply. */
  #told = new StartCounts()
  #audit: [slotUs: number, startedUs: number][] = []
  #started = 0
  #timer: NodeJS.Timeout | undefined
  #toldMs = performance.now()
  #telling = false
  #toldCondition = ''

  constructor(worker: ReportingWorker, activity: Activity, overload: { readonly overloaded: boolean }) {
    this.#worker = worker
    this.#activity = activity
    this.#overload = overload
  }

  departed(job: StartedJob, departure: Departure): void {
    // Without a shape there are no reports, so nothing may accumulate for them.
    if (!this.#shape) return
    this.#started += 1
    this.#counts.add(departure.departureTimeUs, departure.latenessUs, readyUs(job))
    if (this.#shape.number('audit')) this.#audit.push([departure.departureTimeUs, departure.departedAtUs])
  }

  /** What held a job longest before its first attempt, as far as known here. */
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
    this.#tell(true).catch(() => undefined)
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
    for (const { atMs, heldUs } of samples.reverse().flatMap((json) => readSample(json) ?? [])) {
      this.#clocks.add({ atUs: atMs * 1000, heldUs })
    }
    await this.#tell(false)
  }

  #tick(): void {
    const { running, held } = this.#activity
    const started = this.#counts.started + this.#told.started > 0
    const runs = running + held.length > 0 && performance.now() - this.#toldMs >= RUNNING_MS - REPORT_MS / 2
    if (started || runs || this.#condition() !== this.#toldCondition) {
      this.#tell(false).catch((error: Error) => this.#failed(error))
    }
  }

  /** What is reported even if no job has started. */
  #condition(): string {
    const { running, held } = this.#activity
    return `${this.#state()} ${this.#worker.concurrency} ${running > 0} ${held.length > 0}`
  }

  #state(): 'running' | 'paused' | 'overloaded' {
    if (this.#overload.overloaded) return 'overloaded'
    return this.#worker.isPaused() ? 'paused' : 'running'
  }

  /** A report in flight while the worker closes may find the connection closed. */
  #failed(error: Error): void {
    if (!this.#worker.closing) this.#worker.emit('error', error)
  }

  /** A failed report is not repeated: Redis may have received it. */
  async #tell(leaves: boolean): Promise<void> {
    const { id, backend } = this.#worker
    const client = await backend.client
    if (!this.#shape || client.status !== 'ready' || (this.#telling && !leaves)) return
    const [counts, told, audit, row] = [this.#counts, this.#told, this.#audit, this.#row()]
    const fields = sumOf([
      counts.fields(),
      told.waitFields(this.#clocks),
      leaves ? counts.waitFields(this.#clocks) : {},
    ])
    this.#told = counts
    this.#counts = new StartCounts()
    this.#audit = []
    this.#toldMs = performance.now()
    this.#toldCondition = this.#condition()
    this.#telling = true
    try {
      const reply = await backend.store.run('report', [
        id,
        leaves ? '' : JSON.stringify(row),
        JSON.stringify(fields),
        Math.round(counts.latenessMaxUs),
        audit.length > 0 ? JSON.stringify(audit) : '',
      ])
      this.#heard(reply as [string, string[]?])
    } catch (error) {
      if (!isOutOfMemory(error as Error)) throw error
      await backend.store.run('shed', [])
    } finally {
      this.#telling = false
    }
  }

  #heard([nowUs, held]: readonly [string, string[]?]): void {
    if (held) this.#clocks.add({ atUs: Number(nowUs), heldUs: held.map(Number) })
  }

  #row(): Record<string, unknown> {
    const { opts, concurrency } = this.#worker
    const { running, held, roundTrip, clockErrorUs } = this.#activity
    const { started, latenessMaxUs } = this.#counts
    const seconds = Math.max((performance.now() - this.#toldMs) / 1000, 0.001)
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
