interface PendingCall<Call, Reply> {
  readonly call: Call
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: unknown) => void
}

export interface CollectorOptions<Call, Reply> {
  readonly one: (call: Call) => Promise<Reply>
  /** Sends calls together, in order. @returns for each its reply, or its error */
  readonly many: (calls: readonly Call[]) => Promise<readonly (Reply | Error)[]>
  /** Number of calls to send without waiting for more. @param calls in flight and collected */
  readonly enough: (calls: number) => number
  /** Fewer calls than this are sent one by one. Default 2. */
  readonly least?: number
  /** When to send the collected calls. Default: `process.nextTick`, once the current code has run. */
  readonly defer?: (send: () => void) => void
  /**
   * While this many batches (of one call or more) are in flight, calls are collected until one batch is answered, for
   * at most 2 ms: sending a batch costs more than its calls. Default: unlimited.
   */
  readonly mostSendings?: number
}

const MOST_HELD_MS = 2

/** Sends concurrent calls of a program together. Their order is kept, and each gets its own reply. */
export class Collector<Call, Reply> {
  readonly #options: CollectorOptions<Call, Reply>
  #waiting: PendingCall<Call, Reply>[] = []
  /** Sent but unanswered calls. */
  underWay = 0
  #sendings = 0
  #held: NodeJS.Timeout | undefined

  constructor(options: CollectorOptions<Call, Reply>) {
    this.#options = options
  }

  add(call: Call): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject })
      if (this.#waiting.length >= this.#options.enough(this.underWay + this.#waiting.length)) this.flush()
      else if (this.#waiting.length === 1) this.#later()
    })
  }

  /** Counts separately sent calls. @returns their reply */
  track<T>(sent: Promise<T>, calls = 1): Promise<T> {
    this.underWay += calls
    this.#sendings += 1
    const ended = () => {
      this.underWay -= calls
      this.#sendings -= 1
      // Callers that got a reply may call again at once.
      if (this.#held) process.nextTick(() => this.flush())
    }
    sent.then(ended, ended)
    return sent
  }

  /** Sends the collected calls now, before a call that must come after them. */
  flush(): void {
    const batch = this.#waiting
    if (batch.length === 0) return
    this.#waiting = []
    clearTimeout(this.#held)
    this.#held = undefined
    const { least = 2 } = this.#options
    if (batch.length < least) {
      // A few calls cost Redis less one by one.
      for (const { call, resolve, reject } of batch) this.track(this.#options.one(call)).then(resolve, reject)
      return
    }
    const calls = batch.map(({ call }) => call)
    this.track(this.#options.many(calls), batch.length).then(
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
}

function settle<Call, Reply>(batch: readonly PendingCall<Call, Reply>[], replies: readonly (Reply | Error)[]): void {
  batch.forEach(({ resolve, reject }, i) => {
    const reply = replies[i] as Reply | Error
    if (reply instanceof Error) reject(reply)
    else resolve(reply)
  })
}
