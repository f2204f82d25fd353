import { headAgeMs } from '../queue/meter-state.ts'
import type { Answer, Batch } from './batch.ts'
import { HEAD_FIELDS } from './head.ts'

/** BullMQ's score of a prioritized job is its priority times this, plus a counter. */
const PRIORITY_SCORE = 2 ** 32
/** From each of these priorities on, the first job of the next priority in use is read. */
const PRIORITIES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 50, 100, 1000, 10_000]

/**
 * The jobs of a queue that may have waited longest. The jobs that leave next are the oldest only where none has a
 * priority or was added with `lifo`.
 */
export class OldestReading {
  readonly #base: string
  readonly #last: Answer<string | null>
  readonly #firsts: readonly Answer<string[]>[]
  #jobs: readonly Answer<(string | null)[]>[] = []

  constructor(base: string, batch: Batch, hasPriorities: boolean) {
    this.#base = base
    this.#last = batch.add('lindex', `${base}wait`, 0)
    this.#firsts = (hasPriorities ? PRIORITIES : []).map((priority) =>
      batch.add('zrange', `${base}prioritized`, priority * PRIORITY_SCORE, '+inf', 'BYSCORE', 'LIMIT', 0, 1),
    )
  }

  more(batch: Batch): void {
    const ids = new Set([this.#last(), ...this.#firsts.map((first) => first()[0])].filter((id) => id != null))
    this.#jobs = [...ids].map((id) => batch.add('hmget', this.#base + id, ...HEAD_FIELDS))
  }

  /** How long the oldest of them has been ready, ms. */
  ageMs(nowUs: number): number | undefined {
    const ages = this.#jobs.flatMap((job) => headAgeMs(job(), nowUs) ?? [])
    return ages.length === 0 ? undefined : Math.max(...ages)
  }
}
