import { shapedQueuesKey, shardedQueuesKey } from '../redis/keys.ts'
import { Batch, type BatchClient, tolerant } from './batch.ts'
import { baseIn, type PartReads, partsOf, type QueueParts } from './parts.ts'

/**
 * Which queues there are, and which of them are sharded. On a cluster, the node that has these lists may not answer:
 * then what they held last counts.
 */
export class QueueLists {
  readonly #redis: BatchClient
  readonly #prefix: string
  readonly #partReads: PartReads
  #names: readonly string[] | undefined
  /** The parts of each queue read so far on a cluster; undefined: it is not a sharded one. */
  readonly #known = new Map<string, QueueParts | undefined>()

  constructor(redis: BatchClient, prefix: string, partReads: PartReads) {
    this.#redis = redis
    this.#prefix = prefix
    this.#partReads = partReads
  }

  /** Names of the queues that have or had a shape, sorted. */
  async names(): Promise<readonly string[]> {
    const names = await this.#answer('names', () => this.#readNames(), this.#names)
    this.#names = names
    return names
  }

  /** Those of the queues that are sharded, and where their parts are. */
  async shardedAmong(names: readonly string[]): Promise<ReadonlyMap<string, QueueParts>> {
    const read = async () => {
      const batch = new Batch(this.#redis)
      const parts = this.askForParts(names, batch)
      await batch.run()
      return parts()
    }
    const areKnown = names.every((name) => this.#known.has(name))
    const sharded = await this.#answer('shards', read, areKnown ? this.#knownAmong(names) : undefined)
    if (this.#redis.isCluster) for (const name of names) this.#known.set(name, sharded.get(name))
    return sharded
  }

  /** The same, with what else a batch reads. */
  askForParts(names: readonly string[], batch: Batch): () => ReadonlyMap<string, QueueParts> {
    if (names.length === 0) return () => new Map()
    const counts = batch.add<(string | null)[]>('hmget', shardedQueuesKey(this.#prefix), ...names)
    return () => {
      const known = tolerant(counts) ?? []
      return new Map(
        names.flatMap((name, i) => (known[i] ? [[name, partsOf(this.#prefix, name, Number(known[i]))] as const] : [])),
      )
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

  async #readNames(): Promise<readonly string[]> {
    const batch = new Batch(this.#redis)
    const names = batch.add<string[]>('smembers', shapedQueuesKey(baseIn(this.#prefix, '')))
    const sharded = batch.add<Record<string, string>>('hgetall', shardedQueuesKey(this.#prefix))
    await batch.run()
    return [...new Set([...names(), ...Object.keys(tolerant(sharded) ?? {})])].sort()
  }

  async #answer<T>(list: string, read: () => Promise<T>, known: T | undefined): Promise<T> {
    if (!this.#redis.isCluster || known === undefined) return read()
    const answer = await this.#partReads.read(list, read)
    return 'value' in answer ? answer.value : known
  }
}
