import { ShardCountError } from '../errors.ts'
import { type LocalTime, systemTime } from '../redis/clock.ts'
import type { Argument } from '../redis/commands.ts'

/** One part of a sharded queue in Redis: a shard, or its head, which holds the ledger. */
export interface Part {
  /** Runs one of our scripts whose only key is the shape of the part. */
  run(script: string, args: readonly Argument[]): Promise<unknown>
  /** Stores the shape of the part, if Redis has none. */
  recover(): Promise<void>
}

export interface CoordinatedQueue {
  readonly head: Part
  readonly shards: number
  /** Resolves once the head has no other number of shards. @throws ShardCountError */
  agree(): Promise<void>
  /** @throws ShardCountError if the head has another number of shards */
  check(stored: number): void
  /** All shards, in order. */
  parts(): readonly Part[]
  onError(error: Error): void
}

/** The reply of `lua/verbs/grant-leases.lua`. */
type LeaseReply = readonly [
  status: number,
  nowUs: string,
  inMs: number,
  shards: number,
  short: string,
  grants: readonly (readonly string[] | '')[],
]

const DIVIDED = 1
const NOT_DUE = 0
const DUE = 2
const NO_SHAPE = -1
const OTHER_NUMBER = -3

/** A call to the head that takes longer counts as unanswered, ms. */
const CALL_TIMEOUT_MS = 450
/**
 * Longest wait of a round for a shard, ms. With the way to the head and back it must be less than STALE_US of
 * lua/sharding/ledger.lua: otherwise one silent shard would make all other reports too old.
 */
const SHARD_TIMEOUT_MS = 200
/** Rounds skip a silent shard until it answers, or for this long, ms. */
const SILENT_MS = 1000
/** An answer of the ledger serves as the time of the next reports for this long, ms. */
const FRESH_MS = 280
const RETRY_MS = 250
/** Time between rounds until the shards have leases, ms. */
const STARTING_MS = 20
/** After this time the queue begins without silent shards: the rate that they may have had is free by then. ms */
const START_MS = 3500
/** At most one request for an early round counts in this time, ms. */
const NUDGES_MS = 100
/**
 * Rounds last for this long while something is short. Afterwards only a silent shard can be short, and its lease ends.
 */
const SETTLE_MS = 10_000

/** A call that only reports. */
const NO_LEASE = ['', '', '', '', '', '']

/**
 * Divides the queue among its shards, round by round: it collects the shards' reports, passes them to the ledger, and
 * passes the ledger's grants to the shards. Each process has one, and the ledger lets one at a time do the work. A
 * round may stop anywhere, and repeat or overtake another, because ledger and shards check the order themselves.
 */
export class Coordinator {
  readonly #queue: CoordinatedQueue
  #basis: { readonly us: string; readonly atMs: number } | undefined
  readonly #time: LocalTime
  #stopTimer: () => void = () => {}
  #nudgedMs = Number.NEGATIVE_INFINITY
  #running: Promise<LeaseReply | undefined> | undefined
  #closed = false
  /** Whether the next round has to repeat the last one: a part had no shape, or may not have its grant. */
  #incomplete = false
  /** Whether all shards reported in the last round. */
  #haveAllReported = false
  /** Number of consecutive incomplete rounds. */
  #repeats = 0
  /** Silent shards, and since when. */
  readonly #silentMs = new Map<number, number>()
  #dividedMs: number | undefined
  #started: Promise<void>
  #start: () => void = () => {}
  #refuse: (error: ShardCountError) => void = () => {}
  /** Whether all shards have had their due at least once. */
  #isStarted = false

  constructor(queue: CoordinatedQueue, time = systemTime) {
    this.#queue = queue
    this.#time = time
    this.#started = this.#untilStarted()
    this.#wake(0)
  }

