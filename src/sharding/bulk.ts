import { NotReplicatedError, QueueUnavailableError, type SluiceError } from '../errors.ts'

type AddedIds = NonNullable<SluiceError['addedIds']>

/** Results of a bulk whose shards are tried one after the other. */
export class ShardedBulk<J extends { readonly id?: string | undefined }> {
  readonly #queueName: string
  readonly #jobs: (J | undefined)[]
  readonly #ids: (AddedIds[number] | undefined)[]
  readonly #unconfirmed: NotReplicatedError[] = []

  constructor(queueName: string, count: number) {
    this.#queueName = queueName
    this.#jobs = new Array(count).fill(undefined)
    this.#ids = new Array(count).fill(undefined)
  }

  /** @param places the positions of a shard's jobs in the bulk */
  added(places: readonly number[], jobs: readonly J[]): void {
    for (const [at, i] of places.entries()) {
      this.#jobs[i] = jobs[at]
      this.#ids[i] = jobs[at]?.id
    }
  }

  /** @returns whether the shard has its jobs nevertheless, so that the other shards should get theirs */
  failed(places: readonly number[], error: SluiceError): boolean {
    const isIn = error instanceof NotReplicatedError
    const unsaid = error instanceof QueueUnavailableError && error.mayBeStored ? null : undefined
    const ids = isIn ? error.jobIds : error.addedIds
    for (const [at, i] of places.entries()) this.#ids[i] = ids ? ids[at] : unsaid
    if (isIn) this.#unconfirmed.push(error)
    return isIn
  }

  /** The error of a shard, as an error of the whole bulk. */
  errorOf(error: Error): Error {
    const added = this.#jobs.filter((job) => job !== undefined)
    return Object.assign(error, { added, addedIds: this.#ids })
  }

  /** @throws NotReplicatedError if too few replicas have the jobs of some shard */
  all(): J[] {
    const [first] = this.#unconfirmed
    if (!first) return this.#jobs as J[]
    const jobIds = this.#unconfirmed.flatMap((error) => error.jobIds)
    const acknowledged = Math.min(...this.#unconfirmed.map((error) => error.acknowledged))
    const { replicas, timeoutMs } = first
    const known = { jobIds, acknowledged, replicas, timeoutMs }
    throw this.errorOf(new NotReplicatedError(this.#queueName, known, { cause: first }))
  }
}
