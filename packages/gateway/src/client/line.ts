import type { Clock } from './clock.ts'
import type { Gate, Opening, Pass } from './gate.ts'

export interface Turn {
  /** Its place: lower ones go first. Refused requests keep theirs. */
  readonly place: number
  /** The gates that it must pass, as known now. */
  readonly gates: () => readonly Gate[]
  /** Its own backoff: the earliest start, on the clock's ms. */
  readonly notBeforeMs: number
  /** The latest start, on the clock's ms. */
  readonly deadlineMs: number
  readonly signal: AbortSignal | undefined
  /** Called once, if it does not start immediately. */
  readonly onWait: (block: Block, nowMs: number) => void
}

/** What a turn waits for longest: a gate or, if there is none, its own backoff. */
export interface Block extends Opening {
  readonly gate: Gate | undefined
}

/** The passes through all gates; or the earliest possible start, if that is after its deadline. */
export type Admission = { readonly passes: readonly Pass[] } | { readonly lateUntilMs: number }

interface Waiting extends Turn {
  /** Whether `onWait` was called. */
  reported: boolean
  settle(admission: Admission): void
  fail(reason: unknown): void
}

/**
 * Requests that wait for gates, in the order of their places; all requests start through it. One timer wakes them all.
 */
export class Line {
  readonly #clock: Clock
  #waiting: Waiting[] = []
  #wakeMs = Number.POSITIVE_INFINITY
  #stopTimer: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get length(): number {
    return this.#waiting.length
  }

  /** Resolves when the turn comes, or could only be late; rejects with the signal's reason, or what `onWait` throws. */
  wait(turn: Turn): Promise<Admission> {
    return new Promise((resolve, reject) => {
      turn.signal?.throwIfAborted()
      const leave = () => waiting.fail(turn.signal?.reason)
      const waiting: Waiting = {
        ...turn,
        reported: false,
        settle: (admission) => {
          turn.signal?.removeEventListener('abort', leave)
          resolve(admission)
        },
        fail: (reason) => {
          turn.signal?.removeEventListener('abort', leave)
          reject(reason)
          this.#waiting = this.#waiting.filter((one) => one !== waiting)
          this.pump()
        },
      }
      turn.signal?.addEventListener('abort', leave, { once: true })
      const after = this.#waiting.findLastIndex((one) => one.place <= turn.place)
      this.#waiting.splice(after + 1, 0, waiting)
      this.pump()
    })
  }

  /** Call it after a change: starts all requests that may start. */
  pump(): void {
    this.#stopTimer?.()
    this.#stopTimer = undefined
    this.#wakeMs = Number.POSITIVE_INFINITY
    const nowMs = this.#clock.nowMs()
    const unreported: [Waiting, Block][] = []
    this.#waiting = this.#waiting.filter((one) => {
      const block = this.#blockAfterTry(one, nowMs)
      if (block && !one.reported) unreported.push([one, block])
      return block !== undefined
    })
    // Last, since `onWait` may start another request, or abort one.
    for (const [one, block] of unreported) reportWait(one, block, nowMs)
  }

  /** What still holds a request, which is woken when that ends; undefined if the request has left the line. */
  #blockAfterTry(one: Waiting, nowMs: number): Block | undefined {
    const block = blockOf(one, nowMs)
    if (!block) {
      one.settle({ passes: one.gates().map((gate) => gate.enter(nowMs)) })
      return undefined
    }
    if (isLate(one, block, nowMs)) {
      one.settle({ lateUntilMs: block.atMs })
      return undefined
    }
    this.#wakeBy(Math.min(block.atMs, one.deadlineMs), nowMs)
    return block
  }

  #wakeBy(atMs: number, nowMs: number): void {
    if (atMs >= this.#wakeMs) return
    this.#stopTimer?.()
    this.#wakeMs = atMs
    this.#stopTimer = this.#clock.after(atMs - nowMs, () => this.pump())
  }
}

function reportWait(one: Waiting, block: Block, nowMs: number): void {
  one.reported = true
  try {
    one.onWait(block, nowMs)
  } catch (error) {
    one.fail(error)
  }
}

/** When a probe is answered is unknown; all other times are known, so that a turn that would be late ends at once. */
function isLate(turn: Turn, block: Block, nowMs: number): boolean {
  return nowMs >= turn.deadlineMs || (block.reason !== 'probe' && block.atMs > turn.deadlineMs)
}

function blockOf({ gates, notBeforeMs }: Turn, nowMs: number): Block | undefined {
  let last: Block | undefined
  const own: Block = { atMs: notBeforeMs, reason: 'backoff', gate: undefined }
  for (const block of [...gates().map((gate): Block => ({ ...gate.opening(nowMs), gate })), own]) {
    if (block.atMs > nowMs && block.atMs > (last?.atMs ?? nowMs)) last = block
  }
  return last
}