  #untilStarted(): Promise<void> {
    const started = new Promise<void>((resolve, reject) => {
      this.#start = resolve
      this.#refuse = reject
    })
    started.catch(() => undefined)
    return started
  }

  /**
   * Resolves once the shards that answer have leases: before that they have almost no places.
   * @throws ShardCountError
   */
  get started(): Promise<void> {
    return this.#started
  }

  /** Whether {@link started} has certainly resolved. */
  get isStarted(): boolean {
    return this.#isStarted
  }

  /** Begins a round soon: something changed. */
  nudge(): void {
    const nowMs = this.#time.monotonicMs()
    if (this.#running || nowMs < this.#nudgedMs + NUDGES_MS) return
    this.#nudgedMs = nowMs
    this.#wake(0, true)
  }

  /** Resolves once a setting applies in all shards that answer; silent ones have lost their leases by then. */
  async settle(): Promise<void> {
    const untilMs = this.#time.monotonicMs() + SETTLE_MS
    for (let done = 0; done < 2 && !this.#closed && this.#time.monotonicMs() < untilMs; ) {
      const answer = await this.#round(true)
      done = answer?.[0] === DIVIDED && answer[4] === '0' && !this.#incomplete ? done + 1 : 0
      if (done < 2) await this.#sleep(answer?.[4] === '1' ? answer[2] : 10)
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#stopTimer()
    this.#start()
    await this.#running?.catch(() => undefined)
  }

  /** Begins again after {@link close}: the shards may have no leases any more. */
  reopen(): void {
    this.#closed = false
    this.#isStarted = false
    this.#dividedMs = undefined
    this.#started = this.#untilStarted()
    this.#wake(0)
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
      if (!this.#closed) this.#fails(error as Error)
      return undefined
    })
    this.#repeats = this.#incomplete ? this.#repeats + 1 : 0
    if (answer?.[0] === DIVIDED && this.#isEnough(answer)) this.#begun()
    this.#wake(this.#nextInMs(answer))
  }

  #nextInMs(answer: LeaseReply | undefined): number {
    if (!answer || answer[0] === NO_SHAPE || this.#repeats > 1) return RETRY_MS
    if (this.#repeats === 1) return STARTING_MS
    // A process that came too early returns later than the one that did the work.
    if (answer[0] === NOT_DUE) return answer[2] + RETRY_MS * (1 + Math.random())
    const isQuick = !this.#isStarted && this.#silentMs.size === 0
    return Math.max(STARTING_MS, isQuick ? 0 : answer[2])
  }

  /** Whether all shards have their due, except silent ones. */
  #isEnough(answer: LeaseReply): boolean {
    const nowMs = this.#time.monotonicMs()
    this.#dividedMs ??= nowMs
    const haveAll = answer[4] === '0' && !this.#incomplete && this.#haveAllReported
    return haveAll || nowMs - this.#dividedMs >= START_MS
  }

  /** A process with another number of shards stops working. */
  #fails(error: Error): void {
    this.#queue.onError(error)
    if (!(error instanceof ShardCountError)) return
    this.#closed = true
    this.#isStarted = false
    this.#refuse(error)
    this.#started = Promise.reject(error)
    this.#started.catch(() => undefined)
  }

  /** One round at a time: a second caller waits for the first one, and does another. */
  async #round(force: boolean): Promise<LeaseReply | undefined> {
    while (this.#running) await this.#running.catch(() => undefined)
    if (this.#closed) return undefined
    this.#running = this.#divide(force).finally(() => {
      this.#running = undefined
    })
    return this.#running
  }

  async #divide(force: boolean): Promise<LeaseReply | undefined> {
    const agreed = await this.#within(this.#queue.agree().then(() => true))
    if (!agreed) return undefined
    const basis = this.#freshBasis ?? (await this.#whenDue(force))
    if (typeof basis !== 'string') return basis
    const parts = this.#queue.parts()
    this.#incomplete = false
    const reports = await Promise.all(parts.map((part, shard) => this.#report(part, shard)))
    this.#haveAllReported = reports.every((report) => report !== '')
    const answer = await this.#ask([basis, force ? '1' : '0', ...reports])
    if (answer?.[0] === DIVIDED) await this.#grant(parts, answer[5])
    return answer
  }

  get #freshBasis(): string | undefined {
    return this.#basis && this.#time.monotonicMs() - this.#basis.atMs < FRESH_MS ? this.#basis.us : undefined
  }

  /** Asks whether a round is due. @returns the ledger's time if it is */
  async #whenDue(force: boolean): Promise<string | LeaseReply | undefined> {
    const answer = await this.#ask(['', force ? '1' : '0'])
    if (answer?.[0] === NO_SHAPE) await this.#within(this.#queue.head.recover())
    return answer?.[0] === DUE ? answer[1] : answer
  }

  async #ask(args: readonly Argument[]): Promise<LeaseReply | undefined> {
    const sentMs = this.#time.monotonicMs()
    const answer = (await this.#within(this.#queue.head.run('grant-leases', [this.#queue.shards, ...args]))) as
      | LeaseReply
      | undefined
    this.#basis = answer && [DIVIDED, DUE].includes(answer[0]) ? { us: answer[1], atMs: sentMs } : undefined
    if (answer?.[0] === OTHER_NUMBER) this.#queue.check(answer[3])
    return answer
  }

  /** '' if the shard does not answer in time. */
  async #report(part: Part, shard: number): Promise<string> {
    const silentMs = this.#silentMs.get(shard)
    if (silentMs !== undefined && this.#time.monotonicMs() < silentMs + SILENT_MS) return ''
    try {
      const call = part.run('apply-lease', NO_LEASE)
      const reply = (await this.#within(call, SHARD_TIMEOUT_MS)) as [number, string] | undefined
      if (!reply) this.#noteSilence(shard, call)
      if (reply?.[0] === NO_SHAPE) {
        this.#incomplete = true
        await this.#within(part.recover(), SHARD_TIMEOUT_MS)
      }
      return reply?.[1] ?? ''
    } catch (error) {
      if (!this.#closed) this.#queue.onError(error as Error)
      return ''
    }
  }

  #noteSilence(shard: number, call: Promise<unknown>): void {
    this.#silentMs.set(shard, this.#time.monotonicMs())
    const answered = () => this.#silentMs.delete(shard)
    call.then(answered, answered)
  }

  async #grant(parts: readonly Part[], grants: LeaseReply[5]): Promise<void> {
    const sent = grants.flatMap((grant, i) =>
      grant === '' ? [] : [this.#within((parts[i] as Part).run('apply-lease', grant), SHARD_TIMEOUT_MS)],
    )
    for (const call of await Promise.allSettled(sent)) {
      if (call.status === 'fulfilled' && call.value !== undefined) continue
      // The round counts as unfinished until the shard has certainly got its grant.
      this.#incomplete = true
      if (call.status === 'rejected' && !this.#closed) this.#queue.onError(call.reason as Error)
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#time.after(ms, resolve))
  }

  /** Undefined if it takes too long. A late failure is ignored. */
  #within<T>(call: Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const stop = this.#time.after(timeoutMs, () => resolve(undefined))
      call.then(resolve, reject).finally(stop)
    })
  }
}
