import { shapedQueuesKey, shardedQueuesKey } from '../redis/keys.ts'
import { type Batch, type BatchClient, type Deferred, inBatch, tolerant } from './batch.ts'
import { baseIn, type PartReads, partsOf, type QueueParts } from './parts.ts'

/** Number of remembered names, if not more are listed. */
const MOST_KNOWN = 1000

/**
 * The existing queues, and which of them are sharded. On a cluster, the node with these lists may not answer: then
 * their last content counts.
 */
export class QueueLists {
  readonly #redis: BatchClient
  readonly #prefix: string
  readonly #partReads: PartReads
  #shapedNames: readonly string[] | undefined
  #shardedNames: readonly string[] | undefined
  /** The parts of queues read so far on a cluster; undefined: it is not a sharded one. The queue read last is last. */
  readonly #known = new Map<string, QueueParts | undefined>()

  constructor(redis: BatchClient, prefix: string, partReads: PartReads) {
    this.#redis = redis
    this.#prefix = prefix
    this.#partReads = partReads
  }

  /** Names of the queues that have or had a shape, sorted. */
  async names(): Promise<readonly string[]> {
    // On a cluster the two lists may be on two nodes.
    const [shaped, sharded] = await Promise.all([this.#readShaped(), this.#readSharded()])
    return [...new Set([...shaped, ...sharded])].sort()
  }

  /** The sharded queues among the names, and the places of their parts. */
  async shardedAmong(names: readonly string[]): Promise<ReadonlyMap<string, QueueParts>> {
    const read = () => inBatch(this.#redis, (batch) => this.askForParts(names, batch))
    const areKnown = names.every((name) => this.#known.has(name))
    const known = areKnown ? this.#knownAmong(names) : undefined
    const sharded = await this.#answer(shardedQueuesKey(this.#prefix), read, known)
    if (this.#redis.isCluster) this.#remember(names, sharded)
    return sharded
  }

  /** The same, with other reads of a batch. */
  askForParts(names: readonly string[], batch: Batch): Deferred<ReadonlyMap<string, QueueParts>> {
    if (names.length === 0) return () => new Map()
    const counts = batch.add<(string | null)[]>('hmget', shardedQueuesKey(this.#prefix), ...names)
    return () => {
      const known = tolerant(counts) ?? []
      return new Map(
        names.flatMap((name, i) => (known[i] ? [[name, partsOf(this.#prefix, name, Number(known[i]))] as const] : [])),
      )
    }
  }

  /** Anyone may ask for names that no queue has. */
  #remember(names: readonly string[], sharded: ReadonlyMap<string, QueueParts>): void {
    for (const name of names) {
      this.#known.delete(name)
      this.#known.set(name, sharded.get(name))
    }
    const listed = (this.#shapedNames?.length ?? 0) + (this.#shardedNames?.length ?? 0)
    const most = Math.max(MOST_KNOWN, listed, names.length)
    for (const name of this.#known.keys()) {
      if (this.#known.size <= most) break
      this.#known.delete(name)
    }
  }

  #knownAmong(names: readonly string[]): ReadonlyMap<string, QueueParts> {
    return new Map(
      names.flatMap((name) => {
        const parts = this.#known.get(name)
        return parts ? [[name, parts] as const] : []
      }),
    )
  }

  async #readShaped(): Promise<readonly string[]> {
    const key = shapedQueuesKey(baseIn(this.#prefix, ''))
    const read = () => inBatch(this.#redis, (batch) => batch.add<string[]>('smembers', key))
    this.#shapedNames = await this.#answer(key, read, this.#shapedNames)
    return this.#shapedNames
  }

  async #readSharded(): Promise<readonly string[]> {
    const key = shardedQueuesKey(this.#prefix)
    const read = () =>
      inBatch(this.#redis, (batch) => {
        const counts = batch.add<Record<string, string>>('hgetall', key)
        return () => Object.keys(tolerant(counts) ?? {})
      })
    this.#shardedNames = await this.#answer(key, read, this.#shardedNames)
    return this.#shardedNames
  }

  async #answer<T>(key: string, read: () => Promise<T>, known: T | undefined): Promise<T> {
    if (!this.#redis.isCluster) return read()
    const answer = await this.#partReads.read(key, read)
    if ('value' in answer) return answer.value
    if (known === undefined) throw answer.error
    return known
  }
}
