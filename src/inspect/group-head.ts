import { headAgeMs } from '../queue/meter-state.ts'
import type { Answer, Batch } from './batch.ts'
import { FIRST_GROUPS, type GroupCountsReading } from './groups.ts'
import { HEAD_FIELDS, type JobFields } from './head.ts'
import { groupIdOf } from './job-group.ts'

/** The jobs of a queue that came first: without a group, and with a priority or a group. */
export interface Fronts {
  readonly plain: JobFields | undefined
  readonly front: JobFields | undefined
}

/**
 * The job whose age is that of the head of a queue with groups: the formula of `lua/reports/queue-head.lua`.
 */
export class GroupHeadReading {
  readonly #base: string
  readonly #groups: GroupCountsReading
  readonly #waiting: number
  #frontTag: Answer<string | null> | undefined
  #firsts: readonly Answer<string[]>[] = []
  #jobs: readonly Answer<JobFields>[] = []

  /** @param waiting of the queue */
  constructor(base: string, groups: GroupCountsReading, waiting: number) {
    this.#base = base
    this.#groups = groups
    this.#waiting = waiting
  }

  /**
   * Asks for the first jobs of groups, where that of all may not leave.
   * @param sorts whether SORT_RO may read them in one round trip
   */
  more(batch: Batch, front: JobFields | undefined, sorts: boolean): void {
    const group = groupIdOf(front?.[1])
    const { ready } = this.#groups.firsts()
    if (group === undefined || ready.includes(group)) return
    if (ready.length === FIRST_GROUPS) this.#frontTag = batch.add('zscore', `${this.#base}meta:groups:ready`, group)
    const lines = this.#next().flatMap((id) => (id === '' ? [] : `${this.#base}meta:group:jobs:${id}`))
    if (!sorts) {
      this.#firsts = lines.map((line) => batch.add('zrange', line, 0, 0))
      return
    }
    const gets = HEAD_FIELDS.flatMap((field) => ['GET', `${this.#base}*->${field}`])
    this.#jobs = lines.map((line) => batch.add('sort_ro', line, 'BY', 'nosort', 'LIMIT', 0, 1, ...gets))
  }

  /** Asks for what {@link more} could not read with the ids. */
  last(batch: Batch): void {
    if (this.#firsts.length === 0) return
    const ids = this.#firsts.flatMap((first) => first())
    this.#jobs = ids.map((id) => batch.add('hmget', this.#base + id, ...HEAD_FIELDS))
  }

  /** Its fields; empty where no waiting job is known. */
  fields({ plain, front }: Fronts, nowUs: number): JobFields {
    const plainGoes = this.#groups.plainMayGo(this.#waiting) || this.#next().includes('')
    const going = [plainGoes ? plain : undefined, ...(this.#isInLine(front) ? [front] : this.#jobs.map((job) => job()))]
    const head = oldestOf(going, nowUs)
    // Jobs that are in no line yet.
    return head.length > 0 ? head : oldestOf([plain, front], nowUs)
  }

  #isInLine(front: JobFields | undefined): boolean {
    const group = groupIdOf(front?.[1])
    if (group === undefined) return false
    return this.#groups.firsts().ready.includes(group) || (this.#frontTag?.() ?? null) !== null
  }

  /** The first groups of the list of which one goes next; '' for the jobs without a group. */
  #next(): readonly string[] {
    const { ready, stale, limited, full, paused } = this.#groups.firsts()
    if (this.#groups.plainMayGo(this.#waiting)) return ready.filter((id) => id !== '')
    return [ready, stale, limited, full, paused].find((ids) => ids.length > 0) ?? []
  }
}

/** Empty where none of them is there. */
function oldestOf(jobs: readonly (JobFields | undefined)[], nowUs: number): JobFields {
  const ageOf = (fields: JobFields) => headAgeMs(fields, nowUs) ?? -1
  return jobs.reduce<JobFields>((oldest, fields = []) => (ageOf(fields) > ageOf(oldest) ? fields : oldest), [])
}
