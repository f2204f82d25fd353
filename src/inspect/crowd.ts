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

  constructor(name: string, base: string, batch: Batch) {
    this.#name = name
    this.#ready = [batch.add('llen', `${base}wait`), batch.add('zcard', `${base}prioritized`)]
    this.#later = [batch.add('zcard', `${base}delayed`), batch.add('zcard', `${base}waiting-children`)]
    this.#capacity = batch.add('hget', `${base}meta:shape`, 'capacity')
  }

  crowd(): Crowd {
    const capacity = this.#capacity()
    const waiting = sumOf(this.#ready)
    const depth = waiting + sumOf(this.#later)
    return { name: this.#name, waiting, depth, capacity: capacity === null ? undefined : Number(capacity) }
  }
}

/** A queue that could not be read. */
export function unknownCrowd(name: string): Crowd {
  return { name, waiting: 0, depth: 0, capacity: undefined }
}

/** A sharded queue as one. @param parts its head, which has the capacity, and its shards; undefined if unread */
export function wholeCrowd(name: string, [head, ...shards]: readonly (Crowd | undefined)[]): Crowd {
  const sum = (of: 'waiting' | 'depth') => shards.reduce((total, shard) => total + (shard?.[of] ?? 0), 0)
  return { name, waiting: sum('waiting'), depth: sum('depth'), capacity: head?.capacity }
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
