import { type LocalTime, systemTime } from '../redis/clock.ts'
import type { Argument } from '../redis/commands.ts'
import type { Shards } from './placement.ts'

/** One part of a sharded queue in Redis: a shard, or its head, which holds the ledger. */
export interface Part {
  /** Runs one of our scripts whose only key is the shape of the part. */
  run(script: string, args: readonly Argument[]): Promise<unknown>
  /** Stores the shape of the part, if Redis has none. */
  recover(): Promise<void>
}

export interface CoordinatedQueue {
  readonly head: Part
  /** The parts with these numbers, from 0. */
  parts(count: number): readonly Part[]
  onShards(shards: Shards): void
  onError(error: Error): void
}

/** The reply of `lua/grant-leases.lua`. */
type Answer = readonly [
  status: number,
  nowUs: string,
  inMs: number,
  count: number,
  placed: number,
  from: number,
  short: string,
  grants: readonly (readonly string[] | '')[],
]

const DIVIDED = 1
const NOT_DUE = 0
const DUE = 2
const NO_SHAPE = -1

/** A call that takes longer counts as unanswered; its reply would be too old (STALE_US of lua/lib/ledger.lua). ms */
const CALL_TIMEOUT_MS = 450
/** An answer of the ledger serves as the time of the next reports for this long, ms. */
const FRESH_MS = 400
const RETRY_MS = 250
/** Until the shards have leases, rounds follow each other so closely, ms. */
const STARTING_MS = 20
/** Calls to begin a round soon are heard once in this time, ms. */
const NUDGES_MS = 100
/** Rounds after which nothing is short any more, unless a shard does not answer; then its lease ends. */
const SETTLE_MS = 10_000

/**
 * Divides the queue among its shards, round by round: it takes the shards' reports, brings them to the ledger, and takes
 * the ledger's grants to the shards. Each process has one, and the ledger lets one at a time do the work; a round may
 * stop anywhere, and repeat or overtake another, since ledger and shards obey only what they know to be in order.
 */
export class Coordinator {
  readonly #queue: CoordinatedQueue
  #count: number
  #basis: { readonly us: string; readonly atMs: number } | undefined
  readonly #time: LocalTime
  #stopTimer: () => void = () => {}
  #nudgedMs = Number.NEGATIVE_INFINITY
  #running: Promise<Answer | undefined> | undefined
  #closed = false
  /** Whether a part had no shape in the last round, or none reported: it is to be repeated. */
  #incomplete = false
  readonly #started: Promise<void>
  #start: () => void = () => {}
  /** Whether this coordinator has seen to it once that all shards have what they are due. */
  #isStarted = false

