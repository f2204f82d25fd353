import { getSeries } from '../base/api.js'

const SPAN_MS = 300_000
/** Until then, the connection is left to what the page is shown with. */
const FIRST_MS = 500
/** Half a screen above and below. */
const NEAR = '50%'

/**
 * Fills rows that come near the screen, and the sparklines of these with the samples from before the page was opened:
 * one queue after the other, each once.
 */
export class Seeds {
  /** @type {Map<Element, import('./fleet-row.js').FleetRow>} */
  #rows = new Map()
  /** @type {import('./fleet-row.js').FleetRow[]} */
  #asked = []
  #isAsking = true
  #first = setTimeout(() => this.#askAll(), FIRST_MS)
  #observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.#came(target)
    },
    { rootMargin: NEAR },
  )

  /** @param {import('./fleet-row.js').FleetRow} row */
  watch(row) {
    if (this.#rows.has(row.element)) return
    this.#rows.set(row.element, row)
    this.#observer.observe(row.element)
  }

  close() {
    clearTimeout(this.#first)
    this.#observer.disconnect()
    this.#asked = []
  }

  /** @param {Element} element */
  #came(element) {
    this.#observer.unobserve(element)
    const row = this.#rows.get(element)
    if (!row || row.isSeeded) return
    row.fill()
    row.isSeeded = true
    this.#asked.push(row)
    if (!this.#isAsking) void this.#askAll()
  }

  async #askAll() {
    this.#isAsking = true
    for (let row = this.#asked.shift(); row; row = this.#asked.shift()) {
      const since = new Date(Date.parse(row.queue.at) - SPAN_MS)
      // If they cannot be read, the sparkline fills over time.
      const { samples } = await getSeries(row.queue.name, since).catch(() => ({ samples: [] }))
      row.spark.seed(samples)
    }
    this.#isAsking = false
  }
}
