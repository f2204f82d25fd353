import type { Answer, Batch } from './batch.ts'
import { groupIdOf } from './job-group.ts'

/** From this part of its capacity on a queue has hardly any place. */
export const NEARLY_FULL = 0.9

/** Waiting jobs that are looked at, spaced over all: one that holds most places has most of these. */
const LOOKED_AT = 20

/** Which group of a queue that has groups holds most of its places, found with the same work for any number of jobs. */
export class LargestGroupReading {
  readonly #base: string
  readonly #ids: readonly Answer<string[]>[]
  #options: readonly Answer<string | null>[] = []
  #found: { readonly id: string; readonly waiting: Answer<number> } | undefined

  /** @param jobs with a priority or a group */
  constructor(base: string, batch: Batch, jobs: number) {
    this.#base = base
    const count = Math.min(jobs, LOOKED_AT)
    this.#ids = Array.from({ length: count }, (_, i) => {
      const rank = Math.floor(((i + 0.5) * jobs) / count)
      return batch.add('zrange', `${base}prioritized`, rank, rank)
    })
  }

  /** Asks for the groups of these jobs. */
  more(batch: Batch): void {
    const ids = this.#ids.flatMap((answer) => answer())
    this.#options = ids.map((id) => batch.add('hget', this.#base + id, 'opts'))
  }

  /** Asks how many jobs of the one that most of them have wait. */
  last(batch: Batch): void {
    const counts = new Map<string, number>()
    for (const id of this.#options.flatMap((options) => groupIdOf(options()) ?? [])) {
      counts.set(id, (counts.get(id) ?? 0) + 1)
    }
    const [id] = [...counts].sort(([, one], [, other]) => other - one)[0] ?? []
    if (id !== undefined) this.#found = { id, waiting: batch.add('zcard', `${this.#base}meta:group:jobs:${id}`) }
  }

  /** undefined where no job of a group was found. */
  largest(): { readonly id: string; readonly waiting: number } | undefined {
    return this.#found && { id: this.#found.id, waiting: this.#found.waiting() }
  }
}
