/**
 * @typedef {{ atMs: number, accepted: number, departed: number, refused: number, dropped: number }} Totals
 * @typedef {{ arrivals: number, departures: number, refusals: number, drops: number }} PerSecond
 */

const WINDOW_MS = 10_000

/** Accepted, departed, refused and dropped jobs per second, over the last ten seconds of totals. */
export class Flow {
  /** @type {Totals[]} */
  #totals = []
  /** The parts that the totals lack. */
  #unread = ''

  /** @param {import('../wire.d.ts').Queue} queue */
  push(queue) {
    const atMs = Date.parse(queue.at)
    const { acceptedTotal: accepted, departedTotal: departed, refusedTotal, droppedTotal } = queue
    const unread = String(queue.unread ?? '')
    // Totals that lack a part, or all of them, are no smaller or greater than others.
    if (unread !== this.#unread || queue.unread?.includes('queue')) this.#totals = []
    this.#unread = unread
    if (queue.unread?.includes('queue')) return
    const last = this.#totals.at(-1)
    if (last && (atMs <= last.atMs || accepted < last.accepted || departed < last.departed)) {
      // The same moment again, or a queue that was created again.
      if (atMs <= last.atMs) return
      this.#totals = []
    }
    this.#totals.push({ atMs, accepted, departed, refused: refusedTotal, dropped: droppedTotal })
    while (this.#totals.length > 2 && (this.#totals[1]?.atMs ?? 0) <= atMs - WINDOW_MS) this.#totals.shift()
  }

  /** @returns {PerSecond | undefined} undefined before the second update */
  perSecond() {
    const first = this.#totals[0]
    const last = this.#totals.at(-1)
    if (!first || !last || first === last) return undefined
    const seconds = (last.atMs - first.atMs) / 1000
    return {
      arrivals: (last.accepted - first.accepted) / seconds,
      departures: (last.departed - first.departed) / seconds,
      refusals: Math.max(0, last.refused - first.refused) / seconds,
      drops: Math.max(0, last.dropped - first.dropped) / seconds,
    }
  }
}
