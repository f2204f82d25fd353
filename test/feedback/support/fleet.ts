import type { Ok, Pause } from '../../../src/egress/feedback.ts'
import type { EncodedAdapt } from '../../../src/feedback/feedback-options.ts'
import type { Found } from '../../../src/feedback/feedback-source.ts'
import { OkReports } from '../../../src/feedback/ok-reports.ts'
import type { HeldJob } from '../../../src/held-job.ts'
import type { ClosedLoop } from './closed-loop.ts'
import type { LimitedServer, Refusal } from './limited-server.ts'

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

/** What the server has seen in one second. */
export interface Second {
  sent: number
  refused: number
}

interface Answer {
  readonly atMs: number
  readonly job: HeldJob
  readonly worker: number
  readonly refusal: Refusal | undefined
}

/**
 * Three workers of one queue and the server that they call, in virtual time. Slots are granted further ahead than workers
 * ask for, which costs fewer calls; at a pause what is held goes back, as workers do it.
 */
export class Fleet {
  readonly #loop: ClosedLoop
  readonly #server: LimitedServer
  readonly #adapt: EncodedAdapt
  readonly #oks: OkReports[]
  readonly #running: number[] = Array.from({ length: WORKERS }, () => 0)
  /** In the order of their slots. */
  #held: HeldJob[] = []
  /** In the order in which they come. */
  readonly #answers: Answer[] = []
  #nowMs = 0
  #askAtMs = 0
  #releaseAtMs = Number.POSITIVE_INFINITY
  /** By the second since the start in which they arrived. */
  readonly seconds: Second[] = []

  constructor(loop: ClosedLoop, server: LimitedServer, adapt: EncodedAdapt) {
    this.#loop = loop
    this.#server = server
    this.#adapt = adapt
    this.#oks = this.#running.map(() => new OkReports(true))
  }

  /** Goes on for so many seconds with this limit of the server. */
  async run(limit: number, seconds: number): Promise<void> {
    this.#server.limit = limit
    const endMs = this.#nowMs + seconds * 1000
    for (;;) {
      const departsMs = this.#held[0] ? this.#sinceStart(this.#held[0].slotUs) : NEVER
      const answerMs = this.#answers[0]?.atMs ?? NEVER
      const nextMs = Math.min(departsMs, answerMs, this.#releaseAtMs, this.#askAtMs)
      if (nextMs >= endMs) break
      this.#nowMs = Math.max(this.#nowMs, nextMs)
      if (nextMs === answerMs) await this.#hear(this.#answers.shift() as Answer)
      else if (nextMs === departsMs) this.#depart(this.#held.shift() as HeldJob)
      else if (nextMs === this.#releaseAtMs) await this.#release()
      else await this.#ask()
    }
    this.#nowMs = endMs
    while (this.seconds.length < endMs / 1000) this.seconds.push({ sent: 0, refused: 0 })
  }

  async #ask(): Promise<void> {
    const free = this.#running.reduce((sum, running) => sum - running, WORKERS * CONCURRENCY - this.#held.length)
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
    const refusal = this.#server.answer(arrivesMs)
    const second = Math.floor(arrivesMs / 1000)
    while (this.seconds.length <= second) this.seconds.push({ sent: 0, refused: 0 })
    const seen = this.seconds[second] as Second
    seen.sent += 1
    if (refusal) seen.refused += 1
    this.#answers.push({ atMs: this.#nowMs + ROUND_TRIP_MS, job, worker, refusal })
  }

  async #release(): Promise<void> {
    this.#releaseAtMs = NEVER
    const jobs = this.#held.splice(0)
    if (jobs.length > 0) await this.#loop.giveBack(this.#nowUs, jobs)
    this.#askAtMs = this.#nowMs + WAKE_MS
  }

  async #hear({ job, worker, refusal }: Answer): Promise<void> {
    this.#running[worker]! -= 1
    const before = this.#loop.shape?.pausedUntilUs ?? 0
    const changed = refusal ? await this.#refused(job, worker, refusal) : await this.#wentWell(job, worker)
    const heardMs = this.#nowMs + WAKE_MS
    if (changed || this.#askAtMs === NEVER) this.#askAtMs = Math.min(this.#askAtMs, heardMs)
    if ((this.#loop.shape?.pausedUntilUs ?? 0) > before) this.#releaseAtMs = Math.min(this.#releaseAtMs, heardMs)
  }

  #refused(job: HeldJob, worker: number, { retryAfterMs }: Refusal): Promise<boolean> {
    const feedback: Pause = {
      kind: 'pause',
      forMs: retryAfterMs,
      hard: retryAfterMs !== undefined,
      scope: 'queue',
      source: retryAfterMs === undefined ? 'status' : 'retry-after',
      reason: '429',
    }
    return this.#apply(job, worker, [{ feedback }], 0, { held: job, head: true, most: 100 })
  }

  async #wentWell(job: HeldJob, worker: number): Promise<boolean> {
    this.#loop.ended(job)
    const report = this.#atVirtualTime(() =>
      this.#oks[worker]!.next([], this.#loop.shape, this.#running[worker] as number),
    )
    return report ? this.#apply(job, worker, [{ feedback: PLAIN_OK }], report.count) : false
  }

  #apply(
    { slotUs }: HeldJob,
    worker: number,
    found: readonly Found[],
    oks: number,
    job?: { readonly held: HeldJob; readonly head: boolean; readonly most: number },
  ): Promise<boolean> {
    const by = `worker ${worker}`
    const request = { found, sentUs: slotUs, by, adapt: this.#adapt, oks, ...(job && { job }) }
    return this.#loop.apply(this.#nowUs, request)
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

const PLAIN_OK: Ok = { kind: 'ok', scope: 'queue', source: 'status', reason: 'calls went well' }
