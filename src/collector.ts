interface Waiting<Call, Reply> {
  readonly call: Call
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: unknown) => void
}

export interface CollectorOptions<Call, Reply> {
  /** Sends calls together, in their order. @returns for each its reply, or its error */
  readonly send: (calls: readonly Call[]) => Promise<readonly (Reply | Error)[]>
  /** The most calls that are sent together. */
  readonly most: number
  /** Smaller parts cost more than they gain. Default 1. */
  readonly least?: number
  /** Into how many parts the calls under way are split, so that Redis works on one while the program makes the next. */
  readonly parts: number
}

/**
 * Sends together what a program asks for while other calls are under way, in one turn of the event loop. A call that is
 * alone goes at once. The order is kept, and each call has an answer of its own.
 */
export class Collector<Call, Reply> {
  readonly #options: CollectorOptions<Call, Reply>
  #waiting: Waiting<Call, Reply>[] = []
  #underWay = 0

  constructor(options: CollectorOptions<Call, Reply>) {
    this.#options = options
  }

  add(call: Call): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject })
      if (this.#underWay === 0 || this.#waiting.length >= this.#enough) this.flush()
      // Once all that goes on by itself in this turn has gone on, before the event loop does.
      else if (this.#waiting.length === 1) process.nextTick(() => this.flush())
    })
  }

  /** Sends what is collected now: something follows that has to come after it. */
  flush(): void {
    const batch = this.#waiting
    if (batch.length === 0) return
    this.#waiting = []
    this.#underWay += batch.length
    this.#options.send(batch.map(({ call }) => call)).then(
      (replies) => {
        this.#underWay -= batch.length
        for (let i = 0; i < batch.length; i++) settle(batch[i] as Waiting<Call, Reply>, replies[i] as Reply | Error)
      },
      (error: unknown) => {
        this.#underWay -= batch.length
        for (const { reject } of batch) reject(error)
      },
    )
  }

  get #enough(): number {
    const { most, least = 1, parts } = this.#options
    const calls = this.#underWay + this.#waiting.length
    return Math.min(most, Math.max(least, Math.ceil(calls / parts)))
  }
}

function settle<Call, Reply>({ resolve, reject }: Waiting<Call, Reply>, reply: Reply | Error): void {
  if (reply instanceof Error) reject(reply)
  else resolve(reply)
}
