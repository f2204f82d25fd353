import type { Shape } from '../../src/index.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'

/** A new job, of cost 1. */
export interface NewJob {
  readonly id: string
  readonly priority: number
  readonly lifo: boolean
  /** When it must have started, ms since 1970 on the clock of the queue; Infinity for no deadline. */
  readonly deadlineMs: number
}

export type AdmissionShape = Required<Pick<Shape, 'rate' | 'burst'>> &
  Pick<Shape, 'capacity' | 'reservedPlaces' | 'overflow' | 'maxWaitMs' | 'mode'>

/** The expected result of an admission. */
export type Verdict =
  | { readonly what: 'added'; readonly dropped: readonly string[] }
  | { readonly what: 'too large' | 'full' }
  | { readonly what: 'late'; readonly startsAtUs: number; readonly lateUs: number }

const ENDLESS_US = 1_000_000_000_000_000

/** A queue in memory: its jobs in the order in which they leave, and what it admits. */
export class AdmissionMirror {
  readonly #shape: AdmissionShape
  readonly #bucket: ReferenceBucket
  #line: NewJob[] = []

  constructor(shape: AdmissionShape, startUs: number) {
    this.#shape = shape
    this.#bucket = new ReferenceBucket({ rate: shape.rate, burst: shape.burst }, startUs)
  }

  get line(): string[] {
    return this.#line.map(({ id }) => id)
  }

  advance(us: number): void {
    this.#bucket.advance(us)
  }

  pauseUntil(us: number): void {
    this.#bucket.pauseUntil(us)
  }

  /** Jobs past their deadlines leave too, and use no slot. */
  depart(): string[] {
    const left: string[] = []
    for (let head = this.#line[0]; head; head = this.#line[0]) {
      const expired = this.#bucket.nextSlotUs() > head.deadlineMs * 1000
      if (!expired && this.#bucket.depart() === undefined) break
      left.push(head.id)
      this.#line.shift()
    }
    return left
  }

  /** All jobs or none. */
  add(jobs: readonly NewJob[]): Verdict {
    const { mode = 'enforce', overflow } = this.#shape
    const swaps = this.#swaps(jobs)
    const dropped = swaps > 0 ? this.#victims(jobs, swaps) : []
    if (mode === 'enforce') {
      if (this.#neverFits(jobs)) return { what: 'too large' }
      const late = this.#late(jobs, overflow === 'drop-oldest' ? (dropped?.length ?? 0) : 0)
      if (late) return late
      if (!dropped) return { what: 'full' }
    }
    const gone = mode === 'enforce' ? (dropped ?? []) : []
    this.#line = lineWith(
      this.#line.filter(({ id }) => !gone.includes(id)),
      jobs,
    )
    return { what: 'added', dropped: gone }
  }

  #limit(priority: number): number {
    const { capacity = Number.POSITIVE_INFINITY, reservedPlaces = {} } = this.#shape
    const rank = priority === 0 && !(0 in reservedPlaces) ? Number.POSITIVE_INFINITY : priority
    const kept = Object.entries(reservedPlaces).filter(([upTo]) => Number(upTo) < rank)
    return Math.max(0, capacity - kept.reduce((sum, [, places]) => sum + places, 0))
  }

  #limits(jobs: readonly NewJob[]): number[] {
    return jobs.map(({ priority }) => this.#limit(priority)).sort((a, b) => a - b)
  }

  #neverFits(jobs: readonly NewJob[]): boolean {
    const { capacity = Number.POSITIVE_INFINITY } = this.#shape
    const limits = this.#limits(jobs)
    if (jobs.length > capacity) return true
    return limits.some((limit, i) => limit > 0 && i + 1 > limit && this.#binds(limits, limit))
  }

  // Where several limits are exceeded, the one that is exceeded most is reported.
  #binds(limits: readonly number[], limit: number): boolean {
    const lacking = limits.map((one, i) => this.#line.length + i + 1 - one)
    return lacking[limits.lastIndexOf(limit)] === Math.max(...lacking)
  }

  /**
   * The minimum number of jobs to drop, so that no new job finds more jobs before it than its limit, or than were there
   * before.
   */
  #swaps(jobs: readonly NewJob[]): number {
    const depth = this.#line.length
    const limits = this.#limits(jobs)
    const enough = (k: number) => limits.every((limit, i) => depth - k + i + 1 <= Math.max(limit, depth))
    const fits = limits.every((limit, i) => depth + i + 1 <= limit)
    if (fits) return 0
    return jobs.findIndex((_, i) => enough(i + 1)) + 1
  }

  #victims(jobs: readonly NewJob[], count: number): string[] | undefined {
    const { capacity = Number.POSITIVE_INFINITY, overflow = 'reject' } = this.#shape
    const [limit = 0] = this.#limits(jobs)
    const least = Math.max(...jobs.map(({ priority }) => priority))
    if (overflow === 'reject' || this.#line.length > capacity) return undefined
    const candidates =
      overflow === 'drop-oldest'
        ? this.#line.filter(({ priority }) => priority === 0)
        : this.#line.filter(({ priority }) => priority > 0).reverse()
    const first = candidates.slice(0, count)
    const yields = first.every(
      ({ priority }) => this.#limit(priority) <= limit && (overflow === 'drop-oldest' || priority > least),
    )
    return yields && first.length === count ? first.map(({ id }) => id) : undefined
  }

  #late(jobs: readonly NewJob[], gone: number): Verdict | undefined {
    const { maxWaitMs = Number.POSITIVE_INFINITY } = this.#shape
    const now = this.#bucket.nowUs
    const line = lineWith(this.#line, jobs)
    // Dropped jobs were at the head, after new ones that are added at the head.
    const heads = line.findIndex((job) => !jobs.includes(job))
    const starts = this.#starts(line.length)
    let worst: Verdict | undefined
    for (const job of line.filter((one) => jobs.includes(one))) {
      const at = line.indexOf(job)
      const startsAtUs = starts[at < heads ? at : at - gone] as number
      const lateUs = Math.max(startsAtUs - now - maxWaitMs * 1000, startsAtUs - job.deadlineMs * 1000)
      if (lateUs > 0 && (worst?.what !== 'late' || lateUs > worst.lateUs)) worst = { what: 'late', startsAtUs, lateUs }
    }
    return worst
  }

  #starts(count: number): readonly number[] {
    const grant = this.#bucket.grant(new Array(count).fill(1), ENDLESS_US)
    this.#bucket.refund(grant)
    return grant.slotsUs
  }
}

function lineWith(line: readonly NewJob[], jobs: readonly NewJob[]): NewJob[] {
  let plain = line.filter(({ priority }) => priority === 0)
  const prioritized = [...line, ...jobs].filter(({ priority }) => priority > 0)
  for (const job of jobs) {
    if (job.priority === 0) plain = job.lifo ? [job, ...plain] : [...plain, job]
  }
  return [...plain, ...prioritized.sort((a, b) => a.priority - b.priority)]
}
