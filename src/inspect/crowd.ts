import type { Answer, Batch } from './batch.ts'

/** How full a queue is, by a few cheap counts: delayed jobs beyond a horizon count too. */
export interface Crowd {
  readonly name: string
  /** Jobs that wait to leave. */
  readonly waiting: number
  readonly depth: number
  /** undefined where the queue is not bounded. */
  readonly capacity: number | undefined
}

/** Reads the few counts by which queues are ranked. */
export class CrowdReading {
  readonly #name: string
  readonly #ready: readonly Answer<number>[]
  readonly #later: readonly Answer<number>[]
  readonly #capacity: Answer<string | null>

  /** @param parts where its jobs are: the queue itself, or its shards */
  constructor(name: string, base: string, batch: Batch, parts: readonly string[] = [base]) {
    this.#name = name
    this.#ready = parts.flatMap((part) => [batch.add('llen', `${part}wait`), batch.add('zcard', `${part}prioritized`)])
    this.#later = parts.flatMap((part) => [
      batch.add('zcard', `${part}delayed`),
      batch.add('zcard', `${part}waiting-children`),
    ])
    this.#capacity = batch.add('hget', `${base}meta:shape`, 'capacity')
  }

  crowd(): Crowd {
    const capacity = this.#capacity()
    const waiting = sumOf(this.#ready)
    const depth = waiting + sumOf(this.#later)
    return { name: this.#name, waiting, depth, capacity: capacity === null ? undefined : Number(capacity) }
  }
}

function sumOf(counts: readonly Answer<number>[]): number {
  return counts.reduce((sum, count) => sum + count(), 0)
}

/** Queues with waiting jobs first, then the fullest first: negative where `one` comes before `other`. */
export function compareCrowds(one: Crowd, other: Crowd): number {
  return (
    Number(other.waiting > 0) - Number(one.waiting > 0) ||
    share(other) - share(one) ||
    other.depth - one.depth ||
    (one.name < other.name ? -1 : 1)
  )
}

function share({ depth, capacity }: Crowd): number {
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
