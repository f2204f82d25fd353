interface Waiting<Call, Reply> {
  readonly call: Call
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: unknown) => void
}

export interface CollectorOptions<Call, Reply> {
  readonly one: (call: Call) => Promise<Reply>
  /** Sends calls together, in their order. @returns for each its reply, or its error */
  readonly many: (calls: readonly Call[]) => Promise<readonly (Reply | Error)[]>
  /** How many calls are sent without waiting for more. @param calls under way and collected */
  readonly enough: (calls: number) => number
  /** Fewer calls than this are sent one by one. Default 2. */
  readonly least?: number
  /** When to send what is collected. Default: once all that goes on by itself in this turn of the event loop has. */
  readonly defer?: (send: () => void) => void
  /**
   * While so many sendings are under way, each of one call or of many, what is called is collected until one of them is
   * answered, for 2 ms at most: a sending costs more than what it holds. Default: any number.
   */
  readonly mostSendings?: number
}

const MOST_HELD_MS = 2

/** Sends together what a program asks for beside each other. Their order is kept, and each has an answer of its own. */
export class Collector<Call, Reply> {
  readonly #options: CollectorOptions<Call, Reply>
  #waiting: Waiting<Call, Reply>[] = []
  #underWay = 0
  #sendings = 0
  #held: NodeJS.Timeout | undefined

  constructor(options: CollectorOptions<Call, Reply>) {
    this.#options = options
  }

  /** Calls that are sent and not answered. */
  get underWay(): number {
    return this.#underWay
  }

  add(call: Call): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject })
      if (this.#waiting.length >= this.#options.enough(this.#underWay + this.#waiting.length)) this.flush()
      else if (this.#waiting.length === 1) this.#later()
    })
  }

  /** Sends a call at once, after those that are collected. */
  alone(call: Call): Promise<Reply> {
    this.flush()
    return this.#track(1, this.#options.one(call))
  }

  /** Sends what is collected now: something follows that has to come after it. */
  flush(): void {
    const batch = this.#waiting
    if (batch.length === 0) return
    this.#waiting = []
    clearTimeout(this.#held)
    this.#held = undefined
    const { least = 2 } = this.#options
    if (batch.length < least) {
      // They cost Redis less that way.
      for (const { call, resolve, reject } of batch) this.#track(1, this.#options.one(call)).then(resolve, reject)
      return
    }
    const calls = batch.map(({ call }) => call)
    this.#track(batch.length, this.#options.many(calls)).then(
      (replies) => settle(batch, replies),
      (error: unknown) => {
        for (const { reject } of batch) reject(error)
      },
    )
  }

  #later(): void {
    const { defer = process.nextTick, mostSendings = Number.POSITIVE_INFINITY } = this.#options
    if (this.#sendings < mostSendings) defer(() => this.flush())
    else this.#held = setTimeout(() => this.flush(), MOST_HELD_MS)
  }

  #track<T>(calls: number, sent: Promise<T>): Promise<T> {
    this.#underWay += calls
    this.#sendings += 1
    const ended = () => {
      this.#underWay -= calls
      this.#sendings -= 1
      // Whoever was answered may ask again at once.
      if (this.#held) process.nextTick(() => this.flush())
    }
    sent.then(ended, ended)
    return sent
  }
}

function settle<Call, Reply>(batch: readonly Waiting<Call, Reply>[], replies: readonly (Reply | Error)[]): void {
  batch.forEach(({ resolve, reject }, i) => {
    const reply = replies[i] as Reply | Error
    if (reply instanceof Error) reject(reply)
    else resolve(reply)
  })
}
