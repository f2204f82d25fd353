import type { HeldJob } from '../../../src/departure/held-job.ts'
import type { Feedback, Ok, Pause } from '../../../src/feedback/feedback.ts'
import { CallTargets } from '../../../src/feedback/loop.ts'
import { type OkCount, OkReports } from '../../../src/feedback/ok-reports.ts'
import type { EncodedAdapt } from '../../../src/feedback/options.ts'
import type { FeedbackReply, RefusedJob } from '../../../src/feedback/request.ts'
import type { Found } from '../../../src/feedback/source.ts'
import type { ClosedLoop } from './closed-loop.ts'
import type { LimitedServer, Refusal } from './limited-server.ts'

/** Workers of one fleet, unless it says otherwise. */
const WORKERS = 3
const CONCURRENCY = 20
const HORIZON_US = 200_000
/** How long before the next free slot jobs are asked for. */
const EARLY_MS = 10
const ROUND_TRIP_MS = 20
/** From the commit of a change until the workers know. */
const WAKE_MS = 1
const NEVER = Number.POSITIVE_INFINITY
/** When the virtual time starts, ms since 1970. */
export const EPOCH_MS = 1_764_000_000_000

/** What the server has seen in one second; of jobs that it never takes it sees no more than their number. */
export interface Second {
  sent: number
  refused: number
  bad: number
}

/** A call that its own job makes fail, whenever it is made. */
export interface BadAnswer {
  readonly found: readonly Feedback[]
  /** The answer asks for another try of the job. */
  readonly retried: boolean
}

/** Jobs beside those that a server only limits. */
export interface BadJobs {
  readonly answer: (jobId: string) => BadAnswer | undefined
  /** What a call is made to; default: nobody knows. */
  readonly target?: (jobId: string) => string
}

interface Answer {
  readonly atMs: number
  readonly job: HeldJob
  readonly worker: number
  readonly refusal: Refusal | undefined
  readonly bad: BadAnswer | undefined
}

/**
 * Workers of one queue and the server that they call, in virtual time. Slots are granted further ahead than workers
 * ask for, which costs fewer calls; at a pause what is held goes back, as workers do it.
 */
export class Fleet {
  readonly #loop: ClosedLoop
  readonly #server: LimitedServer
  readonly #adapt: EncodedAdapt | undefined
  readonly #oks: OkReports[]
  readonly #targets: CallTargets[]
  readonly #bad: BadJobs | undefined
  /** Jobs that come again later. */
  #later: { atMs: number; job: HeldJob }[] = []
  /** Jobs that have failed for good: each has one attempt. */
  failed = 0
  readonly #running: number[]
  /** In the order of their slots. */
  #held: HeldJob[] = []
  /** In the order in which they come. */
  readonly #answers: Answer[] = []
  #nowMs = 0
  #askAtMs = 0
  #releaseAtMs = Number.POSITIVE_INFINITY
  /** By the second since the start in which they arrived. */
  readonly seconds: Second[] = []

  constructor(
    loop: ClosedLoop,
    server: LimitedServer,
    adapt: EncodedAdapt | undefined,
    bad?: BadJobs,
    workers = WORKERS,
  ) {
    this.#loop = loop
    this.#running = Array.from({ length: workers }, () => 0)
    this.#server = server
    this.#adapt = adapt
    this.#bad = bad
    this.#oks = this.#running.map(() => new OkReports(adapt !== undefined))
    this.#targets = this.#running.map(() => new CallTargets())
  }

  /** Goes on for so many seconds with this limit of the server. */
  async run(limit: number, seconds: number): Promise<void> {
    this.#server.limit = limit
    const endMs = this.#nowMs + seconds * 1000
    for (;;) {
      const departsMs = this.#held[0] ? this.#sinceStart(this.#held[0].slotUs) : NEVER
      const answerMs = this.#answers[0]?.atMs ?? NEVER
      const laterMs = Math.min(NEVER, ...this.#later.map(({ atMs }) => atMs))
      const nextMs = Math.min(departsMs, answerMs, laterMs, this.#releaseAtMs, this.#askAtMs)
      if (nextMs >= endMs) break
      this.#nowMs = Math.max(this.#nowMs, nextMs)
      if (nextMs === answerMs) await this.#hear(this.#answers.shift() as Answer)
      else if (nextMs === departsMs) this.#depart(this.#held.shift() as HeldJob)
      else if (nextMs === laterMs) await this.#promote()
      else if (nextMs === this.#releaseAtMs) await this.#release()
      else await this.#ask()
    }
    this.#nowMs = endMs
    while (this.seconds.length < endMs / 1000) this.seconds.push({ sent: 0, refused: 0, bad: 0 })
  }

  async #ask(): Promise<void> {
    const free = this.#running.reduce(
      (sum, running) => sum - running,
      this.#running.length * CONCURRENCY - this.#held.length,
    )
    this.#askAtMs = NEVER
    if (free < 2) return
    const { reply, jobs } = await this.#loop.depart(this.#nowUs, free, HORIZON_US)
    this.#held.push(...jobs)
    if (reply.stop === 'closed')
      this.#askAtMs = Math.max(this.#nowMs + WAKE_MS, this.#sinceStart(reply.nextUs as number) - EARLY_MS)
  }

  // Every call takes as long: what departs first is answered first.
  #depart(job: HeldJob): void {
    const worker = this.#running.indexOf(Math.min(...this.#running))
    this.#running[worker]! += 1
    const arrivesMs = this.#nowMs + ROUND_TRIP_MS / 2
    const bad = this.#bad?.answer(job.id)
    const refusal = bad ? undefined : this.#server.answer(arrivesMs)
    const second = Math.floor(arrivesMs / 1000)
    while (this.seconds.length <= second) this.seconds.push({ sent: 0, refused: 0, bad: 0 })
    const seen = this.seconds[second] as Second
    if (bad) seen.bad += 1
    else seen.sent += 1
    if (refusal) seen.refused += 1
    this.#answers.push({ atMs: this.#nowMs + ROUND_TRIP_MS, job, worker, refusal, bad })
  }

