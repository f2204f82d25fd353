import type { PartAnswer } from './parts.ts'

/** How full a queue is, by a few cheap counts: delayed jobs beyond a horizon count too. */
export interface FillLevel {
  readonly name: string
  /** Jobs that wait to depart. */
  readonly waiting: number
  readonly depth: number
  /** undefined if the queue is unbounded. */
  readonly capacity: number | undefined
}

/** The result of `lua/views/queue.lua` for it. */
export type FillLevelView = Omit<FillLevel, 'name' | 'capacity'> & { readonly capacity?: number }

/**
 * @param answers of its head, which has the capacity, and its shards, or of a queue without shards; unread parts count
 * as 0
 */
export function fillLevelOf(name: string, answers: readonly PartAnswer<FillLevelView | undefined>[]): FillLevel {
  const parts = answers.map((answer) => ('value' in answer ? answer.value : undefined))
  const sum = (of: 'waiting' | 'depth') => parts.reduce((total, part) => total + (part?.[of] ?? 0), 0)
  return { name, waiting: sum('waiting'), depth: sum('depth'), capacity: parts[0]?.capacity }
}

/** Queues with waiting jobs first, then the fullest first: negative where `one` comes before `other`. */
export function compareFillLevels(one: FillLevel, other: FillLevel): number {
  return (
    Number(other.waiting > 0) - Number(one.waiting > 0) ||
    share(other) - share(one) ||
    other.depth - one.depth ||
    (one.name < other.name ? -1 : 1)
  )
}

function share({ depth, capacity }: FillLevel): number {
  return capacity === undefined ? 0 : depth / capacity
}

/** Keeps the first `count` of very many items, in the order of `compare`. */
export class TopList<T> {
  readonly #count: number
  readonly #compare: (one: T, other: T) => number
  #kept: T[] = []

  constructor(count: number, compare: (one: T, other: T) => number) {
    this.#count = count
    this.#compare = compare
  }

  add(one: T): void {
    this.#kept.push(one)
    if (this.#kept.length >= 2 * this.#count + 100) this.#kept = this.sorted()
  }

  sorted(): T[] {
    return this.#kept.sort(this.#compare).slice(0, this.#count)
  }
}
