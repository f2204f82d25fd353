import type { ChainableCommander, Cluster, Redis } from 'ioredis'

/** An ioredis client. */
export type BatchClient = Redis | Cluster

/** What Redis answered to a command, once the batch has run; throws what it was refused with. */
export type Answer<T> = () => T

/** Read commands that go out together: one round trip, whatever their number. */
export class Batch {
  readonly #pipeline: ChainableCommander
  #results: readonly [Error | null, unknown][] | undefined

  constructor(redis: BatchClient) {
    this.#pipeline = redis.pipeline()
  }

  /** @param command in small letters: ioredis knows by them how to read an answer */
  add<T>(command: string, ...args: (string | number)[]): Answer<T> {
    const index = this.#pipeline.length
    this.#pipeline.call(command, ...args)
    return () => this.#answer(index) as T
  }

  /** The same for a string that holds bytes. */
  addBuffer(command: string, ...args: (string | number)[]): Answer<Buffer | null> {
    const index = this.#pipeline.length
    this.#pipeline.callBuffer(command, ...args)
    return () => this.#answer(index) as Buffer | null
  }

  #answer(index: number): unknown {
    const [error, value] = this.#results?.[index] ?? [new Error('the batch was not run'), undefined]
    if (error) throw error
    return value
  }

  async run(): Promise<void> {
    this.#results = this.#pipeline.length === 0 ? [] : ((await this.#pipeline.exec()) ?? [])
  }
}

/** What Redis answered, or undefined where it refused the command. */
export function tolerant<T>(answer: Answer<T>): T | undefined {
  try {
    return answer()
  } catch (error) {
    if (isRefusedCommand(error)) return undefined
    throw error
  }
}

/** The user may not run it, or this server does not know it. */
function isRefusedCommand(error: unknown): boolean {
  return error instanceof Error && /^NOPERM|denied|unknown command/i.test(error.message)
}
