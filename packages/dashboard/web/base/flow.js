/** The totals of which a flow is computed, by its name. */
const TOTALS = /** @type {const} */ ({
  arrivals: 'acceptedTotal',
  departures: 'departedTotal',
  refusals: 'refusedTotal',
  drops: 'droppedTotal',
  completions: 'completedTotal',
  failures: 'failedAttemptsTotal',
  bypasses: 'bypassedTotal',
})

/**
 * @typedef {keyof typeof TOTALS} FlowName
 * @typedef {{ atMs: number, of: Readonly<Record<FlowName, number>> }} Totals
 * @typedef {Record<FlowName, number>} PerSecond
 */

const NAMES = /** @type {FlowName[]} */ (Object.keys(TOTALS))

const WINDOW_MS = 10_000

/** What happened per second, over the last ten seconds of totals. */
export class Flow {
  /** @type {Totals[]} */
  #totals = []
  /** The parts that the totals lack. */
  #unread = ''

  /** @param {import('../wire.d.ts').Queue} queue */
  push(queue) {
    const atMs = Date.parse(queue.at)
    const unread = String(queue.unread ?? '')
    // Totals that lack a part, or all of them, are no smaller or greater than others.
    if (unread !== this.#unread || queue.unread?.includes('queue')) this.#totals = []
    this.#unread = unread
    if (queue.unread?.includes('queue')) return
    const last = this.#totals.at(-1)
    const of = record((name) => queue[TOTALS[name]])
    if (last && (atMs <= last.atMs || of.arrivals < last.of.arrivals || of.departures < last.of.departures)) {
      // The same moment again, or a queue that was created again.
      if (atMs <= last.atMs) return
      this.#totals = []
    }
    this.#totals.push({ atMs, of })
    while (this.#totals.length > 2 && (this.#totals[1]?.atMs ?? 0) <= atMs - WINDOW_MS) this.#totals.shift()
  }

  /** @returns {PerSecond | undefined} undefined before the second update */
  perSecond() {
    const first = this.#totals[0]
    const last = this.#totals.at(-1)
    if (!first || !last || first === last) return undefined
    const seconds = (last.atMs - first.atMs) / 1000
    return record((name) => Math.max(0, last.of[name] - first.of[name]) / seconds)
  }
}

/**
 * @param {(name: FlowName) => number} value
 * @returns {PerSecond}
 */
function record(value) {
  return /** @type {PerSecond} */ (Object.fromEntries(NAMES.map((name) => [name, value(name)])))
}