  constructor(queue: CoordinatedQueue, shards: number, time = systemTime) {
    this.#queue = queue
    this.#time = time
    this.#count = shards
    this.#started = new Promise((resolve) => {
      this.#start = resolve
    })
    this.#wake(0)
  }

  /** Resolves once the shards have leases: before that they have no places. */
  get started(): Promise<void> {
    return this.#started
  }

  /** Begins a round soon: something changed. */
  nudge(): void {
    const nowMs = this.#time.monotonicMs()
    if (this.#running || nowMs < this.#nudgedMs + NUDGES_MS) return
    this.#nudgedMs = nowMs
    this.#wake(0, true)
  }

  /** Resolves once what was set is in force in all shards that answer; those that do not have lost their leases by then. */
  async settle(): Promise<void> {
    const untilMs = this.#time.monotonicMs() + SETTLE_MS
    for (let done = 0; done < 2 && !this.#closed && this.#time.monotonicMs() < untilMs; ) {
      const answer = await this.#round(true)
      done = answer?.[0] === DIVIDED && answer[6] === '0' && !this.#incomplete ? done + 1 : 0
      if (done < 2) await this.#sleep(answer?.[6] === '1' ? answer[2] : 10)
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#stopTimer()
    this.#start()
    await this.#running?.catch(() => undefined)
  }

  #begun(): void {
    this.#isStarted = true
    this.#start()
  }

  #wake(inMs: number, force = false): void {
    if (this.#closed) return
    this.#stopTimer()
    this.#stopTimer = this.#time.after(inMs, () => void this.#next(force))
  }

  async #next(force: boolean): Promise<void> {
    const answer = await this.#round(force || !this.#isStarted).catch((error: unknown) => {
      if (!this.#closed) this.#queue.onError(error as Error)
      return undefined
    })
    if (!answer || this.#incomplete) return this.#wake(answer ? 0 : RETRY_MS)
    // A process that came too early comes again later than the one that did the work.
    const later = answer[0] === NOT_DUE ? RETRY_MS * (1 + Math.random()) : 0
    this.#wake(this.#isStarted ? answer[2] + later : Math.min(answer[2], STARTING_MS))
    if (answer[0] === DIVIDED && answer[6] === '0') this.#begun()
  }

  /** One round at a time: a second caller waits for the first one, and does another. */
  async #round(force: boolean): Promise<Answer | undefined> {
    while (this.#running) await this.#running.catch(() => undefined)
    if (this.#closed) return undefined
    this.#running = this.#divide(force).finally(() => {
      this.#running = undefined
    })
    return this.#running
  }

  async #divide(force: boolean): Promise<Answer | undefined> {
    const basis = this.#freshBasis ?? (await this.#hello(force))
    if (typeof basis !== 'string') return basis
    const parts = this.#queue.parts(this.#count)
    this.#incomplete = false
    const reports = await Promise.all(parts.map((part) => this.#report(part)))
    const answer = await this.#ask([basis, force ? '1' : '0', ...reports])
    if (answer?.[0] === DIVIDED) await this.#grant(parts, answer[7])
    return answer
  }

  get #freshBasis(): string | undefined {
    return this.#basis && this.#time.monotonicMs() - this.#basis.atMs < FRESH_MS ? this.#basis.us : undefined
  }

  /** Asks whether it is time. @returns the ledger's time if it is */
  async #hello(force: boolean): Promise<string | Answer | undefined> {
    const answer = await this.#ask(['', force ? '1' : '0'])
    if (answer?.[0] === NO_SHAPE) await this.#queue.head.recover()
    return answer?.[0] === DUE ? answer[1] : answer
  }

  async #ask(args: readonly Argument[]): Promise<Answer | undefined> {
    const sentMs = this.#time.monotonicMs()
    const answer = (await this.#within(this.#queue.head.run('grant-leases', [this.#count, ...args]))) as
      | Answer
      | undefined
    this.#basis = answer && [DIVIDED, DUE].includes(answer[0]) ? { us: answer[1], atMs: sentMs } : undefined
    if (answer && answer[3] > 0) {
      this.#count = answer[3]
      this.#queue.onShards({ count: answer[3], placed: answer[4], from: answer[5] })
    }
    return answer
  }

  /** '' if the shard does not answer in time. */
  async #report(part: Part): Promise<string> {
    const nothing = ['', '', '', '', '', '']
    try {
      const reply = (await this.#within(part.run('apply-lease', nothing))) as [number, string] | undefined
      if (reply?.[0] === NO_SHAPE) {
        this.#incomplete = true
        await part.recover()
      }
      return reply?.[1] ?? ''
    } catch (error) {
      if (!this.#closed) this.#queue.onError(error as Error)
      return ''
    }
  }

  async #grant(parts: readonly Part[], grants: Answer[7]): Promise<void> {
    const sent = grants.flatMap((grant, i) =>
      grant === '' ? [] : [this.#within((parts[i] as Part).run('apply-lease', grant))],
    )
    for (const { status, ...rest } of await Promise.allSettled(sent)) {
      if (status === 'rejected' && !this.#closed) this.#queue.onError((rest as PromiseRejectedResult).reason as Error)
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#time.after(ms, resolve))
  }

  /** Undefined if it takes too long. A late failure is of no interest. */
  #within<T>(call: Promise<T>): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const stop = this.#time.after(CALL_TIMEOUT_MS, () => resolve(undefined))
      call.then(resolve, reject).finally(stop)
    })
  }
}
