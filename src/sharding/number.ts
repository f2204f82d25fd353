import { ShardCountError } from '../errors.ts'
import type { ShapeStore } from '../shape/store.ts'

/**
 * The number of shards that a process declares: it has to equal the number stored in the queue's head. Until that is
 * known, the process declares nothing, and adds and fetches no job.
 */
export class ShardNumber {
  readonly count: number
  readonly #queueName: string
  readonly #head: ShapeStore
  readonly #declares: boolean
  readonly #onStored: () => void
  #isStored = false
  #isUndeclared = false
  #asking: Promise<void> | undefined

  /** @param onStored called once the head has this number */
  constructor(queueName: string, head: ShapeStore, count: number, declares: boolean, onStored: () => void) {
    this.count = count
    this.#queueName = queueName
    this.#head = head
    this.#declares = declares
    this.#onStored = onStored
    head.declareAfter(() => this.agree())
  }

  /**
   * Asks the head until it has the number. A failure is retried at the next call.
   * @throws ShardCountError
   */
  agree(): Promise<void> {
    if (this.#isStored) return Promise.resolve()
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined
    })
    return this.#asking
  }

  /** The head has been removed. */
  forget(): void {
    this.#isStored = false
  }

  get isStored(): boolean {
    return this.#isStored
  }

  /** Whether Redis's last answer was that no process has declared the queue. */
  get isUndeclared(): boolean {
    return this.#isUndeclared
  }

  /** @throws ShardCountError if the stored number is another one */
  check(stored: number): void {
    if (stored !== this.count) throw new ShardCountError(this.#queueName, stored, this.count)
  }

  async #ask(): Promise<void> {
    const stored = (await this.#head.run('claim-shards', [this.count, this.#declares ? '1' : ''])) as number
    this.#isUndeclared = stored === 0
    if (this.#isUndeclared) return
    this.check(stored)
    this.#isStored = true
    this.#onStored()
  }
}
