import { setImmediate as nextTurn } from 'node:timers/promises'
import type { LocalTime } from '../../src/redis/clock.ts'

interface Event {
  readonly atUs: number
  readonly number: number
  readonly call: () => void
}

/** Turns of the event loop after which all triggered work has settled. */
const TURNS = 4

/** A clock that moves from event to event, µs. Real time has no effect on it. */
export class VirtualTime {
  nowUs: number
  /** A heap with the first event at its top. */
  readonly #events: Event[] = []
  readonly #ended = new Set<number>()
  #number = 0
  #real = 0
  #onNoneReal: () => void = () => {}

  constructor(startUs: number) {
    this.nowUs = startUs
  }

  /** @returns cancels the event */
  at(us: number, call: () => void): () => void {
    this.#number += 1
    const event = { atUs: Math.max(us, this.nowUs), number: this.#number, call }
    this.#push(event)
    return () => this.#ended.add(event.number)
  }

  /** Resolves at a time. */
  until(us: number): Promise<void> {
    return new Promise((resolve) => this.at(us, resolve))
  }

  /** The clock stands still while real work is awaited. */
  async real<T>(work: Promise<T>): Promise<T> {
    this.#real += 1
    try {
      return await work
    } finally {
      this.#real -= 1
      if (this.#real === 0) this.#onNoneReal()
    }
  }

  /** The clock as a process sees it. @param lateUs by how much its timers are late */
  local(startUs: number, lateUs: () => number): LocalTime {
    return {
      monotonicMs: () => (this.nowUs - startUs) / 1000,
      wallMs: () => this.nowUs / 1000,
      after: (ms, call) => this.at(this.nowUs + ms * 1000 + lateUs(), call),
    }
  }

  /** Runs until `done`, until a time, or until no event is left. */
  async run(done: () => boolean, untilUs: number): Promise<void> {
    for (;;) {
      await this.#settle()
      const [first] = this.#events
      if (done() || !first || first.atUs > untilUs) return
      this.nowUs = Math.max(this.nowUs, first.atUs)
      // What is due at the same time happens in one turn of the event loop.
      for (let due = first; due && due.atUs <= this.nowUs; due = this.#events[0] as Event) {
        this.#pop()
        if (!this.#ended.delete(due.number)) due.call()
      }
    }
  }

  async #settle(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn++) {
      await nextTurn()
      if (this.#real === 0) continue
      await new Promise<void>((resolve) => {
        this.#onNoneReal = resolve
      })
      turn = -1
    }
  }

  #push(event: Event): void {
    const events = this.#events
    let at = events.length
    for (; at > 0; at = (at - 1) >> 1) {
      const parent = events[(at - 1) >> 1] as Event
      if (!isBefore(event, parent)) break
      events[at] = parent
    }
    events[at] = event
  }

  #pop(): void {
    const events = this.#events
    const last = events.pop() as Event
    if (events.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      const [one, other] = [events[child], events[child + 1]]
      if (other && isBefore(other, one as Event)) child += 1
      const least = events[child]
      if (!least || !isBefore(least, last)) break
      events[at] = least
      at = child
    }
    events[at] = last
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.atUs < other.atUs || (one.atUs === other.atUs && one.number < other.number)
}
