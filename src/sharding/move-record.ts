import { MoveError } from '../errors.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { moveKey } from '../redis/keys.ts'
import type { ShardedQueue } from './queue.ts'

/** Commands of ioredis that BullMQ's client type lacks. */
interface HashCommands {
  hgetall(key: string): Promise<Readonly<Record<string, string>>>
  hsetnx(key: string, field: string, value: string): Promise<number>
  hset(key: string, field: string, value: string): Promise<number>
  hdel(key: string, field: string): Promise<number>
  del(key: string): Promise<number>
}

/** How far a move has come. `resuming`: nothing is left to wait for. */
export type MovePhase = 'draining' | 'resuming' | 'done'

/** What is stored of a move. */
export interface RecordedMove {
  /** The name of the old queue. */
  readonly from: string
  /** The key prefix of its first shard: two queues with different prefixes may have one name. */
  readonly base: string
  /** Whether the new queue was paused before the move. */
  readonly wasPaused: boolean
  readonly phase: MovePhase
  /** Whether settings were copied. */
  readonly isCopied: boolean
}

const DROPPED = 'drop:'

/** What a move has done so far, stored in the first shard of the new queue: a repeated call goes on from there. */
export class MoveRecord {
  readonly #from: ShardedQueue
  readonly #to: ShardedQueue

  constructor(from: ShardedQueue, to: ShardedQueue) {
    this.#from = from
    this.#to = to
  }

  /** @throws MoveError if it is a move of another queue that has not ended */
  async read(): Promise<RecordedMove | undefined> {
    const { begun, phase = 'draining', copied } = await (await this.#client()).hgetall(this.#key)
    if (!begun) return undefined
    const stored = JSON.parse(begun) as Pick<RecordedMove, 'from' | 'base' | 'wasPaused'>
    const found = { ...stored, phase: phase as MovePhase, isCopied: copied === '1' }
    if (found.base === baseOf(this.#from)) return found
    if (phase === 'done') return undefined
    throw new MoveError(
      this.#to.name,
      'other move',
      `gets the jobs of queue "${found.from}": expected that move to be over; got one from queue "${this.#from.name}"`,
    )
  }

  /** Of two moves that begin together, the first one counts. */
  async begin(wasPaused: boolean): Promise<void> {
    const begun = JSON.stringify({ from: this.#from.name, base: baseOf(this.#from), wasPaused })
    await (await this.#client()).hsetnx(this.#key, 'begun', begun)
  }

  async reach(phase: MovePhase): Promise<void> {
    await (await this.#client()).hset(this.#key, 'phase', phase)
  }

  async copied(): Promise<void> {
    await (await this.#client()).hset(this.#key, 'copied', '1')
  }

  async forget(): Promise<void> {
    await (await this.#client()).del(this.#key)
  }

  /**
   * Removes the next job of a scheduler of the new queue together with the scheduler, even if the process dies between
   * the two calls that this takes.
   */
  async drop(queue: ShapedQueue, schedulerId: string, jobId: string): Promise<void> {
    const field = `${DROPPED}${this.#to.each.indexOf(queue)}:${jobId}`
    await (await this.#client()).hset(this.#key, field, schedulerId)
    await this.#drop(queue, field, schedulerId)
  }

  /** Removes what an earlier call was about to remove. */
  async dropRest(): Promise<void> {
    const stored = await (await this.#client()).hgetall(this.#key)
    for (const [field, schedulerId] of Object.entries(stored)) {
      if (!field.startsWith(DROPPED)) continue
      const shard = Number.parseInt(field.slice(DROPPED.length), 10)
      await this.#drop(this.#to.each[shard] as ShapedQueue, field, schedulerId)
    }
  }

  async #drop(queue: ShapedQueue, field: string, schedulerId: string): Promise<void> {
    const jobId = field.slice(field.indexOf(':', DROPPED.length) + 1)
    // A job that is the next one of its scheduler cannot be removed.
    await queue.removeJobScheduler(schedulerId)
    await (await queue.getJob(jobId))?.remove()
    await (await this.#client()).hdel(this.#key, field)
  }

  get #key(): string {
    return moveKey(baseOf(this.#to))
  }

  async #client(): Promise<HashCommands> {
    return (await (this.#to.each[0] as ShapedQueue).backend.client) as unknown as HashCommands
  }
}

/** The key prefix of the first shard, which says which queue it is. */
function baseOf(queue: ShardedQueue): string {
  return (queue.each[0] as ShapedQueue).backend.store.base
}
