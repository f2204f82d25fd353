import { type AddCall, BULK_JOBS, fitsBulk } from './admission.ts'
import type { Client } from './redis-commands.ts'

/** Jobs that are added together are sent in some parts, so that Redis works on one while the program makes the next. */
const IN_FLIGHT = 4
/** Smaller parts cost more than they gain. */
const MIN_BATCH = 3

interface Waiting {
  readonly client: Client
  readonly call: AddCall
  readonly resolve: (reply: unknown) => void
  readonly reject: (error: unknown) => void
}

/** The two ways to add jobs. */
export interface Admitting {
  one(client: Client, call: AddCall): Promise<unknown>
  /** Each by itself, in one script. @returns for each BullMQ's reply, or why it was not added */
  each(client: Client, calls: readonly AddCall[]): Promise<readonly unknown[]>
}

/**
 * Sends the jobs that a program adds beside each other in one script: those that are added in one turn of the event
 * loop while others are under way. Their order is kept, and each has an answer of its own.
 */
export class AdmitBatch {
  readonly #admitting: Admitting
  #waiting: Waiting[] = []
  #underWay = 0

  constructor(admitting: Admitting) {
    this.#admitting = admitting
  }

  add(call: AddCall, client: Client): Promise<unknown> {
    if (this.#underWay === 0 || !fitsBulk(call)) {
      this.flush()
      return this.#track(1, this.#admitting.one(client, call))
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ client, call, resolve, reject })
      if (this.#waiting.length >= this.#most) this.flush()
      // Once all that goes on by itself in this turn has gone on, before the event loop does.
      else if (this.#waiting.length === 1) process.nextTick(() => this.flush())
    })
  }

  get #most(): number {
    const jobs = this.#underWay + this.#waiting.length
    return Math.min(BULK_JOBS, Math.max(MIN_BATCH, Math.ceil(jobs / IN_FLIGHT)))
  }

  /** Sends what is collected now: something follows that has to come after it. */
  flush(): void {
    const batch = this.#waiting
    if (batch.length === 0) return
    this.#waiting = []
    const [first] = batch as [Waiting]
    if (batch.length === 1) {
      this.#track(1, this.#admitting.one(first.client, first.call)).then(first.resolve, first.reject)
      return
    }
    const calls = batch.map(({ call }) => call)
    this.#track(batch.length, this.#admitting.each(first.client, calls)).then(
      (replies) => settle(batch, replies),
      (error: unknown) => {
        for (const { reject } of batch) reject(error)
      },
    )
  }

  #track<T>(jobs: number, added: Promise<T>): Promise<T> {
    this.#underWay += jobs
    const ended = () => {
      this.#underWay -= jobs
    }
    added.then(ended, ended)
    return added
  }
}

function settle(batch: readonly Waiting[], replies: readonly unknown[]): void {
  batch.forEach(({ resolve, reject }, i) => {
    if (replies[i] instanceof Error) reject(replies[i])
    else resolve(replies[i])
  })
}
