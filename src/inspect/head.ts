import type { Answer, Batch } from './batch.ts'
import { tolerant } from './batch.ts'

/** timestamp, opts, processedOn of a job; null where it no longer exists. */
export type JobFields = readonly (string | null)[]

/** The job that leaves next. */
export interface Head {
  readonly id: string
  readonly fields: JobFields
}

/** The fields from which a job's age and cost are computed. */
export const HEAD_FIELDS = ['timestamp', 'opts', 'processedOn']

/**
 * The head of a queue together with its job in one round trip, since SORT_RO follows the id. SORT_RO needs a user that
 * may read all keys and does not work on a cluster; otherwise the id is read first and the job after it.
 */
export class HeadReading {
  readonly #base: string
  readonly #ids: readonly Answer<unknown>[]
  readonly #rows: readonly Answer<(string | null)[]>[]
  #fields: Answer<(string | null)[]> | undefined
  #other: Answer<(string | null)[]> | undefined
  #last: Answer<(string | null)[]> | undefined

  /** @param canSort whether SORT_RO is allowed; undefined where unknown: then both ways are tried */
  constructor(base: string, batch: Batch, canSort?: boolean) {
    this.#base = base
    // SORT_RO would replace an asterisk in the queue's name by the id.
    const sorts = canSort !== false && !base.includes('*')
    // Jobs leave the list at its end, and the sorted set at its beginning.
    this.#ids =
      sorts && canSort
        ? []
        : [
            batch.add('lindex', `${base}wait`, -1),
            batch.add('zrange', `${base}prioritized`, 0, 0),
            batch.add('lindex', `${base}wait`, 0),
          ]
    const gets = ['GET', '#', ...HEAD_FIELDS.flatMap((field) => ['GET', `${base}*->${field}`])]
    const first = ['BY', 'nosort', 'LIMIT', 0, 1]
    this.#rows = sorts
      ? [
          batch.add('sort_ro', `${base}wait`, ...first, 'DESC', ...gets),
          batch.add('sort_ro', `${base}prioritized`, ...first, ...gets),
        ]
      : []
  }

  /** Whether SORT_RO was allowed; undefined where it was not tried. */
  get sorted(): boolean | undefined {
    const [first] = this.#rows
    return first && tolerant(first) !== undefined
  }

  /** Asks for what the first batch did not return. hasGroups: whether another job may leave before the head */
  more(batch: Batch, hasGroups: boolean): void {
    const id = this.#id()
    if (id === undefined || this.#row()) return
    this.#fields = batch.add('hmget', this.#base + id, ...HEAD_FIELDS)
    const [first] = (this.#ids[1]?.() ?? []) as string[]
    if (hasGroups && first !== undefined && first !== id) {
      this.#other = batch.add('hmget', this.#base + first, ...HEAD_FIELDS)
    }
    const last = this.#ids[2]?.() as string | null
    if (last !== null && last !== id) this.#last = batch.add('hmget', this.#base + last, ...HEAD_FIELDS)
  }

  /** Whether the head is known to have been added in front of older jobs. */
  get isLifo(): boolean {
    return this.#row()?.[2]?.includes('"lifo":true') ?? false
  }

  /** The job at the other end of the list, where it was read too. */
  last(): readonly (string | null)[] | undefined {
    return this.#last?.()
  }

  head(): Head | undefined {
    const id = this.#id()
    if (id === undefined) return undefined
    return { id, fields: this.#row()?.slice(1) ?? this.#fields?.() ?? [] }
  }

  /** The first job of the wait list. */
  listed(): JobFields | undefined {
    if (this.#filled().length > 0) return this.#rowAt(0)
    return typeof this.#ids[0]?.() === 'string' ? this.#fields?.() : undefined
  }

  /** The first job of the set of prioritized jobs, which are also those of groups. */
  prioritized(): JobFields | undefined {
    if (this.#filled().length > 0) return this.#rowAt(1)
    return typeof this.#ids[0]?.() === 'string' ? this.#other?.() : this.#fields?.()
  }

  #rowAt(index: number): JobFields | undefined {
    const row = this.#answered()[index] ?? []
    return row.length > 0 ? row.slice(1) : undefined
  }

  #id(): string | undefined {
    const [waits, first] = this.#ids
    if (!waits || !first) return this.#row()?.[0] ?? undefined
    return (waits() as string | null) ?? (first() as string[])[0]
  }

  #row(): readonly (string | null)[] | undefined {
    return this.#filled()[0]
  }

  #filled(): readonly (readonly (string | null)[])[] {
    return this.#answered().filter((row) => row !== undefined && row.length > 0) as (string | null)[][]
  }

  #answered(): readonly (readonly (string | null)[] | undefined)[] {
    // Where SORT_RO is the only command, its error is thrown.
    return this.#rows.map((answer) => (this.#ids.length === 0 ? answer() : tolerant(answer)))
  }
}
