import type { Answer, Batch } from './batch.ts'
import { type JobCost, jobCostOf } from './job-cost.ts'
import { groupIdOf } from './job-group.ts'
import type { Explanation } from './queue-status.ts'

const FIELDS = ['name', 'timestamp', 'priority', 'ats', 'processedOn', 'opts', 'throttledFor', 'failedReason'] as const
/**
 * BullMQ's score of a prioritized job is its priority times this, plus a counter; that of a delayed one is its time
 * times `DELAYED_SCORE`, plus a counter.
 */
const PRIORITY_SCORE = 2 ** 32
const DELAYED_SCORE = 4096

/**
 * Entries searched at each end of a list, which takes Redis about 1 ms. The exact position of a job in the middle of a
 * longer list is not known.
 */
const SEARCHED = 10_000

type Place = 'prioritized' | 'delayed' | 'waiting-children' | 'completed' | 'failed'
const PLACES: readonly Place[] = ['prioritized', 'delayed', 'waiting-children', 'completed', 'failed']

/** A job and its place in its queue. */
export interface FoundJob extends JobCost {
  readonly name: string
  readonly state: Explanation['state']
  readonly priority: number
  readonly addedMs: number
  /** When it was or is due for the first time, by its options, ms. */
  readonly dueMs: number
  readonly attemptsStarted: number
  /** When it last departed, ms. */
  readonly departedMs: number | undefined
  readonly throttledFor: string | undefined
  readonly failedReason: string | undefined
  /** The group that its options name. */
  readonly groupId: string | undefined
}

/** What is read of one job, and what follows from it. */
export class JobReading {
  readonly #base: string
  readonly #fields: Answer<(string | null)[]>
  readonly #waits: Answer<number>
  readonly #wait: Answer<number | null>
  readonly #active: Answer<number | null>
  readonly #isLast: boolean
  readonly #ranks: Readonly<Record<Place, Answer<number | null>>>
  readonly #due: Answer<string | null>
  #asImportant: Answer<number> | undefined

  /**
   * @param isLast whether this is the last look-up, after which the job is assumed to be in the middle of a long list
   */
  constructor(base: string, id: string, batch: Batch, isLast: boolean) {
    this.#base = base
    this.#isLast = isLast
    this.#fields = batch.add('hmget', base + id, ...FIELDS)
    this.#waits = batch.add('llen', `${base}wait`)
    this.#wait = positionIn(`${base}wait`, id, batch)
    this.#active = positionIn(`${base}active`, id, batch)
    const ranks = PLACES.map((place) => [place, batch.add('zrank', base + place, id)] as const)
    this.#ranks = Object.fromEntries(ranks) as Record<Place, Answer<number | null>>
    this.#due = batch.add('zscore', `${base}delayed`, id)
  }

  /** undefined where there is no such job, or where it moved during the look-up. */
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
      groupId: groupIdOf(opts),
    }
  }

  /** Asks for what its position depends on. */
  more(batch: Batch): void {
    const job = this.job()
    if (job?.state !== 'delayed' || job.priority === 0) return
    const above = `(${(job.priority + 1) * PRIORITY_SCORE}`
    this.#asImportant = batch.add('zcount', `${this.#base}prioritized`, '-inf', above)
  }

  /** Jobs that leave before it; for a delayed job, also those that are due sooner. */
  get ahead(): number | undefined {
    const [wait, prioritized, delayed] = [this.#wait(), this.#ranks.prioritized(), this.#ranks.delayed()]
    if (wait !== null) return Math.max(0, this.#waits() - 1 - wait)
    if (prioritized !== null) return this.#waits() + prioritized
    if (delayed !== null) return this.#waits() + (this.#asImportant?.() ?? 0) + delayed
    return this.isInMiddle ? SEARCHED : undefined
  }

  /**
   * Whether it waits in the part of a long list that is not searched: then at least {@link ahead} jobs leave before it.
   */
  get isInMiddle(): boolean {
    return this.#isLast && this.#waits() > 2 * SEARCHED && this.#found() === undefined
  }

  #state(): FoundJob['state'] | undefined {
    return this.#found() ?? (this.isInMiddle ? 'waiting' : undefined)
  }

  #found(): FoundJob['state'] | undefined {
    if (this.#active() !== null) return 'active'
    if (this.#wait() !== null) return 'waiting'
    return PLACES.find((place) => this.#ranks[place]() !== null)
  }
}

/** Whether there is a job with this id. */
export function isJob(base: string, id: string, batch: Batch): Answer<boolean> {
  const fields = batch.add<(string | null)[]>('hmget', base + id, 'timestamp')
  return () => typeof fieldsOf(fields)[0] === 'string'
}

/** Jobs leave a list at its end, so that end is searched first. */
function positionIn(list: string, id: string, batch: Batch): Answer<number | null> {
  const ends = [-1, 1].map((rank) => batch.add<number | null>('lpos', list, id, 'RANK', rank, 'MAXLEN', SEARCHED))
  return () => ends.map((end) => end()).find((at) => at !== null) ?? null
}

/** An id may be the name of one of BullMQ's lists or sets: that is not a job. */
function fieldsOf(answer: Answer<(string | null)[]>): (string | null)[] {
  try {
    return answer()
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('WRONGTYPE')) return []
    throw error
  }
}
