import type { Answer, Batch } from './batch.ts'
import { type JobCost, jobCostOf } from './job-cost.ts'
import type { Explanation } from './queue-status.ts'

const FIELDS = ['name', 'timestamp', 'priority', 'ats', 'processedOn', 'opts', 'throttledFor', 'failedReason'] as const
/** BullMQ's score of a prioritized job is its priority times this, and a counter; of a delayed one, its time times that. */
const PRIORITY_SCORE = 2 ** 32
const DELAYED_SCORE = 4096

type Place = 'prioritized' | 'delayed' | 'waiting-children' | 'completed' | 'failed'
const PLACES: readonly Place[] = ['prioritized', 'delayed', 'waiting-children', 'completed', 'failed']

/** A job and its place in its queue. */
export interface FoundJob extends JobCost {
  readonly name: string
  readonly state: Explanation['state']
  readonly priority: number
  readonly addedMs: number
  /** By its options: when it was or is due for the first time. ms */
  readonly dueMs: number
  readonly attemptsStarted: number
  /** When it departed last, ms. */
  readonly departedMs: number | undefined
  readonly throttledFor: string | undefined
  readonly failedReason: string | undefined
}

/** What is asked of one job, and what follows from the answers. */
export class JobReading {
  readonly #base: string
  readonly #fields: Answer<(string | null)[]>
  readonly #waits: Answer<number>
  readonly #wait: Answer<number | null>
  readonly #active: Answer<number | null>
  readonly #ranks: Readonly<Record<Place, Answer<number | null>>>
  readonly #due: Answer<string | null>
  #asImportant: Answer<number> | undefined

  constructor(base: string, id: string, batch: Batch) {
    this.#base = base
    this.#fields = batch.add('hmget', base + id, ...FIELDS)
    this.#waits = batch.add('llen', `${base}wait`)
    this.#wait = batch.add('lpos', `${base}wait`, id)
    this.#active = batch.add('lpos', `${base}active`, id)
    const ranks = PLACES.map((place) => [place, batch.add('zrank', base + place, id)] as const)
    this.#ranks = Object.fromEntries(ranks) as Record<Place, Answer<number | null>>
    this.#due = batch.add('zscore', `${base}delayed`, id)
  }

  /** undefined where there is no such job, or where it moved while it was looked for. */
  job(): FoundJob | undefined {
    const [name, timestamp, priority, ats, processedOn, opts, throttledFor, failedReason] = fieldsOf(this.#fields)
    const state = this.#state()
    if (typeof timestamp !== 'string' || state === undefined) return undefined
    const { delay = 0 } = JSON.parse(opts ?? '{}') as { delay?: number }
    const score = this.#due()
    return {
      ...jobCostOf(opts),
      name: name ?? '',
      state,
      priority: Number(priority ?? 0),
      addedMs: Number(timestamp),
      dueMs: score ? Math.floor(Number(score) / DELAYED_SCORE) : Number(timestamp) + delay,
      attemptsStarted: Number(ats ?? 0),
      departedMs: processedOn ? Number(processedOn) : undefined,
      throttledFor: throttledFor || undefined,
      failedReason: failedReason || undefined,
    }
  }

  /** Asks for what its place depends on. */
  more(batch: Batch): void {
    const job = this.job()
    if (job?.state !== 'delayed' || job.priority === 0) return
    const above = `(${(job.priority + 1) * PRIORITY_SCORE}`
    this.#asImportant = batch.add('zcount', `${this.#base}prioritized`, '-inf', above)
  }

  /** Jobs that leave before it; a delayed one has those that are due sooner ahead of it, too. */
  get ahead(): number | undefined {
    const [wait, prioritized, delayed] = [this.#wait(), this.#ranks.prioritized(), this.#ranks.delayed()]
    if (wait !== null) return Math.max(0, this.#waits() - 1 - wait)
    if (prioritized !== null) return this.#waits() + prioritized
    if (delayed !== null) return this.#waits() + (this.#asImportant?.() ?? 0) + delayed
    return undefined
  }

  #state(): FoundJob['state'] | undefined {
    if (this.#active() !== null) return 'active'
    if (this.#wait() !== null) return 'waiting'
    return PLACES.find((place) => this.#ranks[place]() !== null)
  }
}

/** BullMQ's lists and sets have names that could be ids: they are no jobs. */
function fieldsOf(answer: Answer<(string | null)[]>): (string | null)[] {
  try {
    return answer()
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('WRONGTYPE')) return []
    throw error
  }
}