  async #release(): Promise<void> {
    this.#releaseAtMs = NEVER
    const jobs = this.#held.splice(0)
    if (jobs.length > 0) await this.#loop.giveBack(this.#nowUs, jobs)
    this.#askAtMs = this.#nowMs + WAKE_MS
  }

  async #promote(): Promise<void> {
    const due = this.#later.filter(({ atMs }) => atMs <= this.#nowMs)
    this.#later = this.#later.filter(({ atMs }) => atMs > this.#nowMs)
    for (const { job } of due) await this.#loop.promote(this.#nowUs, job)
    this.#askAtMs = Math.min(this.#askAtMs, this.#nowMs + WAKE_MS)
  }

  async #hear({ job, worker, refusal, bad }: Answer): Promise<void> {
    this.#running[worker]! -= 1
    const before = this.#loop.shape?.pausedUntilUs ?? 0
    const answer = bad ?? (refusal && { found: [pauseOf(refusal)], retried: false })
    const changed = answer ? await this.#refused(job, worker, answer) : await this.#wentWell(job, worker)
    const heardMs = this.#nowMs + WAKE_MS
    if (changed || this.#askAtMs === NEVER) this.#askAtMs = Math.min(this.#askAtMs, heardMs)
    if ((this.#loop.shape?.pausedUntilUs ?? 0) > before) this.#releaseAtMs = Math.min(this.#releaseAtMs, heardMs)
  }

  async #refused(held: HeldJob, worker: number, { found, retried }: BadAnswer): Promise<boolean> {
    const findings = found.map((feedback) => ({ feedback }))
    const target = this.#targets[worker]!.refused(this.#bad?.target?.(held.id))
    const job = { held, head: true, giveUpAfterMs: 259_200_000, retried, target }
    const oks = this.#atVirtualTime(() => this.#oks[worker]!.take())
    const { changes, afterMs, usesAttempt } = await this.#apply(held, worker, findings, oks, job)
    if (afterMs > 0) await this.#comesLater(held, afterMs)
    if (usesAttempt) this.#failed(held)
    return changes.length > 0
  }

  async #comesLater(job: HeldJob, afterMs: number): Promise<void> {
    await this.#loop.delay(this.#nowUs, job)
    this.#later.push({ atMs: this.#nowMs + afterMs, job })
  }

  #failed(job: HeldJob): void {
    this.#loop.ended(job)
    this.failed += 1
  }

  async #wentWell(job: HeldJob, worker: number): Promise<boolean> {
    this.#loop.ended(job)
    this.#targets[worker]!.wentWell(this.#bad?.target?.(job.id), job.slotUs)
    const report = this.#atVirtualTime(() =>
      this.#oks[worker]!.next(job.slotUs, [], this.#loop.shape, this.#running[worker] as number),
    )
    if (!report) return false
    return (await this.#apply(job, worker, [{ feedback: PLAIN_OK }], report)).changes.length > 0
  }

  #apply(
    { slotUs }: HeldJob,
    worker: number,
    found: readonly Found[],
    { count, lastUs, agoMs }: OkCount,
    job?: RefusedJob,
  ): Promise<FeedbackReply> {
    const by = `worker ${worker}`
    const told = { found, sentUs: slotUs, by, adapt: this.#adapt, oks: count, okUs: lastUs, okAgoMs: agoMs }
    return this.#loop.apply(this.#nowUs, { ...told, ...(job && { job }) })
  }

  #atVirtualTime<T>(run: () => T): T {
    const { now } = performance
    performance.now = () => this.#nowMs
    try {
      return run()
    } finally {
      performance.now = now
    }
  }

  get #nowUs(): number {
    return Math.round((EPOCH_MS + this.#nowMs) * 1000)
  }

  #sinceStart(us: number): number {
    return us / 1000 - EPOCH_MS
  }
}

function pauseOf({ retryAfterMs }: Refusal): Pause {
  return {
    kind: 'pause',
    forMs: retryAfterMs,
    hard: retryAfterMs !== undefined,
    scope: 'queue',
    source: retryAfterMs === undefined ? 'status' : 'retry-after',
    reason: '429',
  }
}

const PLAIN_OK: Ok = { kind: 'ok', scope: 'queue', source: 'status', reason: 'calls went well' }
