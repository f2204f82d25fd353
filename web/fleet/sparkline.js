import { s, setAttribute } from '../base/dom.js'

const WIDTH = 120
const HEIGHT = 28
const SPAN_MS = 300_000
const STEP_MS = 2000

/** Departures per second over the last five minutes, without axes. */
export class Sparkline {
  #line = s('path', { class: 'spark-line' })
  #area = s('path', { class: 'spark-area' })
  element = s(
    'svg',
    { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    this.#area,
    this.#line,
  )
  /** @type {{ atMs: number, departed: number }[]} oldest first */
  #points = []

  /** @param {readonly import('../wire.d.ts').Point[]} samples from before the page was opened */
  seed(samples) {
    const older = samples.map(({ at, departed }) => ({ atMs: Date.parse(at), departed }))
    const lastMs = older.at(-1)?.atMs ?? 0
    this.#points = [...older, ...this.#points.filter(({ atMs }) => atMs > lastMs)]
    this.#draw()
  }

  /** @param {import('../wire.d.ts').Queue} queue */
  push(queue) {
    const atMs = Date.parse(queue.at)
    if (atMs - (this.#points.at(-1)?.atMs ?? 0) < STEP_MS) return
    this.#points.push({ atMs, departed: queue.departedTotal })
    while ((this.#points[1]?.atMs ?? atMs) < atMs - SPAN_MS) this.#points.shift()
    this.#draw()
  }

  #draw() {
    const rates = this.#points.slice(1).map(({ atMs, departed }, i) => {
      const before = this.#points[i] ?? { atMs, departed }
      const perSecond = ((departed - before.departed) * 1000) / Math.max(1, atMs - before.atMs)
      return { atMs, perSecond: Math.max(0, perSecond) }
    })
    const last = rates.at(-1)
    if (!last || rates.length < 2) return
    const top = Math.max(...rates.map(({ perSecond }) => perSecond), 1e-9) * 1.15
    const corners = rates.map(({ atMs, perSecond }) => {
      const x = WIDTH * (1 - (last.atMs - atMs) / SPAN_MS)
      return { x, text: `${x.toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 3) * (perSecond / top)).toFixed(1)}` }
    })
    const line = `M${corners.map(({ text }) => text).join('L')}`
    setAttribute(this.#line, 'd', line)
    setAttribute(this.#area, 'd', `${line}V${HEIGHT}H${(corners[0]?.x ?? 0).toFixed(1)}Z`)
  }
}
