import { MoveError } from '../errors.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import type { PlainCommands } from '../redis/commands.ts'
import { moveKey, shapeKey } from '../redis/keys.ts'
import type { ShardedQueue } from './queue.ts'

/** Progress of a move. `resuming`: nothing is left to wait for. */
export type MovePhase = 'draining' | 'resuming' | 'done'

/** The stored record of a move. */
export interface RecordedMove {
  /** Counts the moves to the new queue. */
  readonly number: number
  /** The name of the old queue. */
  readonly from: string
  /** The key prefix of its first shard: two queues with different prefixes may have one name. */
  readonly base: string
  /**
   * The key prefixes of its shards, to detect its removal; empty if it was not in the new queue's Redis when the move
   * began.
   */
  readonly parts: readonly string[]
  /** Whether the new queue was paused before the move. */
  readonly wasPaused: boolean
  readonly phase: MovePhase
  /** Whether settings were copied. */
  readonly isCopied: boolean
}

const BEGUN = 'begun:'
const DROPPED = 'drop:'

/** The progress of a move, stored in the first shard of the new queue: a repeated call continues from there. */
export class MoveRecord {
  readonly #from: ShardedQueue
  readonly #to: ShardedQueue
  /** The number of the last move when it was read. */
  #last = 0
  #abandoned: RecordedMove | undefined

  constructor(from: ShardedQueue, to: ShardedQueue) {
    this.#from = from
    this.#to = to
  }

  /** The unfinished move of another queue that was removed since: this move may take its place. */
  get abandoned(): RecordedMove | undefined {
    return this.#abandoned
  }

  /**
   * The last move, if it is one of this old queue.
   * @throws MoveError if the last move is an unfinished one of another queue that still exists
   */
  async read(): Promise<RecordedMove | undefined> {
    const stored = await (await this.#client()).hgetall(this.#key)
    const numbers = Object.keys(stored).flatMap((name) =>
      name.startsWith(BEGUN) ? Number(name.slice(BEGUN.length)) : [],
    )
    const number = Math.max(0, ...numbers)
    this.#last = number
    if (number === 0) return undefined
    const begun = JSON.parse(stored[`${BEGUN}${number}`] as string) as Omit<
      RecordedMove,
      'number' | 'phase' | 'isCopied'
    >
    const phase = (stored[`phase:${number}`] ?? 'draining') as MovePhase
    const found = { ...begun, number, phase, isCopied: stored[`copied:${number}`] === '1' }
    if (begun.base === baseOf(this.#from)) return found
    if (phase === 'done') return undefined
    if (!(await this.#isRemoved(found))) throw otherMove(this.#to.name, begun.from, this.#from.name)
    this.#abandoned = found
    return undefined
  }

  /** None of its shards is left: it was removed, or Redis has lost it with all of its jobs. */
  async #isRemoved({ parts }: RecordedMove): Promise<boolean> {
    return parts.length > 0 && (await this.#count(parts)) === 0
  }

  /** How many of these shards the Redis of the new queue has. */
  async #count(bases: readonly string[]): Promise<number> {
    const client = await this.#client()
    const found = await Promise.all(
      bases.flatMap((base) => [client.exists(shapeKey(base)), client.exists(`${base}meta`)]),
    )
    return found.reduce((sum, count) => sum + count, 0)
  }

  /** Begins another move than the one that was read. If two begin together, the first one counts for both. */
  async begin(wasPaused: boolean): Promise<RecordedMove> {
    const bases = this.#from.each.map(({ backend }) => backend.store.base)
    const parts = (await this.#count(bases)) > 0 ? bases : []
    const begun = JSON.stringify({ from: this.#from.name, base: baseOf(this.#from), parts, wasPaused })
    await (await this.#client()).hsetnx(this.#key, `${BEGUN}${this.#last + 1}`, begun)
    return (await this.read()) as RecordedMove
  }

  async reach(number: number, phase: MovePhase): Promise<void> {
    await (await this.#client()).hset(this.#key, `phase:${number}`, phase)
  }

  async copied(number: number): Promise<void> {
    await (await this.#client()).hset(this.#key, `copied:${number}`, '1')
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

  /** Finishes the removal that an earlier call began. */
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
    // The next job of a scheduler cannot be removed alone.
    await queue.removeJobScheduler(schedulerId)
    await (await queue.getJob(jobId))?.remove()
    await (await this.#client()).hdel(this.#key, field)
  }

  get #key(): string {
    return moveKey(baseOf(this.#to))
  }

  async #client(): Promise<PlainCommands> {
    return (await (this.#to.each[0] as ShapedQueue).backend.client) as unknown as PlainCommands
  }
}

/** The key prefix of the first shard, which identifies the queue. */
function baseOf(queue: ShardedQueue): string {
  return (queue.each[0] as ShapedQueue).backend.store.base
}

function otherMove(queueName: string, old: string, given: string): MoveError {
  return new MoveError(
    queueName,
    'other move',
    `gets the jobs of queue "${old}": expected that move to be over, or queue "${old}" to be removed; got a move of queue ` +
      `"${given}"`,
  )
}
